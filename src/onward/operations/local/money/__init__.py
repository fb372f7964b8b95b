"""Limits and usage, answered in this process."""
