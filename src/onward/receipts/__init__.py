"""What happened, on disk, for people and tools. Read back are only `status.json` of an attempt at
hand, and what an attempt left that another one continues."""
