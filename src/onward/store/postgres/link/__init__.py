"""Connections to a PostgreSQL server: opening, pooling, listening, and telling failures apart."""
