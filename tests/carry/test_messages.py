"""Messages in exports: they arrive with their runs, whole, in the state that the exported log gives them."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from blake3 import blake3

from onward.carry.exporter import Exporter, row_of
from onward.carry.format import End, MessageLine, read_line, write_line
from onward.errors import Refused
from onward.model.chat import Reset, text_of
from onward.model.events import StepStarted
from onward.model.row import MessageState
from onward.operations.here.verify import verify_run
from onward.store.codec import content_hash
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.messages import MessageQuery
from onward.store.port.store import Store
from tests.carry.moving import exported, imported
from tests.conformance.drafts import Draft, held
from tests.conformance.messages import STEP, answered, appended, call_of, growth

pytestmark = pytest.mark.anyio
SOURCE = b"digraph {}"


async def spoken(store: Store) -> Draft:
    """A run with a message that is complete, and one that streams."""
    name = content_hash(SOURCE)
    draft = await held(store, "run", pipeline_hash=name, blobs={name: SOURCE})
    begun = StepStarted(step=STEP, node="start", attempt=1)
    draft = await appended(store, draft, begun, call_of(draft.id, chat="talk"))
    await store.messages.flush([growth(draft, "Once ", "upon", chat="talk")], 1)
    draft = await appended(store, draft, answered(), call_of(draft.id, "m2", chat="talk"))
    await store.messages.flush([growth(draft, "so far", call="m2", chat="talk")], 1)
    return draft


def resealed(content: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The export with other lines, and an end that fits."""
    lines = [change(line) for line in content.splitlines(keepends=True)[:-1]]
    body = b"".join(lines)
    return body + write_line(End(lines=len(lines), hash=blake3(body).hexdigest()))


async def test_messages_arrive_with_their_run(store: Store) -> None:
    await spoken(store)
    there = MemoryDatabase().connect()
    await imported(await exported(store), there)
    found = await there.messages.list(MessageQuery(run_id="run"))
    texts = [(one.call, one.state, text_of(await there.messages.content(one.id) or ())) for one in found]
    assert texts == [
        ("m1", MessageState.COMPLETE, "Once upon"),
        ("m2", MessageState.INTERRUPTED, "so far"),
    ]
    assert [type(one) for one in await there.messages.read("talk", after=0)] == [Reset, Reset]
    assert (await verify_run(there, "run")).problems == ()


async def test_a_message_that_ended_after_the_log_was_cut_streams_in_the_file(store: Store) -> None:
    """The file is of one moment, that of its header."""
    draft = await spoken(store)
    row = await row_of(store.runs, "run")
    await appended(store, draft, answered("m2"))
    file = io.BytesIO()
    await Exporter(store, file.write).export([row])
    there = MemoryDatabase().connect()
    await imported(file.getvalue(), there)
    states = [one.state for one in await there.messages.list(MessageQuery(run_id="run"))]
    assert states == [MessageState.COMPLETE, MessageState.INTERRUPTED]
    assert (await verify_run(there, "run")).problems == ()


async def test_the_file_is_the_same_before_and_after_its_text_is_sealed_and_tidied(store: Store) -> None:
    draft = await spoken(store)
    await appended(store, draft, answered("m2"))
    files = [await exported(store)]
    await store.messages.seal(at_us=1, limit=10)
    files.append(await exported(store))
    await store.messages.tidy(before_us=2**60, limit=10)
    files.append(await exported(store))
    assert files[0] == files[1] == files[2]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b'"chat":"talk"', b'"chat":"run/other"', "is in the wrong place"),
        (b'"call":"m1","try":1', b'"call":"m3","try":1', "is in the wrong place"),
        (b'"state":"complete"', b'"state":"error"', "is in the wrong place"),
        (b'"run":"run"', b'"run":"other"', "is in the wrong place"),
        (b'"role":"assistant"', b'"role":"nobody"', "is damaged in line"),
        (b'"content":"', b'"content":"0', "is missing"),
    ],
)
async def test_a_message_that_somebody_changed_is_refused(
    store: Store, old: bytes, new: bytes, why: str
) -> None:
    await spoken(store)
    content = await exported(store)
    count = sum(isinstance(read_line(line), MessageLine) for line in content.splitlines())
    assert count == 2

    def change(line: bytes) -> bytes:
        return line.replace(old, new) if line.startswith(b'{"line":"message"') else line

    there = MemoryDatabase().connect()
    with pytest.raises(Refused, match=why):
        await imported(resealed(content, change), there)
    assert await there.messages.list(MessageQuery(chat="talk")) == []


async def test_content_that_is_not_a_message_is_refused(store: Store) -> None:
    await spoken(store)
    source = content_hash(SOURCE)

    def change(line: bytes) -> bytes:
        found = read_line(line)
        return (
            line.replace(found.content.encode(), source.encode()) if isinstance(found, MessageLine) else line
        )

    with pytest.raises(Refused, match="is not the text of a message"):
        await imported(resealed(await exported(store), change), MemoryDatabase().connect())
