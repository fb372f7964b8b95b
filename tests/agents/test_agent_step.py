"""Agent steps: answers are recorded, no answered request is made again, failures stop or wait as they say."""

from __future__ import annotations

import contextlib
from collections import Counter
from functools import partial
from typing import Any

import pytest

from onward.agents.model import FinishReason, TokenUsage
from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.agents.step.rounds import CONTINUE
from onward.clock import Clock
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, RunNotFound
from onward.model.call import CallFinished, CallStarted, CallStatus
from onward.model.events import StepStarted
from onward.model.run import AttemptState, RunStatus
from onward.testing.clock import ManualClock, SeededDice
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from onward.testing.scripted_model import ScriptedModel
from tests.conformance.faults import Died, Fault, FaultyStore
from tests.world import Process, World, line

NAME = "openai:small"


class Scripted(ScriptedModel):
    """A scripted model that knows its name, and may continue an answer that broke off."""

    prefill = False

    def takes_prefix(self, model: str) -> bool:
        return self.prefill

    def full_name(self, model: str = "", *, provider: str = "") -> str:
        if model == "unknown":
            raise InvalidInput("no provider has a model 'unknown'.")
        return f"openai:{model or 'small'}"


def model(*rules: ScriptRule, default: str = "Fine.", clock: Clock | None = None) -> Scripted:
    return Scripted(
        ModelScript(rules=rules, default=ScriptedReply(text=default)), clock=clock or ManualClock()
    )


async def at(world: World, scripted: Scripted, **more: Any) -> Process:
    """A process whose agents ask this model."""
    prices = read_prices({NAME: {"input": 1, "output": 2}})
    clock = more.setdefault("clock", ManualClock())
    agent = AgentHandler(scripted, prices, clock, SeededDice(1))
    return await world.process(handlers={"codergen": agent}, **more)


async def calls(process: Process, run_id: str = "run") -> list[CallFinished]:
    return [event for event in await process.events(run_id) if isinstance(event, CallFinished)]


async def test_an_agent_asks_its_model_and_the_answer_is_the_response(world: World) -> None:
    scripted = model(default="Hello.\nSET grade = 5\nNOTE: short")
    process = await at(world, scripted)
    run = await process.start(line("write"))
    assert run.status is RunStatus.COMPLETED
    assert run.context["last_response"] == "Hello."
    assert run.context["grade"] == 5
    (answer,) = await calls(process)
    assert (answer.call, answer.number, answer.status, answer.model) == ("m1", 1, CallStatus.OK, NAME)
    assert answer.usage is not None
    assert answer.cost_micro == answer.usage.input + 2 * answer.usage.output
    assert answer.request_id == "req_1"
    (asked,) = scripted.received
    assert asked.idempotency_key == "run/write#1/m1"
    assert await process.is_sound()


async def test_an_answer_chooses_the_edge_by_its_label(world: World) -> None:
    source = """digraph g { start [shape=Mdiamond] exit [shape=Msquare]
        a [prompt="?"] good [prompt="g"] bad [prompt="b"]
        start -> a  a -> good [label="Yes"]  a -> bad [label="No"]  good -> exit  bad -> exit }"""
    scripted = model(ScriptRule(contains="?", reply=ScriptedReply(text="I think so.\nNEXT: No", chunk=3)))
    process = await at(world, scripted)
    await process.start(source)
    assert await process.completed() == ["start#1", "a#1", "bad#1", "exit#1"]
    assert "Yes, No" in scripted.received[0].request.system


