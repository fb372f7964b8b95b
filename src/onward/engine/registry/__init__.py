"""Pipelines by their names. Begin with `pipelines`."""
