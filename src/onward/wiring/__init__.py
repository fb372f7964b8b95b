"""The composition root: the only package that names concrete adapters together.

Begin with `stores` and `engines`. Adapters are imported inside functions: a command that only looks at runs
does not wait for those that it does not need.
"""