async def test_a_crash_at_any_call_of_the_store_never_asks_an_answered_question_again(world: World) -> None:
    """S2-2, S2-16: on both sides of every commit; the model's own record counts the requests."""
    deaths = 0
    for nth in range(1, 30):
        run_id, scripted = f"run-{nth}", model()
        first = await at(world, scripted, wrap=partial(FaultyStore, fault=Fault.DIE_AFTER, at=nth))
        with contextlib.suppress(Died):
            await first.start(line("a", "b"), run_id)
        if len(first.store.calls) < nth:
            break
        await first.die()
        second = await at(world, scripted)
        try:
            answered = {(e.step, e.call) for e in await calls(second, run_id)}
        except RunNotFound:  # it died before the run existed
            continue
        before = Counter(one.idempotency_key for one in scripted.received)
        run = (await second.load(run_id)).run
        if run.status is not RunStatus.COMPLETED:
            run = await second.resume(run_id)
        assert run.status is RunStatus.COMPLETED
        after = Counter(one.idempotency_key for one in scripted.received)
        keys = [f"{run_id}/{step}/{call}" for step, call in answered]
        assert [after[key] for key in keys] == [before[key] for key in keys]
        assert await second.is_sound(run_id)
        deaths += 1
    assert deaths > 6


async def test_a_lost_request_is_made_again_with_the_same_conversation_and_key(world: World) -> None:
    class Dying(Scripted):
        async def stream(self, request: Any, **how: Any) -> Any:
            async for piece in super().stream(request, **how):
                if len(self.received) == 1:
                    raise Died
                yield piece

    scripted = Dying(ModelScript(default=ScriptedReply(text="Fine.")), clock=ManualClock())
    first = await at(world, scripted)
    with pytest.raises(Died):
        await first.start(line("before", "write"))
    await first.die()
    second = await at(world, scripted)
    run = await second.resume()
    assert run.status is RunStatus.COMPLETED
    lost, again = scripted.received[:2]
    assert (again.request, again.idempotency_key) == (lost.request, lost.idempotency_key)
    tries = [e.number for e in await second.events() if isinstance(e, CallStarted) and e.step == "before#1"]
    assert tries == [1, 2]


async def test_an_answer_that_was_cut_off_by_its_ceiling_is_continued(world: World) -> None:
    cut = ScriptedReply(text="One, two, ", finish_reason=FinishReason.LENGTH)
    scripted = model(ScriptRule(nth=1, reply=cut), ScriptRule(nth=2, reply=ScriptedReply(text="three.")))
    process = await at(world, scripted)
    run = await process.start(line("count"))
    assert run.context["last_response"] == "One, two, three."
    assert [e.call for e in await calls(process)] == ["m1", "m2"]
    said = scripted.received[1].request.messages
    assert [type(message).__name__ for message in said] == ["UserMessage", "AssistantMessage", "UserMessage"]
    assert said[-1].parts[0].text == CONTINUE  # type: ignore[union-attr]


async def test_an_answer_that_cannot_be_read_is_asked_for_once_more(world: World) -> None:
    scripted = model(
        ScriptRule(nth=1, reply=ScriptedReply(text="Done.\nOUTCOME: splendid")),
        default="Done.\nOUTCOME: success",
    )
    process = await at(world, scripted)
    assert (await process.start(line("a"))).status is RunStatus.COMPLETED
    assert "'splendid'" in scripted.received[1].request.messages[-1].parts[0].text  # type: ignore[union-attr]
    hopeless = await at(world, model(default="Done.\nOUTCOME: splendid"))
    run = await hopeless.start(line("a"), "hopeless")
    assert run.status is RunStatus.FAILED
    assert "splendid" in run.detail


async def test_transient_failures_are_tried_again_inside_the_attempt(world: World) -> None:
    scripted = model(
        ScriptRule(nth=1, reply=ScriptedReply(status=503)),
        ScriptRule(nth=2, reply=ScriptedReply(text="half an ans", break_after=1)),
        ScriptRule(nth=3, reply=ScriptedReply(status=500)),
    )
    process = await at(world, scripted)
    run = await process.start(line("a"))
    assert run.status is RunStatus.COMPLETED
    assert [(e.number, e.status.value) for e in await calls(process)] == [
        (1, "error"),
        (2, "error"),
        (3, "error"),
        (4, "ok"),
    ]
    assert run.executions["a"] == 1


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "provider_auth"),
        (402, "provider_credit"),
        (403, "provider_forbidden"),
        (400, "provider_request"),
    ],
)
async def test_a_refusal_of_the_provider_stops_the_run_and_keeps_it_resumable(
    world: World, status: int, reason: str
) -> None:
    scripted = model(ScriptRule(contains="b", times=1, reply=ScriptedReply(status=status)), default="Fine.")
    source = line("a", "b").replace('b [prompt="do it"', 'b [prompt="b"')
    process = await at(world, scripted)
    run = await process.start(source)
    assert (run.status, run.reason) == (RunStatus.FAILED, reason)
    assert len(scripted.received) == 2, "it is not tried again"
    run = await process.resume()
    assert run.status is RunStatus.COMPLETED
    assert len(scripted.received) == 3, "what a answered is not asked again"


