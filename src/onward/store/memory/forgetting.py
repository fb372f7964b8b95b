"""Forgetting runs that are in memory: what `Retention` promises, in as few words as possible."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from onward.store import rows
from onward.store.memory.state import State, StoredRun
from onward.store.port import content_named
from onward.store.retention import Expiry, Kin, Swept, keys_below


def expired(state: State, expiry: Expiry) -> Sequence[Kin]:
    """The runs that are old enough, oldest first."""
    chosen = [run for run in _by_age(state) if run.row.status in expiry.statuses]
    old = chosen[: max(0, len(chosen) - expiry.keep)]
    found = [_kin(run) for run in old if run.row.updated_at_us < expiry.before_us]
    return [kin for kin in found if kin is not None]


def attached(state: State) -> Sequence[Kin]:
    """All that are not final, and all forks."""
    every = map(_kin, _by_age(state))
    return [kin for kin in every if kin is not None and (kin.parent is not None or not kin.is_final)]


def delete(state: State, runs: Sequence[Kin]) -> Sequence[str]:
    """Delete those that have not changed; the ids that are gone now."""
    there = state.runs
    for kin in runs:
        run = there.get(kin.id)
        is_needed = any(other.row.parent == kin.id for other in there.values())
        if run is not None and run.row.head == kin.head and run.row.owner is None and not is_needed:
            del there[kin.id]
            first, behind = keys_below(kin.id)
            for key in [key for key in state.effects if first <= key < behind]:
                del state.effects[key]
    return [kin.id for kin in runs if kin.id not in there]


def sweep_blobs(state: State, before_us: int, limit: int) -> Swept:
    """Delete blobs that nobody refers to and nobody has touched since."""
    used = {name for run in state.runs.values() for name in _names(run)}
    old = [name for name, at_us in state.touched.items() if at_us < before_us and name not in used]
    found = old[:limit]
    for name in found:
        del state.touched[name]
    return Swept(len(found), sum(len(state.blobs.pop(name)) for name in found))


def _by_age(state: State) -> list[StoredRun]:
    return sorted(state.runs.values(), key=lambda run: (run.row.created_at_us, run.row.id))


def _kin(run: StoredRun) -> Kin | None:
    row, first = run.row, run.records[0]
    successor = row.detail if row.reason == "restarted_as" else None
    body = first.body if first.seq == 1 else None
    return rows.kin_of((row.id, row.head, row.status, row.parent, successor, body))


def _names(run: StoredRun) -> Iterator[str]:
    """The content that a run refers to."""
    yield run.row.pipeline_hash
    yield from content_named(run.records)
    for record in run.records:
        if record.kind == "PipelineChanged":
            yield json.loads(record.body)["before"]
