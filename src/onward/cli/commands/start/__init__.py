"""Commands that execute runs, here or in workers."""