async def test_a_provider_that_says_later_is_asked_again_at_that_time(world: World) -> None:
    clock = ManualClock()
    scripted = model(ScriptRule(nth=1, reply=ScriptedReply(status=429, retry_after="120")), clock=clock)
    process = await at(world, scripted, clock=clock)
    run = await process.start(line("a"))
    assert run.status is RunStatus.COMPLETED
    held = [event for event in await process.events() if event.kind == "AttemptHeld"]
    assert [event.reason for event in held] == ["rate_limit"]  # type: ignore[attr-defined]
    assert clock.awake_s() >= 120
    assert run.executions["a"] == 1


async def test_a_worker_gives_the_run_back_until_then(world: World) -> None:
    clock = ManualClock()
    scripted = model(ScriptRule(nth=1, reply=ScriptedReply(status=429, retry_after="120")), clock=clock)
    process = await at(world, scripted, clock=clock)
    pipeline = process.pipeline(line("a"))
    from onward.engine.control.requests import StartRequest

    await process.engine.submit(pipeline, StartRequest(run_id="run", on_owner_loss="requeue"))
    taken = await process.engine.take(StopSwitch())
    assert taken is not None
    run = (await taken[1]).run
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "rate_limit")
    assert run.wake_at_us is not None
    assert run.wake_at_us >= clock.now_us() + 100_000_000


async def test_who_resumes_a_run_that_a_provider_holds_does_not_wait_for_its_time(world: World) -> None:
    clock = ManualClock()
    scripted = model(ScriptRule(nth=1, reply=ScriptedReply(status=429, retry_after="120")), clock=clock)
    process = await at(world, scripted, clock=clock)
    from onward.engine.control.requests import StartRequest

    pipeline = process.pipeline(line("a"))
    await process.engine.submit(pipeline, StartRequest(run_id="run", on_owner_loss="requeue"))
    taken = await process.engine.take(StopSwitch())
    assert taken is not None
    assert (await taken[1]).run.reason == "rate_limit"
    assert (await process.resume()).status is RunStatus.COMPLETED
    assert clock.awake_s() < 100


async def test_a_node_whose_model_no_provider_has_is_refused_before_anything_is_written(world: World) -> None:
    process = await at(world, model())
    with pytest.raises(InvalidInput, match="unknown"):
        await process.start(line("a", a="llm_model=unknown"))
    assert await process.store.runs.find("run") == []


async def test_a_step_keeps_the_model_that_it_was_asked_with(world: World) -> None:
    class Changed(Scripted):
        def full_name(self, model: str = "", *, provider: str = "") -> str:
            return "openai:large"

    first = model(
        ScriptRule(nth=1, reply=ScriptedReply(text="One, ", finish_reason=FinishReason.LENGTH)),
        ScriptRule(nth=2, reply=ScriptedReply(status=401)),
    )
    process = await at(world, first)
    assert (await process.start(line("a"))).reason == "provider_auth"
    second = Changed(ModelScript(default=ScriptedReply(text="two.")), clock=ManualClock())
    run = await (await at(world, second)).resume()
    assert run.context["last_response"] == "One, two."
    assert [one.request.model for one in second.received] == [NAME]


async def test_steps_of_one_thread_continue_one_conversation(world: World) -> None:
    scripted = model(ScriptRule(nth=1, reply=ScriptedReply(text="Blue.")), default="I said blue.")
    attrs = 'fidelity=full, thread_id="talk"'
    process = await at(world, scripted)
    run = await process.start(line("a", "b", a=attrs, b=attrs))
    assert run.status is RunStatus.COMPLETED
    said = [part.text for message in scripted.received[1].request.messages for part in message.parts]  # type: ignore[union-attr]
    assert said[1] == "Blue."
    assert len(said) == 3


