"""What can be asked. A run is named by its display id, its id, or the beginning of either.

A request that changes something takes a `key`: the same key with the same request gets the first answer,
with another request it is refused (`key_reused`). One that changes a run may name the last event that was
seen (`if_head`); when the run has moved on it is refused (`stale_head`).

Begin with `decisions` and `one_run`: each module has the requests about one subject.
"""
