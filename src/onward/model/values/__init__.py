"""What names, numbers, times and context values may be."""
