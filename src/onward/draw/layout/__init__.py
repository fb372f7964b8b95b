"""Where everything in a picture goes. Begin with `lay_out`."""
