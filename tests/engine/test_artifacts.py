"""Artifacts: durable with the step that stores them, seen by those after it, and by forks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from onward.engine.control.requests import ForkRequest, Resume
from onward.errors import ArtifactNotFound, InvalidInput, UnstorableValue
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.handlers.room import ArtifactInfo, Artifacts
from onward.model import events
from onward.model.events import ARTIFACT_BYTES_MAX, ARTIFACT_ID_MAX, ARTIFACTS_MAX, StepFinished
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.operations.here.verify import verify_run
from tests.conformance.handlers import Doorway
from tests.world import Process, World, line

LARGE = bytes(range(256)) * 1_000
VALUES = [b"\0\xff", "text é", "", {"a": [1, 1.5, None]}, [], 7, None, LARGE]
Act = Callable[[StepContext], Awaitable[Result]]


def storing(**contents: Any) -> Act:
    async def act(step: StepContext) -> Result:
        for id, data in contents.items():
            step.artifacts.store(id, f"the {id}", data)
        return Result.success()

    return act


def fetching(*ids: str) -> Act:
    async def act(step: StepContext) -> Result:
        return Result.success(
            fetched=[await step.artifacts.retrieve(id) for id in ids],
            there=[info.id for info in step.artifacts.list()],
        )

    return act


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
async def test_what_a_step_stored_comes_out_for_the_next_as_what_it_was(world: World, value: Any) -> None:
    found: list[Any] = []

    async def look(step: StepContext) -> Result:
        found.append(await step.artifacts.retrieve("x"))
        found.append(step.artifacts.list())
        return Result.success()

    process = await world.process({"a": [storing(x=value)], "b": [look]})
    run = await process.start(line("a", "b"))
    assert run.status is RunStatus.COMPLETED
    assert (found[0], type(found[0])) == (value, type(value))
    kept = run.artifacts["x"]
    assert found[1] == [ArtifactInfo("x", "the x", kept.size, kept.stored_at_us, False)]
    assert await process.is_sound()


async def test_the_content_is_in_the_same_append_as_the_outcome_and_not_in_the_log(world: World) -> None:
    process = await world.process({"a": [storing(x=LARGE)]})
    run = await process.start(line("a", "b"))
    (record,) = [r for r in await process.log() if "artifacts" in r.body]
    assert record.refs == (f"~{run.artifacts['x'].hash}",)
    assert record.values == {}, "a log is read without its artifacts"
    assert len(record.body) < 1_000
    assert await process.store.blobs.find(run.artifacts["x"].hash) == LARGE


async def test_an_attempt_that_dies_stores_nothing_and_its_repetition_stores_again(world: World) -> None:
    door = Doorway()

    async def store_and_die(step: StepContext) -> Result:
        step.artifacts.store("x", "x", "first try")
        return await door(step)

    first = await world.process({"a": [store_and_die]})
    driving = asyncio.create_task(first.start(line("a", "b")))
    await door.entered()
    await first.die()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    second = await world.process({"a": [storing(y="second try")], "b": [fetching("y")]})
    assert not (await second.load()).run.artifacts
    run = await second.resume()
    assert (run.context["fetched"], run.context["there"]) == (["second try"], ["y"])


async def test_an_attempt_that_fails_stores_nothing(world: World) -> None:
    async def fails(step: StepContext) -> Result:
        step.artifacts.store("x", "x", "of the first attempt")
        return Result.retry("not yet")

    process = await world.process({"a": [fails, storing(y=1)]})
    run = await process.start(line("a", a="max_retries=1"))
    assert (run.status, list(run.artifacts)) == (RunStatus.COMPLETED, ["y"])


async def test_artifacts_outlive_the_process_and_a_fork_keeps_those_before_it(world: World) -> None:
    script = {"a": [storing(x="old", gone=1)], "b": [storing(x="new")], "c": [fetching("x")]}
    process = await world.process(script)
    run = await process.start(line("a", "b", "c"))
    assert run.context["fetched"] == ["new"]
    seq = next(c["seq"] for c in await process.checkpoints() if c["current_node"] == "a")
    other = await world.process({**script, "b": []})
    fork = await other.engine.fork("run", ForkRequest(seq, new_id="fork"))
    forked = (await other.engine.resume(fork.run.id, Resume(original=True))).run
    assert forked.context["fetched"] == ["old"]
    assert sorted(forked.artifacts) == ["gone", "x"]
    assert (await other.load()).run.artifacts["x"] == run.artifacts["x"], "the original is untouched"


async def test_removing_and_clearing_are_part_of_the_outcome_too(world: World) -> None:
    async def prune(step: StepContext) -> Result:
        step.artifacts.remove("x")
        step.artifacts.store("draft", "draft", "d")
        step.artifacts.remove("draft")
        assert not step.artifacts.has("x")
        return Result.success()

    async def wipe(step: StepContext) -> Result:
        step.artifacts.clear()
        step.artifacts.store("last", "last", "l")
        return Result.success()

    process = await world.process({"a": [storing(x=1, y=2)], "b": [prune], "c": [fetching("y")], "d": [wipe]})
    run = await process.start(line("a", "b", "c", "d"))
    assert run.context["there"] == ["y"]
    assert list(run.artifacts) == ["last"]
    finished = [e for e in await process.events() if isinstance(e, StepFinished) and e.artifacts]
    assert finished[1].artifacts == {"x": None}


async def test_a_function_that_is_not_async_fetches_from_its_thread(world: World) -> None:
    def fetch(step: StepContext) -> dict[str, Any]:
        return {"fetched": step.artifacts.fetch("x")}

    process = await world.process(
        handlers={"codergen": FunctionHandler(fetch), "work": FunctionHandler(storing(x={"deep": [1]}))}
    )
    run = await process.start(line("a", "b", a="type=work"))
    assert run.status is RunStatus.COMPLETED, run.detail
    assert run.context["fetched"] == {"deep": [1]}


async def test_fetching_in_the_event_loop_is_refused_with_what_to_write_instead() -> None:
    with pytest.raises(InvalidInput, match=r"write `await step\.artifacts\.retrieve\('x'\)`"):
        Artifacts().fetch("x")


def test_artifacts_can_be_used_without_an_engine() -> None:
    """For tests of handlers."""
    kept = Artifacts()
    kept.store("x", "x", {"a": 1})
    assert kept.fetch("x") == {"a": 1}


async def test_an_id_that_is_not_there_is_an_error_that_names_those_that_are(world: World) -> None:
    process = await world.process({"a": [storing(x=1)], "b": [fetching("y")]})
    run = await process.start(line("a", "b"))
    assert run.status is RunStatus.FAILED
    assert "no artifact 'y' in this run; it has x." in run.detail
    with pytest.raises(ArtifactNotFound, match="it has none"):
        Artifacts().remove("x")


@pytest.mark.parametrize(
    ("act", "why"),
    [
        (lambda kept: kept.store("", "n", b""), "cannot be the id"),
        (lambda kept: kept.store("a\nb", "n", b""), "cannot be the id"),
        (lambda kept: kept.store("x" * (ARTIFACT_ID_MAX + 1), "n", b""), "cannot be the id"),
        (lambda kept: kept.store("x", "n", object()), "artifact 'x' is a object"),
        (lambda kept: kept.store("x", "n", float("nan")), "artifact 'x' is nan"),
        (lambda kept: kept.store("x", 1, b""), "the name of artifact 'x' is a int"),
        (
            lambda kept: kept.store("x", "n", bytes(ARTIFACT_BYTES_MAX + 1)),
            "at most 67,108,864 can be stored",
        ),
    ],
)
def test_what_cannot_be_kept_is_refused_when_it_is_stored(act: Callable[[Artifacts], Any], why: str) -> None:
    kept = Artifacts()
    with pytest.raises((InvalidInput, UnstorableValue), match=why):
        act(kept)
    assert not kept.changes


def test_there_is_an_end_to_what_a_step_and_a_run_may_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STEP_BYTES_MAX", 10)
    kept = Artifacts()
    kept.store("x", "x", b"12345678")
    kept.store("x", "x", b"123456789")  # in the place of the first
    with pytest.raises(InvalidInput, match="more than 10 bytes"):
        kept.store("y", "y", b"12")
    full = Artifacts()
    for number in range(ARTIFACTS_MAX):
        full.store(str(number), "n", b"")
    full.store("0", "again", b"")
    with pytest.raises(InvalidInput, match="the most it can have"):
        full.store("one more", "n", b"")


async def test_content_that_is_lost_is_found_by_verify(world: World) -> None:
    if world.kind != "memory":
        return  # only there can content be taken away without a tool of the database's own
    process: Process = await world.process({"a": [storing(x=LARGE)]})
    run = await process.start(line("a"))
    process.store.store.database.blobs.pop(run.artifacts["x"].hash)  # type: ignore[attr-defined]
    (problem,) = (await verify_run(process.store, "run")).problems
    assert "the content of artifact 'x'" in problem
