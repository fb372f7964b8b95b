"""Human gates as a pipeline defines them: the question, its choices, and which of them an answer means."""
