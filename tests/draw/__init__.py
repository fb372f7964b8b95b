"""Pictures: where things go, what they say, and that no label can do harm."""
