"""The Python surface: what a program does that runs pipelines by itself."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from onward import Onward, Result, Run, RunStatus, StepContext, StopSwitch
from onward.errors import InvalidInput, InvalidPipeline, Refused, UnknownHandler
from onward.model.ids import display_id
from onward.pipeline.graph import Graph
from onward.store.port.store import Store
from tests.test_pause import GATED
from tests.world import line

GREET = line("a", a="type=greet")


@pytest.fixture
def app(store: Store) -> Onward:
    return Onward(store)


async def test_a_registered_function_is_an_effect(app: Onward) -> None:
    """Async functions and others; a dict, a text, a Result or nothing. P21, D23, D46."""

    @app.handler("greet")
    async def greet(step: StepContext) -> dict[str, Any]:
        return {"greeting": f"hello {step.get('name')}"}

    @app.handler("shout")
    def shout(step: StepContext) -> str:
        return str(step.get("greeting")).upper()

    @app.handler("sigh")
    def sigh(step: StepContext) -> Result:
        return Result.success(sighed=True)

    @app.handler("rest")
    def rest(step: StepContext) -> None:
        return None

    source = line("a", "b", "c", "d", a="type=greet", b="type=shout", c="type=sigh", d="type=rest")
    run = await app.run(await app.pipeline(source, name="hello"), inputs={"name": "you"})
    assert run.status is RunStatus.COMPLETED
    assert (run.context["greeting"], run.context["last_response"]) == ("hello you", "HELLO YOU")
    assert run.context["sighed"] is True


async def test_a_pipeline_is_read_from_a_file(app: Onward, tmp_path: Path) -> None:
    path = tmp_path / "simulated.dot"
    await asyncio.to_thread(path.write_text, line("a"))
    run = await app.run(str(path), simulate=True, run_id="mine")
    assert (run.id, run.path, run.status) == ("mine", str(path), RunStatus.COMPLETED)
    with pytest.raises(InvalidInput, match="cannot read the pipeline"):
        await app.run(str(tmp_path / "absent.dot"))


async def test_a_stopped_run_goes_on(app: Onward) -> None:
    stop, greeted = StopSwitch(), []

    @app.handler("greet")
    async def greet(step: StepContext) -> None:
        greeted.append(step.step)

    stop.request("signal")
    paused = await app.run(await app.pipeline(GREET), stop=stop)
    assert (paused.status, greeted) == (RunStatus.PAUSED, [])
    assert (await app.resume(paused.id)).status is RunStatus.COMPLETED
    assert greeted == ["a#1"]
    assert (await app.get(paused.id)).status is RunStatus.COMPLETED


async def test_a_program_says_what_a_call_in_doubt_answered(app: Onward) -> None:
    made: list[str] = []

    @app.handler("pay")
    async def pay(step: StepContext) -> dict[str, Any]:
        async def charge() -> Any:
            made.append("charge")
            return object()

        return {"got": await step.call("charge", charge, repeatable=False)}

    run = await app.run(await app.pipeline(line("a", a="type=pay")))
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    with pytest.raises(InvalidInput, match="'chrge' is not in doubt"):
        await app.resume(run.id, action="continue", call_answers={"chrge": 1})
    run = await app.resume(run.id, action="continue", call_answers={"charge": Decimal("1.5")})
    assert (run.status, run.context["got"], made) == (RunStatus.COMPLETED, "1.5", ["charge"])


async def test_a_gate_is_answered_by_a_program(app: Onward) -> None:
    waiting = await app.run(await app.pipeline(GATED), simulate=True)
    assert waiting.status is RunStatus.WAITING
    assert (await app.answer(waiting.id, "yes")).status is RunStatus.COMPLETED


async def test_gates_are_answered_by_a_registered_interviewer(app: Onward) -> None:
    @app.interviewer("twice no")
    async def ask(run: Run, gate: Any) -> str:
        return "no" if run.visits["ask"] < 3 else "yes"

    run = await app.run(await app.pipeline(GATED), simulate=True, answers="twice no")
    assert (run.status, run.visits["work"]) == (RunStatus.COMPLETED, 3)


async def test_an_interviewer_that_nobody_registered_is_refused_before_anything_begins(app: Onward) -> None:
    with pytest.raises(InvalidInput, match="there is no interviewer 'boss'; registered: auto"):
        await app.run(await app.pipeline(GATED), simulate=True, run_id="run", answers="boss")
    assert list(await (await app.engine()).store.runs.find("run")) == []


async def test_a_script_that_is_none_is_refused_before_anything_begins(app: Onward) -> None:
    with pytest.raises(InvalidInput, match=r"the simulation script: a\[0\]: Object contains unknown"):
        await app.run(await app.pipeline(line("a")), simulate={"a": [{"statuss": "fail"}]}, run_id="run")
    assert list(await (await app.engine()).store.runs.find("run")) == []


async def test_a_script_plays_the_agents(app: Onward) -> None:
    script = {"a": [{"status": "retry"}, {"context_updates": {"x": 1}, "text": "well"}]}
    run = await app.run(await app.pipeline(line("a", a="max_retries=1")), simulate=script)
    assert (run.context["x"], run.context["last_response"]) == (1, "well")


async def test_a_run_is_replayed_from_a_checkpoint(app: Onward) -> None:
    run = await app.run(await app.pipeline(line("a")), simulate=True)
    again = await app.replay(run.id, 1, changes={"tone": "formal"})
    assert (again.status, again.context["tone"]) == (RunStatus.COMPLETED, "formal")
    assert again.parent is not None
    assert again.parent.run_id == run.id


async def test_an_edited_pipeline_is_replayed_from_before_a_step(app: Onward, tmp_path: Path) -> None:
    path = tmp_path / "edited.dot"
    await asyncio.to_thread(path.write_text, line("a", "b"))
    run = await app.run(str(path), simulate=True)
    await asyncio.to_thread(path.write_text, line("a", "b", "c"))
    with pytest.raises(Refused, match="changed: b, c") as refused:
        await app.replay(run.id, from_step="b")
    assert refused.value.code == "pipeline_changed"
    again = await app.replay(run.id, from_step="b", accept_changes=True)
    assert (again.status, "c" in again.outcomes) == (RunStatus.COMPLETED, True)
    original = await app.replay(run.id, from_step="b", original=True)
    assert (original.status, "c" in original.outcomes) == (RunStatus.COMPLETED, False)


async def test_a_run_is_paused_and_cancelled(app: Onward) -> None:
    waiting = await app.run(await app.pipeline(GATED), simulate=True)
    assert (await app.pause(waiting.id)).status is RunStatus.PAUSED
    assert (await app.cancel(waiting.id)).status is RunStatus.CANCELLED


async def test_a_transform_changes_what_is_run(app: Onward) -> None:
    @app.transform
    def retype(graph: Graph) -> Graph:
        nodes = {
            n: node.with_attrs({"type": "greet"}) if n == "a" else node for n, node in graph.nodes.items()
        }
        return Graph(name=graph.name, attrs=graph.attrs, nodes=nodes, edges=graph.edges, file=graph.file)

    @app.handler("greet")
    async def greet(step: StepContext) -> dict[str, Any]:
        return {"greeted": True}

    assert (await app.run(await app.pipeline(line("a")))).context["greeted"] is True


async def test_what_nobody_can_do_is_refused_before_anything_begins(app: Onward) -> None:
    with pytest.raises(UnknownHandler, match="'greet'"):
        await app.run(await app.pipeline(GREET), run_id="run")
    with pytest.raises(InvalidInput, match="--simulate"):
        await app.run(await app.pipeline(line("a")), run_id="run")
    with pytest.raises(InvalidPipeline):
        await app.pipeline("digraph { a -> }")
    with pytest.raises(InvalidInput, match="needs a type"):
        app.handler("")
    assert list(await (await app.engine()).store.runs.find("run")) == []


async def test_an_app_opens_its_store_once_however_many_ask_at_once(tmp_path: Path) -> None:
    async with Onward(str(tmp_path / "runs.db")) as app:
        engines = await asyncio.gather(*(app.engine() for _ in range(5)))
        assert len({id(engine) for engine in engines}) == 1
        run = await app.run(await app.pipeline(line("a")), simulate=True)
    async with Onward(str(tmp_path / "runs.db")) as again:
        assert (await again.get(run.id)).status is RunStatus.COMPLETED


async def test_a_run_whose_caller_gave_up_can_be_resumed_after_the_app_was_closed(tmp_path: Path) -> None:
    """Closing lets go of what nobody drives any more, though the process lives on."""
    app, entered = Onward(str(tmp_path / "runs.db")), asyncio.Event()

    @app.handler("greet")
    async def greet(step: StepContext) -> None:
        entered.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(app.run(await app.pipeline(GREET), run_id="run"))
    await entered.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await app.close()
    other = Onward(str(tmp_path / "runs.db"))

    @other.handler("greet")
    async def greet_quickly(step: StepContext) -> None:
        return None

    async with other:
        assert (await other.get("run")).status is RunStatus.INTERRUPTED
        assert (await other.resume("run")).status is RunStatus.COMPLETED


async def test_the_log_of_a_run_can_be_read_in_the_dialects_names(tmp_path: Path) -> None:
    """Dialect §18: the same events, under the names that other implementations use."""
    async with Onward(str(tmp_path / "runs.db")) as app:
        pipeline = await app.pipeline(
            "digraph g { start [shape=Mdiamond]; exit [shape=Msquare]; start -> exit }"
        )
        run = await app.run(pipeline)
        names = [event.name async for event in app.dialect_events(run.id)]
    assert (names[0], names[-1]) == ("PipelineStarted", "PipelineCompleted")
    assert names.count("StageCompleted") == 2


async def test_a_lease_that_no_renewal_could_keep_alive_is_refused() -> None:
    app = Onward(":memory:")
    app.lease_s = 0.001
    with pytest.raises(InvalidInput, match=r"lease_s is 0.001, which is not a number of seconds from 1 to"):
        await app.engine()


async def test_a_pipeline_is_a_path_or_a_text(app: Onward, tmp_path: Path) -> None:
    """Both for `run` and for `pipeline`; what is wrong names what was given."""
    file = tmp_path / "work.dot"
    file.write_text(line("a"))
    assert (await app.run(line("a"), simulate=True)).status == "completed"
    assert (await app.run(await app.pipeline(str(file)), simulate=True)).path == str(file)
    with pytest.raises(InvalidInput, match=r"cannot read the pipeline none\.dot: there is no such file"):
        await app.pipeline("none.dot")
    with pytest.raises(InvalidPipeline, match="<pipeline>:1"):
        await app.run("digraph { a -> }")


async def test_a_run_knows_its_display_id(app: Onward) -> None:
    run = await app.run(line("a"), simulate=True)
    assert run.display_id == display_id(run.id)
