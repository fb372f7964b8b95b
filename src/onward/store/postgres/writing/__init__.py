"""Writing runs: a group of writes becomes one to three statements, sent together.

Begin with `writer`. `calls` turns writes into calls of statements, `refusing` finds out why one was refused.
"""
