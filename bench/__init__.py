"""Benchmarks: ratios to a floor measured in the same run, on the same machine."""
