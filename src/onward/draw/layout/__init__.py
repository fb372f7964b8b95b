"""Where everything in a picture goes. Begin with `placing`."""
