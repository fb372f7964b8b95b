"""A step that manages another run. Begin with `oversee`."""
