"""A picture as SVG. Begin with `page`."""
