"""What a log folds to has a version, so that no process continues from a snapshot that another rule made."""

from __future__ import annotations

from typing import Any

import pytest
import zstandard
from blake3 import blake3
from msgspec import inspect

from onward.machine.fold.snapshot import encode_run
from onward.machine.lifecycle import apply
from onward.model.run import FOLD_VERSION, Run
from onward.store.codec import unseal
from tests.world import Process

FOLDED = (24, "64997934327e6180", "9b225e2c547ee3f9")
"""The version of the fold, the shape of its state, and what the logs of the golden database fold to."""


@pytest.fixture
def kind() -> str:
    return "sqlite"


async def test_a_fold_with_another_result_has_another_version(process: Process, runs: dict[str, Any]) -> None:
    states = blake3()
    for run_id in sorted(runs):
        run: Run | None = None
        for record in await process.log(run_id):
            run = apply(run, unseal(record), run_id=run_id, at_us=record.at_us, token=record.token)
            states.update(zstandard.decompress(encode_run(run)))
    found = FOLD_VERSION, _shape(), states.hexdigest(length=8)
    assert found == FOLDED, f"the fold has another result: raise FOLD_VERSION, then write {found} here"


def _shape() -> str:
    """The fields of the state, with their types."""
    known = dict[str, list[str]]()

    def note(found: inspect.Type) -> None:
        if isinstance(found, inspect.StructType) and found.cls.__name__ not in known:
            known[found.cls.__name__] = [
                f"{field.encode_name}: {found.cls.__annotations__.get(field.name)}" for field in found.fields
            ]
            for field in found.fields:
                note(field.type)
        for inner in (
            *getattr(found, "types", ()),
            *(getattr(found, name, None) for name in ("item_type", "key_type", "value_type")),
            *(getattr(found, "item_types", None) or ()),
        ):
            if isinstance(inner, inspect.Type):
                note(inner)

    note(inspect.type_info(Run))
    return blake3(repr(sorted(known.items())).encode()).hexdigest(length=8)
