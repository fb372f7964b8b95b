"""Reading a log: one projection, and readers that agree."""
