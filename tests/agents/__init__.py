"""Models, their clients and their scripted doubles."""
