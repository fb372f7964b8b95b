"""Flows in tests, without a database: steps are played, people answer at once, and days pass in no time.

test = FlowTest(answers={"Ship it?": "yes"}, steps={research: Notes("durable")})
assert await test.run(build.bind("durable")) == Site(...)
await test.check_replays(build.bind("durable"))
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.engine.control.requests import CallbackInterviewer, ForkRequest, Resume, StartRequest
from onward.engine.engine import Engine
from onward.errors import FlowFailed, InvalidInput
from onward.flows.define import Bound, Step
from onward.flows.graphs import GRAPH, GraphResult
from onward.flows.handler import FlowHandler
from onward.handlers.port import Handler, StepContext
from onward.machine.definition import AGENT
from onward.model.call import CallFinished
from onward.model.events import Event
from onward.model.gate import Answer
from onward.model.result import Result
from onward.model.run import Gate, Run, RunStatus
from onward.pipeline.build import build
from onward.pipeline.flow_source import NODE
from onward.store.codec import unseal
from onward.store.memory.adapter import MemoryDatabase
from onward.testing.clock import ManualClock, SeededDice, SeededIds
from onward.testing.script import ModelScript
from onward.testing.scripted_model import ScriptedModel

R = TypeVar("R")
Said = Answer | str | bool


class FlowTest:
    """Runs flows in memory.

    `steps` says what steps do here, by the step or its name: return a value, raise an exception, or what a
    function says; the others run as they are. Agents are played by their keys or names, by a function that
    gets the prompt; or `model` is what a scripted model says to all of them, and their tools are used.
    `graphs` says what graphs leave in their context, by the path or name that the flow gives, or by the key
    of the call: a dict, an exception, or a function that gets the inputs. A key counts before a name.
    `answers` are those of people, by the question or its key.
    """

    def __init__(
        self,
        *,
        answers: Mapping[str, Said] | None = None,
        steps: Mapping[Step[..., Any] | str, Any] | None = None,
        model: ModelScript | None = None,
        graphs: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = model
        self._answers = dict(answers or {})
        self._stands_in = {
            one if isinstance(one, str) else one.name: _function(played)
            for one, played in (steps or {}).items()
        } | {f"{GRAPH}{one}": _graph(_function(played)) for one, played in (graphs or {}).items()}
        self.calls: list[str] = []
        """The keys of the calls that the last flow made, in the order in which they were recorded."""

    async def run(self, bound: Bound[R]) -> R:
        """What the flow returns; FlowFailed if it fails."""
        world = _World(self._stands_in, self._answers, bound, self._model)
        run = await world.finished(await world.begin("run"))
        self.calls = [event.call for _, event in await world.calls("run")]
        return bound.flow.returned(await world.result(run))

    async def check_replays(self, bound: Bound[Any]) -> int:
        """Run the flow, then continue it from every place of its history, as after a crash there.

        AssertionError names the place at which the flow calls something else than its history has. Returns
        how many places were tried.
        """
        world = _World(self._stands_in, self._answers, bound, self._model)
        await world.result(await world.finished(await world.begin("run")))
        calls = await world.calls("run")
        for number, (seq, event) in enumerate(calls):
            forked = await world.engine.fork("run", ForkRequest(seq, new_id=f"replay-{number}"))
            run = await world.finished(await world.resume(forked.run.id))
            if run.status is not RunStatus.COMPLETED:
                raise AssertionError(f"continued after {event.call!r}, the flow fails: {run.detail}")
        self.calls = [event.call for _, event in calls]
        return len(calls)


def _function(played: Any) -> Callable[..., Any]:
    """What stands in for a step's function."""
    if isinstance(played, BaseException) or (isinstance(played, type) and issubclass(played, BaseException)):

        async def fail(*args: Any, **kwargs: Any) -> Any:
            raise played

        return fail
    if isinstance(played, Step):
        return played.function
    if callable(played):
        return played  # type: ignore[no-any-return]

    async def answer(*args: Any, **kwargs: Any) -> Any:
        return played

    return answer


