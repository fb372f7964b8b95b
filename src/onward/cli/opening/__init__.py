"""The operations that a command asks, on the database and the app that its flags name.

Begin with `database` and `app`; `looking`, `creating` and `operating` open the groups of operations.
"""
