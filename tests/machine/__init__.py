"""Tests of the pure core; a package, because they drive runs with the same tools."""
