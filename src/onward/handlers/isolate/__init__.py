"""Plain functions in processes of their own."""
