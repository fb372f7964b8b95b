"""Export and import: runs in a file, from one database to another. Begin with `format`."""
