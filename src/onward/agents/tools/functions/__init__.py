"""Functions of a program as tools. Begin with `signature`: a function's types are its schema."""
