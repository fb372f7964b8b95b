"""What names, numbers, times and context values may be.

Begin with `value` (what a context may hold) and `bounds` (which numbers may come in from outside); every
other module is about one kind of value.
"""
