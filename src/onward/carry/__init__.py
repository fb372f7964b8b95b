"""Carrying runs from one database to another in a file of their own."""
