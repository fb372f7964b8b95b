"""Pipeline files: text in, a graph or every problem out. Begin with `reader`."""
