"""What steps tell each other: it comes back as it went in, belongs to nobody, and costs what is new."""

from __future__ import annotations

from typing import Any

import pytest

from onward.engine.control.requests import ForkRequest
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, UnstorableValue
from onward.handlers.port import StepContext
from onward.model.events import AttemptFailed, StepFinished, StepStatus
from onward.model.result import LOG_FULL, LOG_LINE_MAX, LOG_LINES_MAX, Result
from onward.model.run import RunStatus
from onward.read.lookup import read_projection
from onward.store.codec import VALUE_BYTES_MAX
from onward.store.port.runs import RunQuery
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
    """K22, B4-5: every type, every value, through the store and into the handler of another process."""
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

    def __repr__(self) -> str:
        return "Thing()"  # part of a test's name, which every process must find the same


@pytest.mark.parametrize(
    "value",
    [Thing(), {1, 2}, b"bytes", (1, 2), float("nan"), float("inf"), 2**64, "\ud800", {1: "x"}, [Thing()]],
    ids=repr,
)
async def test_what_would_not_come_back_is_refused_when_it_is_set(world: World, value: Any) -> None:
    """K22, B4-5: the step that set it fails at once and says which key; it is not worth another try."""
    process = await world.process({"a": [Result(context_updates={"fine": 1, "odd": value})]})
    run = await process.start(line("a", a="max_retries=3"))
    assert run.status is RunStatus.FAILED
    assert "'odd'" in run.detail
    assert "fine" not in run.context
    assert world.ledger.attempts("a") == [1]
    with pytest.raises(UnstorableValue, match="odd"):
        await process.start(line("a"), "another", inputs={"odd": value})
    assert [found.row.id for found in await process.store.runs.find("another")] == []


async def test_nobody_shares_a_value_with_a_step(world: World) -> None:
    """O19: what a handler was shown, or handed over, can be changed later without changing the run. D48."""
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
    """D47."""
    seen: list[dict[str, Any]] = []

    async def look(step: StepContext) -> Result:
        seen.append(step.context)
        return Result.success()

    process = await world.process({"a": [Result(preferred_label="good")], "b": [look]})
    source = line("a", "b").replace("digraph line {", 'digraph line {\n  graph [goal="a story"]')
    await process.start(source)
    assert seen[0]["graph.goal"] == "a story"
    assert (seen[0]["outcome"], seen[0]["preferred_label"]) == ("success", "good")


async def test_every_handler_sees_what_the_steps_before_it_returned(world: World) -> None:
    """D47, D48, D49, P16: merged after each step, before the next one begins; the last word counts."""
    seen: list[dict[str, Any]] = []

    async def look(step: StepContext) -> Result:
        seen.append({key: step.get(key) for key in ("x", "y", "z")})
        return Result.success()

    process = await world.process(
        {
            "a": [Result.success(x=1, y=1)],
            "b": [Result.success(y=2, z={"deep": [None]})],
            "c": [look],
            "d": [Result.fail("no", retryable=False)],
        }
    )
    await process.start(line("a", "b", "c", "d"), inputs={"x": 0})
    assert seen == [{"x": 1, "y": 2, "z": {"deep": [None]}}]


async def test_a_failed_attempt_changes_nothing(world: World) -> None:
    """D49: only a step that has its outcome has changes."""
    failing = Result(status=StepStatus.FAIL, failure_reason="no", context_updates={"x": 1}, retryable=False)
    process = await world.process({"a": [failing]})
    assert "x" not in (await process.start(line("a"))).context


async def test_the_node_at_work_and_its_retries_are_seen_and_stored_nowhere(world: World) -> None:
    """O19: they follow from the run's state, so no event has to repeat them."""
    seen: list[tuple[Any, ...]] = []

    async def look(step: StepContext) -> Result:
        node, count = step.node.id, f"internal.retry_count.{step.node.id}"
        seen.append((step.get("current_node"), step.get(count), step.context["current_node"]))
        assert step.context[count] == step.get(count)
        return Result.retry("again") if node == "b" and step.attempt < 3 else Result.success()

    process = await world.process({"a": [look], "b": [look]})
    run = await process.start(line("a", "b", b="max_retries=2"))
    assert seen == [("a", 0, "a"), ("b", 0, "b"), ("b", 1, "b"), ("b", 2, "b")]
    assert not any("current_node" in r.body or "internal." in r.body for r in await process.log())
    assert not any(key == "current_node" or key.startswith("internal.") for key in run.context)


