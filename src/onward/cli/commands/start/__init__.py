"""Commands that create or execute runs, here or in workers; `workers` lists the workers."""
