"""The rules that a pipeline is checked by. Begin with `check`, which lists them."""
