"""What people are told of runs."""
