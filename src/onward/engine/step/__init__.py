"""What a step has while it runs: artifacts, a directory, the previous attempt, effects made at most once."""
