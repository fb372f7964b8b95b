"""What programs print: a module for each format reads events, and `pieces.py` is what they say. Pure."""
