"""What the engine asks of a database: small protocols, and a `Store` that has them as parts.

Begin with `store`, then `log`: the one door to durability. Code takes the part it needs
(`Journal(store.log, …)`), so its types say what it can touch.

- `log`: the log of each run; `leases`: who works on runs and effects;
- `runs`: lists of runs, gates and notifications, and numbers; `messages`: what is said in chats;
- `limits`: what may be spent; `retention`: content, pipelines, and runs that go or arrive.
"""
