"""The database on the server as a whole: its schema, which one it is, and whether it is well."""