@pytest.mark.parametrize("key", ["graph.goal", "internal.x", "current_node", "outcome", "preferred_label"])
async def test_a_handler_that_sets_the_engines_keys_fails_and_is_told(world: World, key: str) -> None:
    """D48."""
    process = await world.process({"a": [Result(context_updates={"fine": 1, key: "x"})]})
    run = await process.start(line("a", a="max_retries=3"))
    assert (run.status, "fine" in run.context) == (RunStatus.FAILED, False)
    assert f"the context key {key!r}" in run.detail
    assert world.ledger.attempts("a") == [1]


async def test_neither_a_start_nor_a_fork_sets_the_engines_keys(world: World) -> None:
    process = await world.process()
    with pytest.raises(InvalidInput, match=r"graph\.goal"):
        await process.start(line("a"), inputs={"graph.goal": "another"})
    await process.start(line("a"))
    with pytest.raises(InvalidInput, match=r"internal\.x"):
        await process.engine.fork("run", ForkRequest(1, changes={"internal.x": 1}))
    assert len(await process.store.runs.list(RunQuery())) == 1


async def test_lines_that_a_step_logs_are_stored_with_its_end(world: World) -> None:
    """They are part of the checkpoint: written once, with the attempt that said them, and never changed."""

    async def talk(step: StepContext) -> Result:
        step.log(f"try {step.attempt}")
        step.log("half \ud800 of a character")
        if step.attempt == 1:
            raise ValueError("broken")
        return Result(log=("returned",))

    process = await world.process({"a": [talk]})
    await process.start(line("a", "b", a="max_retries=1"))
    events = await process.events()
    assert [event.log for event in events if isinstance(event, AttemptFailed)] == [
        ("try 1", "half ? of a character")
    ]
    finished = {event.step: event.log for event in events if isinstance(event, StepFinished)}
    assert finished["a#1"] == ("try 2", "half ? of a character", "returned")
    assert finished["b#1"] == ()
    shown = (await read_projection(process.store.log, "run")).steps["a#1"].log
    assert shown == ("try 1", "half ? of a character", "try 2", "half ? of a character", "returned")


async def test_a_step_that_talks_without_end_is_kept_short(world: World) -> None:
    async def talk(step: StepContext) -> Result:
        for number in range(10_000):
            step.log(f"{number} " + "x" * 5_000)
        return Result.success()

    process = await world.process({"a": [talk]})
    await process.start(line("a"))
    (log,) = [e.log for e in await process.events() if isinstance(e, StepFinished) and e.log]
    assert len(log) == LOG_LINES_MAX + 1
    assert (log[0][:4], log[-1]) == ("0 xx", LOG_FULL)
    assert all(len(text) == LOG_LINE_MAX for text in log[:-1])
    assert log[7].endswith("… (5,002 characters)")


async def test_what_is_no_text_is_no_line(world: World) -> None:
    async def talk(step: StepContext) -> Result:
        step.log(7)  # type: ignore[arg-type]
        return Result.success()

    process = await world.process({"a": [talk]})
    assert "a line for the log is a int" in (await process.start(line("a"))).detail


async def test_a_prompt_has_the_goal_in_it_once(world: World) -> None:
    """C22: expanded when the pipeline is read, so a goal that speaks of $goal is left as it is."""
    seen: list[tuple[str, str]] = []

    async def look(step: StepContext) -> Result:
        seen.append((step.prompt, step.goal))
        return Result.success()

    process = await world.process({"a": [look], "b": [look]})
    source = line("a", "b").replace("digraph line {", 'digraph line {\n  goal="say $goal"')
    source = source.replace('a [prompt="do it"', 'a [prompt="now: $goal"')
    source = source.replace('b [prompt="do it"', 'b [label="or: $goal"')
    await process.start(source)
    assert seen == [("now: say $goal", "say $goal"), ("or: say $goal", "say $goal")]


async def test_a_branch_that_changes_only_a_values_type_has_changed_it(world: World) -> None:
    """K22: what a branch found out is told exactly."""
    source = """digraph fan { start [shape=Mdiamond]; exit [shape=Msquare]; f [shape=component]
      j [shape=tripleoctagon]; a [prompt=p]; b [prompt=p]; start -> f; f -> a -> j; f -> b -> j
      j -> exit }"""
    process = await world.process({"a": [Result.success(x=1.0)], "b": [Result.success(x=1)]})
    run = await process.start(source, inputs={"x": 1})
    told = {result["id"]: result["context"] for result in run.context["parallel.results"]}
    assert typed(told) == typed({"a": {"x": 1.0}, "b": {}})
