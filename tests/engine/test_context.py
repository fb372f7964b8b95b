"""What steps tell each other: it comes back as it went in, belongs to nobody, and costs what is new."""

from __future__ import annotations

from typing import Any

import pytest

from onward.engine.stop import StopSwitch
from onward.errors import UnstorableValue
from onward.handlers.port import StepContext
from onward.model.event import StepFinished
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.store.codec import VALUE_BYTES_MAX
from tests.world import Process, World, line

EXACT: dict[str, Any] = {
    "zero": 0,
    "one": 1,
    "one as a float": 1.0,
    "true": True,
    "nothing": None,
    "largest": 2**64 - 1,
    "smallest": -(2**63),
    "share": 0.1,
    "tiny": 5e-324,
    "minus zero": -0.0,
    "empty": "",
    "text": 'naïve – ☃ 🜁 \x00 \u2028 \n\t"\\',
    "list": [1, 1.0, True, None, [], {}, "x"],
    "dict": {"a": {"b": [{"c": 1}]}, "": 0, "1": "one"},
    "large": "ü" * (VALUE_BYTES_MAX * 3),
    "large list": list(range(VALUE_BYTES_MAX)),
}


def typed(value: Any) -> Any:
    """A value with its types, so that 1, 1.0 and true are not the same."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return (type(value).__name__, repr(value))


async def paused_with(world: World, updates: dict[str, Any]) -> Process:
    stop = StopSwitch()

    async def tell(step: StepContext) -> Result:
        stop.request("signal")
        return Result(context_updates=updates)

    process = await world.process({"a": [tell]})
    assert (await process.start(line("a", "b"), stop=stop)).status is RunStatus.PAUSED
    return process


async def test_context_comes_back_exactly(world: World) -> None:
    """K22: every type, every value, through the store and into the handler of another process."""
    await paused_with(world, EXACT)
    seen: list[dict[str, Any]] = []

    async def look(step: StepContext) -> Result:
        seen.append(step.context)
        return Result.success()

    process = await world.process({"b": [look]})
    run = await process.resume()
    assert typed({key: seen[0][key] for key in EXACT}) == typed(EXACT)
    assert typed({key: run.context[key] for key in EXACT}) == typed(EXACT)
    assert await process.is_sound()


async def test_a_value_that_changes_its_type_only_is_a_change(world: World) -> None:
    process = await world.process(
        {"a": [Result.success(x=1)], "b": [Result.success(x=1.0)], "c": [Result.success(x=True)]}
    )
    run = await process.start(line("a", "b", "c"))
    assert run.context["x"] is True
    shown = [point["context"].get("x") for point in await process.checkpoints()]
    assert typed(shown[2:5]) == typed([1, 1.0, True])


class Thing:
    """Something JSON knows nothing of."""


@pytest.mark.parametrize(
    "value",
    [Thing(), {1, 2}, b"bytes", (1, 2), float("nan"), float("inf"), 2**64, "\ud800", {1: "x"}, [Thing()]],
    ids=repr,
)
async def test_what_would_not_come_back_is_refused_when_it_is_set(world: World, value: Any) -> None:
    """K22: the step that set it fails at once and says which key; it is not worth another try."""
    process = await world.process({"a": [Result(context_updates={"fine": 1, "odd": value})]})
    run = await process.start(line("a", a="max_retries=3"))
    assert run.status is RunStatus.FAILED
    assert "'odd'" in run.detail
    assert "fine" not in run.context
    assert world.ledger.attempts("a") == [1]
    with pytest.raises(UnstorableValue, match="odd"):
        await process.start(line("a"), "another", inputs={"odd": value})
    assert [found.row.id for found in await process.store.find("another")] == []


async def test_nobody_shares_a_value_with_a_step(world: World) -> None:
    """O19: what a handler was shown, or handed over, can be changed later without changing the run."""
    shared: dict[str, Any] = {"items": [1, 2]}

    async def hand_over(step: StepContext) -> Result:
        return Result(context_updates=shared)

    async def meddle(step: StepContext) -> Result:
        shared["items"].append("meddled")
        step.context["items"].append("meddled")
        step.get("items").append("meddled")
        return Result.success()

    process = await world.process({"a": [hand_over], "b": [meddle]})
    run = await process.start(line("a", "b"), inputs={"given": shared["items"]})
    assert (run.context["items"], run.context["given"]) == ([1, 2], [1, 2])
    assert await process.is_sound()


async def test_a_step_stores_what_it_changed_and_nothing_else(world: World) -> None:
    """O19: a growing conversation costs its growth, not its square."""
    steps, line_bytes = 60, 1_000

    async def talk(step: StepContext) -> Result:
        said = [*step.get("conversation", []), f"{step.step:*<{line_bytes}}"]
        return Result(context_updates={"conversation": said, "text": "".join(said), "same": "x" * 500})

    nodes = [f"n{number}" for number in range(steps)]
    process = await world.process({node: [talk] for node in nodes})
    run = await process.start(line(*nodes))
    assert len(run.context["conversation"]) == steps
    assert len(run.context["text"]) == steps * line_bytes
    sizes = [
        len(r.body) + sum(map(len, r.values.values()))
        for r in await process.log()
        if r.kind == StepFinished.__name__
    ]
    assert max(sizes[2:-1]) < 2 * line_bytes + 600
    assert await process.is_sound()


async def test_a_value_that_is_handed_over_again_unchanged_is_not_stored_again(world: World) -> None:
    big = {"manual": "words " * 10_000}
    process = await world.process({node: [Result(context_updates=big)] for node in "abc"})
    await process.start(line("a", "b", "c"))
    finished = [event for event in await process.events() if isinstance(event, StepFinished)]
    assert [list(event.context) for event in finished[1:4]] == [["manual"], [], []]


async def test_the_engines_own_keys_are_there_for_every_handler(world: World) -> None:
    seen: list[dict[str, Any]] = []

    async def look(step: StepContext) -> Result:
        seen.append(step.context)
        return Result.success()

    process = await world.process({"a": [Result(preferred_label="good")], "b": [look]})
    source = line("a", "b").replace("digraph line {", 'digraph line {\n  graph [goal="a story"]')
    await process.start(source)
    assert seen[0]["graph.goal"] == "a story"
    assert (seen[0]["outcome"], seen[0]["preferred_label"]) == ("success", "good")
