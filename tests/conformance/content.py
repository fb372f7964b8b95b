"""What was stored comes back: large values by their hash, every value with its type, events for ever."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onward.clock import SystemClock
from onward.engine.journal import Journal
from onward.errors import Refused
from onward.model.context import INT_MAX, INT_MIN, check_value, same
from onward.model.events import Artifact, ContextEvent, StepFinished
from onward.store.codec import VALUE_BYTES_MAX, content_hash, unseal
from onward.store.port.store import Store
from tests.conformance.drafts import creation, held, log_of, step, stepped

LARGE = VALUE_BYTES_MAX * 3
TEXT = st.text(st.characters(codec="utf-8"), max_size=30)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(INT_MIN, INT_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
CONTEXTS = st.dictionaries(TEXT.filter(bool), VALUES, max_size=5)
# The fixtures are databases that hold any number of runs, so examples may share them.
SHARED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given(first=CONTEXTS, second=CONTEXTS)
@SHARED
async def test_every_value_comes_back_with_its_type(
    store: Store, first: dict[str, Any], second: dict[str, Any]
) -> None:
    check_value([first, second], "what the test itself made up")
    run = await held(store, context=first)
    write, _ = run.then(*step(run, **second), with_row=False)
    await store.log.append(write, run.lease)
    created, *_, finished = [unseal(record) for record in await log_of(store, run.id)]
    assert isinstance(created, ContextEvent)
    assert isinstance(finished, ContextEvent)
    assert same(created.context, first)
    assert same(finished.context, second)


@pytest.mark.parametrize(
    "value",
    [
        1,
        1.0,
        True,
        -0.0,
        5e-324,
        1.7976931348623157e308,
        INT_MAX,
        INT_MIN,
        "",
        "\0",
        "\\u0000",
        "\u2028\ud7ff\ue000\U0010ffff",
        [],
        {},
        {"": {"": []}},
        [1, 1.0, True, None, "1"],
        "é",
        "e\u0301",
    ],
    ids=repr,
)
async def test_values_that_resemble_each_other_are_told_apart(store: Store, value: Any) -> None:
    run = await held(store, context={"value": value})
    folded = await Journal(store.log, SystemClock()).load(run.id)
    assert same(folded.run.context["value"], value)


@pytest.mark.parametrize(
    "value", ["x" * LARGE, "\0é\U0001f600" * LARGE, [1.5] * LARGE, {"deep": [{"er": "y" * LARGE}]}]
)
async def test_a_large_value_comes_back_whole(store: Store, other: Store, value: Any) -> None:
    run = await stepped(store, await held(store), large=value, small=1)
    record = (await log_of(other, run.id))[-1]
    assert len(record.body) < VALUE_BYTES_MAX
    assert list(record.values) == list(record.refs)
    event = unseal(record)
    assert isinstance(event, ContextEvent)
    assert same(event.context, {"small": 1, "large": value})
    assert same((await Journal(other.log, SystemClock()).load(run.id)).run.context["large"], value)


async def test_a_large_value_has_one_name_in_all_runs_and_keys(store: Store, other: Store) -> None:
    text = "x" * LARGE
    one = await stepped(store, await held(store), first=text, second=text)
    two = await stepped(other, await held(other), third=text)
    names = {name for run in (one, two) for name in (await log_of(store, run.id))[-1].refs}
    assert len(names) == 1
    assert (await Journal(store.log, SystemClock()).load(one.id)).run.context["second"] == text
    assert (await Journal(store.log, SystemClock()).load(two.id)).run.context["third"] == text


async def test_content_that_is_kept_apart_is_stored_with_its_event_and_not_read_with_it(
    store: Store, other: Store
) -> None:
    run = await held(store)
    begun, ended = step(run)
    assert isinstance(ended, StepFinished)
    content, answer = bytes(range(256)) * 100, "é" * LARGE
    kept = Artifact(name="n", size=len(content), hash=content_hash(content), stored_at_us=1, step=ended.step)
    artifacts = {"x": kept, "gone": None}
    ended = replace(ended, artifacts=artifacts, contents={kept.hash: content}, response=answer)
    write, _ = run.then(begun, ended, with_row=False)
    await store.log.append(write, run.lease)
    record = (await log_of(other, run.id))[-1]
    assert record.refs == (f"~{kept.hash}", content_hash(answer.encode()))
    assert list(record.values) == [content_hash(answer.encode())]
    event = unseal(record)
    assert isinstance(event, StepFinished)
    assert (event.artifacts, event.contents, event.response) == (artifacts, {}, answer)
    assert await other.blobs.find(kept.hash) == content
    assert (await Journal(other.log, SystemClock()).load(run.id)).run.artifacts == {"x": kept}


@pytest.mark.parametrize("content", [b"", b"digraph {}", bytes(range(256)) * 100])
async def test_content_beside_the_events_is_found_by_its_hash(
    store: Store, other: Store, content: bytes
) -> None:
    name = content_hash(content)
    assert await store.blobs.find(name) is None
    write, _ = creation(blobs={name: content})
    await store.log.create(write, "creation")
    assert await other.blobs.find(name) == content


async def test_content_of_a_refused_write_is_stored_by_the_next_one_that_succeeds(
    store: Store, other: Store
) -> None:
    content = b"digraph { a -> b }"
    name = content_hash(content)
    taken, _ = creation("taken")
    await other.log.create(taken, "creation")
    refused, _ = creation("taken", blobs={name: content})
    with pytest.raises(Refused):
        await store.log.create(refused, "another creation")
    write, _ = creation(blobs={name: content})
    await store.log.create(write, "creation")
    assert await other.blobs.find(name) == content


async def test_what_is_not_there_is_not_found(store: Store) -> None:
    assert await store.blobs.find(content_hash(b"never stored")) is None


async def test_much_content_is_found_at_once_as_far_as_it_is_there(store: Store, other: Store) -> None:
    contents = {content_hash(content): content for content in (b"", b"one", bytes(range(256)) * 100)}
    write, _ = creation(blobs=contents)
    await store.log.create(write, "creation")
    never = content_hash(b"never stored")
    assert await other.blobs.find_many([never, *contents]) == contents
    assert await other.blobs.find_many([]) == {}
    assert await store.blobs.find("") is None


async def test_an_event_once_written_reads_the_same_for_ever(store: Store, other: Store) -> None:
    run = await stepped(store, await held(store), times=2, text="x" * LARGE)
    before = list(await log_of(store, run.id))
    await stepped(store, run, times=3)
    for process in (store, other):
        assert list(await log_of(process, run.id))[: len(before)] == before
