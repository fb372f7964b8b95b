"""Questions: an inbox is one list, true after every write, and reads no log."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from onward.errors import InvalidInput, LeaseLost
from onward.model.events import RunCancelled, StepStarted
from onward.model.gate import Choice, GateDecided, GateOpened, GateWithdrawn
from onward.model.row import GateRow
from onward.store.port.retention import Kin
from onward.store.port.runs import GateQuery, gate_cursor
from onward.store.port.store import Store
from tests.conformance.drafts import START_US, TICK_US, Draft, claimed, fork, held, requested, stepped

YES = Choice(
    key="y",
    label="Yes \u2714\0",
    to="after",
    data={"description": "\u2714\0", "colors": ["#fff"], "columns": 2},
)
NO = Choice(key="n", label="No", to="")


async def asked(store: Store, draft: Draft, gate: str = "ask#1", **fields: Any) -> Draft:
    """The run after its holder has asked a question, while other lines go on."""
    event = GateOpened(gate=gate, node="ask", text="Go on?", choices=(YES, NO), **fields)
    write, after = draft.then(event, with_row=False)
    await store.log.append(write, draft.lease)
    return after


async def inbox(store: Store, query: GateQuery | None = None) -> list[tuple[str, str]]:
    """The open gates: run and name."""
    return [(row.run_id, row.gate) for row in await store.gates.open(query or GateQuery())]


async def test_a_question_is_in_the_inbox_until_it_is_decided(store: Store, other: Store) -> None:
    run = await asked(store, await held(store, "run"), type="yes_no", deadline_us=START_US + 99)
    opened = GateRow(
        run_id="run",
        gate="ask#1",
        pipeline="story",
        node="ask",
        text="Go on?",
        about="",
        type="yes_no",
        choices=(YES, NO),
        opened_at_us=START_US + TICK_US,
        deadline_us=START_US + 99,
    )
    assert await other.gates.open(GateQuery()) == await other.gates.of("run") == [opened]
    run = await requested(other, run, GateDecided(gate="ask#1", choice=YES, by="pat"))
    assert await store.gates.open(GateQuery()) == []
    (closed,) = await store.gates.of("run")
    assert (closed.decided_by, closed.closed_at_us) == ("pat", run.run.updated_at_us)
    assert await store.gates.of("stranger") == []


async def test_a_question_of_a_step_that_is_asked_again_is_listed_as_it_is_now(
    store: Store,
) -> None:
    """The attempt that asked it ended; the next one asks under the same id, and may ask something else."""
    gate = "a#1:approve"
    run = await held(store, "run")
    write, begun = run.then(StepStarted(step="a#1", node="a", attempt=1), with_row=False)
    await store.log.append(write, run.lease)
    run = await requested(store, await asked(store, begun, gate), GateWithdrawn(gate=gate))
    assert await inbox(store) == []
    anew = GateOpened(gate=gate, node="a", text="Really?", choices=(NO,), type="yes_no", about="it")
    write, after = run.then(anew, with_row=False)
    await store.log.append(write, run.lease)
    (row,) = await store.gates.open(GateQuery())
    assert (row.gate, row.text, row.about, row.type, row.choices) == (gate, "Really?", "it", "yes_no", (NO,))
    assert (row.decided_by, row.closed_at_us) == (None, None)
    assert row.opened_at_us == after.run.updated_at_us


async def test_a_question_that_was_withdrawn_was_decided_by_no_one(store: Store) -> None:
    run = await asked(store, await held(store, "run"))
    run = await requested(store, run, GateWithdrawn(gate="ask#1"))
    (closed,) = await store.gates.of("run")
    assert (closed.decided_by, closed.closed_at_us) == (None, run.run.updated_at_us)
    assert await inbox(store) == []


async def test_a_question_may_be_asked_and_decided_in_one_write(store: Store) -> None:
    run = await held(store, "run")
    asks = GateOpened(gate="ask#1", node="ask", text="Go on?", choices=(YES,))
    write, _ = run.then(asks, GateDecided(gate="ask#1", choice=YES, by="deadline", expired=True))
    await store.log.append(write, run.lease)
    assert [row.decided_by for row in await store.gates.of("run")] == ["deadline"]
    assert await inbox(store) == []


async def test_an_inbox_has_the_oldest_question_first_and_pages(store: Store) -> None:
    for number, run_id in ((2, "b"), (1, "c"), (3, "a"), (2, "d")):
        pipeline = "story" if number == 2 else "other"
        run = await held(store, run_id, at_us=START_US + number, pipeline=pipeline)
        await asked(store, await asked(store, run), "ask#2")
    every = [(name, gate) for gate in ("ask#1", "ask#2") for name in ("c", "b", "d", "a")]
    assert await inbox(store) == every
    assert await inbox(store, GateQuery(pipeline="story")) == [one for one in every if one[0] in "bd"]
    assert await inbox(store, GateQuery(pipeline="nowhere")) == []
    found, query = list[tuple[str, str]](), GateQuery(limit=3)
    while page := await store.gates.open(query):
        found += [(row.run_id, row.gate) for row in page]
        query = GateQuery(limit=3, after=gate_cursor(page[-1]))
    assert found == every
    with pytest.raises(InvalidInput, match="the cursor is not one of this list"):
        GateQuery(after="WzEsImEiXQ")


async def test_the_name_of_a_gate_may_be_of_any_length(store: Store) -> None:
    """It names every branch that the gate is in. Two that begin alike for long are two."""
    noise = random.Random(1)
    branch = "".join(
        chr(noise.randrange(256, 2_000)) for _ in range(10_000)
    )  # nothing that can be compressed
    run, names = await held(store, "run"), [f"{branch}/ask#1", f"{branch}/ask#2"]
    for name in names:
        run = await asked(store, run, name)
    assert await inbox(store) == [("run", name) for name in names]
    first = GateQuery(limit=1)
    (row,) = await store.gates.open(first)
    assert await inbox(store, replace(first, after=gate_cursor(row))) == [("run", names[1])]
    await requested(store, run, GateDecided(gate=names[0], choice=YES, by="pat"))
    assert await inbox(store) == [("run", names[1])]
    assert [gate.decided_by for gate in await store.gates.of("run")] == ["pat", None]


async def test_a_refused_write_asks_nothing(store: Store, other: Store) -> None:
    run = await held(store, "run")
    await claimed(other, run)
    with pytest.raises(LeaseLost):
        await asked(store, run)
    assert await store.gates.of("run") == []


async def test_a_fork_asks_anew_what_is_open_in_its_branches(store: Store) -> None:
    """What its parent asked and had answered stays with the parent."""
    parent = await asked(store, await held(store, "parent"), "fan#1.ask/ask#1", deadline_us=START_US + 9_000)
    parent = await stepped(store, await asked(store, parent, "ask#1"))
    write, child = fork(parent, "fork")
    await store.log.create(write, "creation")
    (row,) = await store.gates.of("fork")
    asked_for_us = child.run.created_at_us - START_US - TICK_US
    assert (row.gate, row.opened_at_us) == ("fan#1.ask/ask#1", child.run.created_at_us)
    assert row.deadline_us == START_US + 9_000 + asked_for_us
    assert len(await store.gates.of("parent")) == 2


async def test_questions_go_with_their_run(store: Store) -> None:
    run = await asked(store, await held(store, "run"))
    run = await requested(store, run, GateWithdrawn(gate="ask#1"), RunCancelled(reason="user"))
    await store.retention.delete([Kin(id="run", head=run.position.seq, status=run.run.status)])
    assert await store.gates.of("run") == []