def _graph(played: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in for a graph: a function that says what it leaves in its context."""

    async def run(inputs: Mapping[str, Any]) -> GraphResult:
        context = played(inputs)
        return GraphResult("played", await context if inspect.isawaitable(context) else context)

    return run


def _agents(script: ModelScript | None, clock: ManualClock) -> Handler:
    """What serves agents: a scripted model, or a word about what the test must say."""
    if script is None:
        return _NoAgents()
    model = ScriptedModel(script, clock=clock)
    return AgentHandler(model, read_prices({}), clock, SeededDice(1))


class _NoAgents(msgspec.Struct, frozen=True):
    """Says what a test must say in which a flow asks an agent."""

    keeps_time: bool = False

    async def run(self, step: StepContext) -> Result:
        name = step.node.id
        raise InvalidInput(
            f"the flow calls the agent {name!r}, and the test has no response for it: "
            f"FlowTest(steps={{{name!r}: …}}), or model=ModelScript(…)."
        )


class _Stage:
    """Plays steps. What they really do takes real time, in which the clock of the test does not jump."""

    def __init__(self, stands_in: Mapping[str, Callable[..., Any]], clock: ManualClock) -> None:
        self._stands_in, self._clock = stands_in, clock

    def plays(self, *names: str) -> Callable[..., Any] | None:
        return next((self._stands_in[name] for name in names if name in self._stands_in), None)

    def during(self, work: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        async def in_real_time() -> Any:
            with self._clock.busy():
                return await work()

        return in_real_time


class _World:
    """One flow in a database of its own, in memory."""

    def __init__(
        self,
        stands_in: Mapping[str, Callable[..., Any]],
        answers: Mapping[str, Said],
        bound: Bound[Any],
        model: ModelScript | None,
    ) -> None:
        self._answers, self._bound = answers, bound
        self._people = CallbackInterviewer("test", self._say)
        self._clock = ManualClock()
        handler = FlowHandler(bound.flow, stage=_Stage(stands_in, self._clock))
        self.engine = Engine(
            MemoryDatabase(self._clock.now_us).connect(),
            clock=self._clock,
            ids=SeededIds(1),
            dice=SeededDice(1),
            handlers={bound.flow.kind: handler, AGENT: _agents(model, self._clock)},
        )

    async def begin(self, run_id: str) -> Run:
        flow = self._bound.flow
        pipeline = build(flow.source, file=f"<{flow.name}>", rules=())
        start = StartRequest(run_id=run_id, inputs=self._bound.inputs, interviewer=self._people)
        return (await self.engine.start(pipeline, start)).run

    async def resume(self, run_id: str) -> Run:
        return (await self.engine.resume(run_id, Resume(original=True, interviewer=self._people))).run

    async def finished(self, run: Run) -> Run:
        """The run at its end: questions are answered, and time passes until it is due."""
        while run.status in (RunStatus.WAITING, RunStatus.QUEUED):
            gates = [gate for gate in run.gates.values() if gate.decided is None]
            answer = next((found for gate in gates if (found := self._answer(gate)) is not None), None)
            if answer is not None:
                name, said = answer
                answered = Answer.of(said)
                run = (
                    await self.engine.answer(run.id, answered, by="test", gate=name, interviewer=self._people)
                ).run
                continue
            if run.wake_at_us is None and not gates:
                raise AssertionError(f"the flow waits {run.detail}; the test has no answer: answers={{…}}")
            if run.wake_at_us is None:
                asked = ", ".join(repr(gate.text) for gate in gates)
                raise AssertionError(f"the flow asks {asked}, and the test has no answer: answers={{…}}")
            self._clock.advance(max(0, run.wake_at_us - self._clock.now_us()) / 1_000_000 + 0.001)
            run = await self.resume(run.id)
        return run

    def _say(self, run: Run, gate: Gate) -> Said | None:
        """The answer to a question of a graph that the flow runs."""
        found = self._answer(gate)
        return None if found is None else found[1]

    def _answer(self, gate: Any) -> tuple[str, Said] | None:
        key = gate.gate.partition(":")[2]
        for name in (gate.text, key):
            if name in self._answers:
                return gate.gate, self._answers[name]
        return None

    async def result(self, run: Run) -> Any:
        """What a run has returned as JSON; FlowFailed with the last traceback if it failed."""
        if run.status is RunStatus.COMPLETED:
            return run.context[f"{NODE}.result"]
        outputs = [getattr(event, "output", None) for _, event in await self._events(run.id)]
        where = next((one.traceback for one in reversed(outputs) if one is not None), "")
        raise FlowFailed(run.id, run.status.value, run.reason, run.detail, where)

    async def calls(self, run_id: str) -> list[tuple[int, CallFinished]]:
        return [(seq, one) for seq, one in await self._events(run_id) if isinstance(one, CallFinished)]

    async def _events(self, run_id: str) -> list[tuple[int, Event]]:
        return [(record.seq, unseal(record)) for record in await self.engine.journal.read(run_id)]
