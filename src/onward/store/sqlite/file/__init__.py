"""The database file: opening it, transactions on it, whether it is still the same, and who else uses it.

Begin with `connection` (opening it, and its errors) and `transaction`. `presence` and `shared_lock` tell
who is alive, `whereabouts` and `identity` whether the file is still ours.
"""
