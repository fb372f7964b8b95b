"""Limits in PostgreSQL."""
