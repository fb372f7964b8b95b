"""What happened, on disk, for people and tools. Only `status.json` of an attempt at hand is read back."""
