"""Coming off another run's log: at one of its checkpoints, without touching it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.errors import InvalidInput
from onward.model.event import RunForked
from onward.model.values.bounds import EVENT
from onward.model.values.value import copied
from onward.read.lookup import CHECKPOINT_KINDS


async def checkpoint(journal: Journal, run_id: str, seq: int) -> Folded:
    """A run as it stood at one of its checkpoints; refuses any other event."""
    EVENT.check(seq, "the checkpoint")
    head = (await journal.load(run_id)).position.seq
    records = await journal.read(run_id, after=seq - 1, limit=1) if 1 <= seq <= head else ()
    if not records or records[0].kind not in CHECKPOINT_KINDS:
        raise InvalidInput(
            f"event {seq} of run {run_id} is not a checkpoint; `onward checkpoints {run_id}` lists them."
        )
    return await journal.load_at(run_id, seq)


def coming_off(onto: Folded, *, changes: Mapping[str, Any], by: str) -> RunForked:
    """The first event of a fork."""
    return RunForked(
        parent=onto.run.id,
        parent_seq=onto.position.seq,
        parent_hash=onto.position.hash.hex(),
        by=by,
        context=copied(changes),
    )
