"""Verifying messages: what was changed behind the store's back is found."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace

from onward.model.chat import ChunkKind, Part, seal_parts
from onward.operations.here.verify import verify_run
from onward.store.codec import content_hash
from onward.store.port.store import Store
from onward.wiring import open_store
from tests.conformance.messages import answered, appended, growth, speaking

pytestmark = pytest.mark.anyio


async def spoken(store: Store) -> str:
    draft = await speaking(store)
    await store.messages.flush([growth(draft, "Once ", "upon")], 1)
    await appended(store, draft, answered())
    return draft.id


async def test_messages_are_sound_while_they_stream_and_at_every_stage_after_it(store: Store) -> None:
    draft = await speaking(store)
    assert (await verify_run(store, draft.id)).problems == ()
    await store.messages.flush([growth(draft, "so far")], 1)
    assert (await verify_run(store, draft.id)).problems == ()
    await appended(store, draft, answered())
    assert (await verify_run(store, draft.id)).problems == ()
    await store.messages.seal(at_us=1, limit=10)
    assert (await verify_run(store, draft.id)).problems == ()
    await store.messages.tidy(before_us=2**60, limit=10)
    assert (await verify_run(store, draft.id)).problems == ()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE message SET state = 'error'", "is error, but the log says complete"),
        ("UPDATE message SET call = 'm9'", "is missing"),
        ("DELETE FROM message", "is missing"),
        ("DELETE FROM chunk WHERE position = 2", "some of its chunks are missing"),
        ("DELETE FROM chunk WHERE kind = 'end'", "some of its chunks are missing"),
        ("UPDATE chunk SET text = 'Twice ' WHERE position = 2", "its chunks differ from the text stored"),
        ("DELETE FROM blob", "is missing or damaged"),
    ],
)
async def test_what_was_changed_is_found(tmp_path: Path, statement: str, problem: str) -> None:
    path = str(tmp_path / "onward.db")
    store = await open_store(path)
    run_id = await spoken(store)
    await store.messages.seal(at_us=1, limit=10)
    assert (await verify_run(store, run_id)).problems == ()
    db = apsw.Connection(path)
    db.execute(statement)
    db.close()
    (found,) = (await verify_run(store, run_id)).problems
    assert problem in found
    await store.close()


async def test_a_message_whose_text_is_not_what_its_call_names_is_found(store: Store) -> None:
    draft = await speaking(store)
    await store.messages.flush([growth(draft, "Once ")], 1)
    other = seal_parts([Part(ChunkKind.TEXT, "Twice ")])
    name = content_hash(other)
    await appended(store, draft, replace(answered(), said=name, nodes={name: other}))
    (found,) = (await verify_run(store, draft.id)).problems
    assert f"its chunks differ from the text stored as {name}" in found


async def test_a_message_that_lost_the_text_its_call_names_is_found(tmp_path: Path) -> None:
    path = str(tmp_path / "onward.db")
    store = await open_store(path)
    draft = await speaking(store)
    await store.messages.flush([growth(draft, "Once ")], 1)
    said = seal_parts([Part(ChunkKind.TEXT, "Once ")])
    name = content_hash(said)
    await appended(store, draft, replace(answered(), said=name, nodes={name: said}))
    assert (await verify_run(store, draft.id)).problems == ()
    db = apsw.Connection(path)
    db.execute("UPDATE message SET content = NULL")
    db.close()
    (found,) = (await verify_run(store, draft.id)).problems
    assert f"its text is None, but its call names {name}" in found
    await store.close()
