"""What the engine asks of a database: one small protocol a file, and a `Store` that has them as parts.

Begin with `store`, then `log`: the one door to durability. `stored` has what a log is made of. Code takes the
part it needs (`Journal(store.log, …)`), so its types say what it can touch.
"""
