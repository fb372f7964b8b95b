"""Gates in exports: what no process waits for any more is no open question where a run arrives."""

from __future__ import annotations

import pytest

from onward.model.events import StepStarted
from onward.model.gate import GateOpened
from onward.operations.here.verify import verify_run
from onward.store.codec import content_hash
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.store import Store
from tests.carry.moving import exported, imported
from tests.conformance.drafts import held
from tests.conformance.questions import NO, YES, inbox

pytestmark = pytest.mark.anyio
SOURCE = b"digraph {}"


async def test_a_question_of_a_step_that_was_under_way_arrives_withdrawn(store: Store) -> None:
    """The log that arrives says that it is withdrawn, and so must the inbox."""
    name = content_hash(SOURCE)
    draft = await held(store, "run", pipeline_hash=name, blobs={name: SOURCE})
    begun = StepStarted(step="start#1", node="start", attempt=1)
    question = GateOpened(gate="start#1:go", node="start", text="Go on?", choices=(YES, NO))
    write, _ = draft.then(begun, question)
    await store.log.append(write, draft.lease)
    assert await inbox(store) == [("run", "start#1:go")]
    there = MemoryDatabase().connect()
    await imported(await exported(store), there)
    assert await inbox(there) == []
    assert (await verify_run(there, "run")).problems == ()
