"""Limits in SQLite."""