async def test_a_signal_stops_an_agent_between_two_requests(world: World) -> None:
    """S1-18, B1-3."""
    stop = StopSwitch(grace_s=None)

    class Stopping(Scripted):
        def stream(self, request: Any, **how: Any) -> Any:
            stop.request("signal") if stop.reason is None else None
            return super().stream(request, **how)

    cut = ScriptRule(nth=1, reply=ScriptedReply(text="One, ", finish_reason=FinishReason.LENGTH))
    scripted = Stopping(ModelScript(rules=(cut,), default=ScriptedReply(text="two.")), clock=ManualClock())
    process = await at(world, scripted)
    run = await process.start(line("a"), stop=stop)
    assert (run.status, run.open_steps["a#1"].state) == (RunStatus.PAUSED, AttemptState.HELD)
    assert len(scripted.received) == 1
    run = await (await at(world, scripted)).resume()
    assert run.context["last_response"] == "One, two."
    assert len(scripted.received) == 2


def test_usage_is_recorded_as_the_provider_counted_it() -> None:
    from onward.agents.step.conversation import usage_of

    counted = TokenUsage(input=10, output=5, cached_input=3, reasoning=2)
    found = usage_of(counted)
    assert (found.input, found.output, found.cached, found.reasoning, found.tokens) == (10, 5, 3, 2, 15)


async def test_a_long_conversation_is_read_again_in_pages_not_message_by_message(world: World) -> None:
    """Its answers are large, so each is stored beside the log, as each message is."""
    rounds, stop = 30, StopSwitch(grace_s=None)

    class Stopping(Scripted):
        def stream(self, request: Any, **how: Any) -> Any:
            if len(self.received) + 1 == rounds:
                stop.request("signal")
            return super().stream(request, **how)

    cuts = [
        ScriptRule(
            nth=nth,
            reply=ScriptedReply(text=f"{nth} " * 3_000, finish_reason=FinishReason.LENGTH, chunk=9_999),
        )
        for nth in range(1, rounds + 1)
    ]
    scripted = Stopping(
        ModelScript(rules=tuple(cuts), default=ScriptedReply(text="end.")), clock=ManualClock()
    )
    await (await at(world, scripted)).start(line("a", a="max_rounds=99"), stop=stop)
    process = await at(world, scripted)
    run = await process.resume()
    assert run.status is RunStatus.COMPLETED
    asked = scripted.received[-1].request.messages
    assert len(asked) == 2 * rounds + 1
    assert [part.text for part in asked[1].parts] == ["1 " * 3_000]  # type: ignore[union-attr]
    assert process.store.calls.count("blobs.find_many") == 1
    assert process.store.calls.count("blobs.find") <= 2  # the pipeline's source


async def test_a_stored_conversation_is_not_degraded_by_a_resume(world: World) -> None:
    """K12 is for sessions outside: the agent after the crash sees what the one before it saw and said."""

    class Dying(Scripted):
        async def stream(self, request: Any, **how: Any) -> Any:
            async for piece in super().stream(request, **how):
                if len(self.received) == 2:
                    raise Died
                yield piece

    attrs = 'fidelity=full, thread_id="talk"'
    scripted = Dying(ModelScript(default=ScriptedReply(text="Fine.")), clock=ManualClock())
    first = await at(world, scripted)
    with pytest.raises(Died):
        await first.start(line("a", "b", a=attrs, b=attrs))
    await first.die()
    second = await at(world, scripted)
    assert (await second.resume()).status is RunStatus.COMPLETED
    started = [event for event in await second.events() if isinstance(event, StepStarted)]
    assert [(one.step, one.fidelity, one.degraded_from) for one in started] == [
        ("a#1", "full", ""),
        ("b#1", "full", ""),
        ("b#1", "full", ""),
    ]
    lost, asked = (one.request.messages for one in scripted.received[1:3])
    assert asked == lost
    assert len(asked) == 3
