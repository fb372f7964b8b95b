"""Agents as steps of flows: what was answered is not asked again, and what was done is not done again."""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from examples.flow import support
from onward.agents.model import SchemaFormat, ToolCall
from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.agents.tools.port import ToolAnswer, ToolRules, ToolUse
from onward.agents.tools.toolbox import Toolbox
from onward.engine.control.requests import ForkRequest
from onward.errors import FlowFailed, InvalidInput, Refused, RunNotFound, StepFailed
from onward.flows.agents import agent
from onward.flows.branches import gather
from onward.flows.define import Flow, flow, step
from onward.flows.handler import FlowHandler
from onward.model.run import RunStatus
from onward.testing.clock import ManualClock, SeededDice
from onward.testing.flows import FlowTest
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from onward.testing.scripted_model import Received
from tests.agents.asking import at_endpoint
from tests.agents.test_agent_step import NAME, model
from tests.agents.tooling import Act, Counting, Shelf
from tests.conformance.faults import Died, Fault
from tests.flows.living import Outside, answered, begin, called, live, result
from tests.world import Process, World

outside = Outside()
PRICES = {name: {"input": 1, "output": 2} for name in (NAME, "acme:small")}


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    outside.done.clear()


async def asking(world: World, models: Any, *flows: Flow[..., Any]) -> Process:
    """A process that serves these flows, and whose agents ask this model."""
    clock = ManualClock()
    handler = AgentHandler(models, read_prices(PRICES), clock, SeededDice(1))
    served = {one.kind: FlowHandler(one) for one in flows}
    return await world.process(handlers={"codergen": handler, **served}, clock=clock)


async def with_tool(world: World, models: Any, served: Flow[..., Any], act: Act) -> Process:
    """A process whose agents may use the tool `look`, which does this."""
    clock, toolbox = ManualClock(), Toolbox([Shelf([Counting(act=act)])])
    handler = AgentHandler(models, read_prices(PRICES), clock, SeededDice(1), toolbox)
    return await world.process(handlers={"codergen": handler, served.kind: FlowHandler(served)}, clock=clock)


def says(text: str, *, contains: str = "", times: int | None = None) -> ScriptRule:
    return ScriptRule(reply=ScriptedReply(text=text), contains=contains, times=times)


def uses(name: str, arguments: str = "{}", *, contains: str = "", times: int | None = 1) -> ScriptRule:
    """The model wants to use a tool."""
    reply = ScriptedReply(tool_calls=(ToolCall("c1", name, arguments),))
    return ScriptRule(reply=reply, contains=contains, times=times)


def said_last(received: Received) -> str:
    """The last message of a request."""
    part = received.request.messages[-1].parts[0]
    return "" if isinstance(part, ToolCall) else part.text


@dataclass
class Notes:
    topic: str
    facts: list[str]


class Priced(msgspec.Struct):
    """What no schema says whole."""

    cents: int

    def __post_init__(self) -> None:
        if self.cents % 2:
            raise ValueError("it must be even")


def look_up(word: str) -> str:
    """Look a word up."""
    outside.do(f"look_up {word}")
    return f"{word} is a word"


@step(once=True)
async def charge(cents: int) -> str:
    """Charge the customer."""
    outside.do("charge")
    return f"charged {cents}"


async def test_an_agent_answers_in_text_and_its_answer_is_recorded(memory: World) -> None:
    @flow
    async def writing() -> str:
        return await agent("Write a line.", system="You are a poet.")

    scripted = model(default="OUTCOME: fail")
    process = await asking(memory, scripted, writing)
    assert result(await begin(process, writing.bind())) == "OUTCOME: fail"  # no contract of nodes: it is text
    assert await called(process) == ["agent/m1", "agent"]
    (received,) = scripted.received
    assert received.idempotency_key == "run/flow#1/agent/m1"
    assert received.request.system == "You are a poet."
    run = (await process.load()).run
    assert run.cost_micro
    assert await process.is_sound()


async def test_an_agent_answers_with_the_declared_type(memory: World) -> None:
    @flow
    async def noting() -> list[Any]:
        notes = await agent("Note it.", returns=Notes)
        many = await agent("Number it.", returns=list[int])
        return [notes.topic, notes.facts, many]

    scripted = model(
        says('{"topic": "x", "facts": ["a"]}', contains="Note"), says('{"value": [1, 2]}', contains="Number")
    )
    process = await asking(memory, scripted, noting)
    assert result(await begin(process, noting.bind())) == ["x", ["a"], [1, 2]]
    form = scripted.received[1].request.format
    assert isinstance(form, SchemaFormat)
    assert form.schema["type"] == "object"


async def test_an_answer_of_another_type_is_sent_back_with_what_is_wrong(memory: World) -> None:
    @flow
    async def pricing() -> int:
        return (await agent("How much?", returns=Priced)).cents

    scripted = model(says("a lot", times=1), says('{"cents": 3}', times=1), default='{"cents": 4}')
    process = await asking(memory, scripted, pricing)
    assert result(await begin(process, pricing.bind())) == 4
    told = [said_last(one) for one in scripted.received[1:]]
    assert "not JSON" in told[0]
    assert "it must be even" in told[1]


class Odd(msgspec.Struct):
    """Raises what no library expects."""

    cents: int

    def __post_init__(self) -> None:
        if self.cents % 2:
            raise KeyError("odd")


async def test_whatever_a_declared_type_raises_is_sent_back_to_the_model(memory: World) -> None:
    @flow
    async def pricing() -> int:
        return (await agent("How much?", returns=Odd)).cents

    scripted = model(says('{"cents": 3}', times=1), default='{"cents": 4}')
    process = await asking(memory, scripted, pricing)
    assert result(await begin(process, pricing.bind())) == 4
    assert "KeyError" in said_last(scripted.received[-1])


async def test_a_prompt_that_cannot_be_stored_is_refused_in_plain_words(memory: World) -> None:
    @flow
    async def asking_half() -> str:
        return await agent("a\ud83d")

    process = await asking(memory, model(), asking_half)
    run = await begin(process, asking_half.bind())
    assert "the prompt of agent 'agent' contains a lone surrogate" in run.detail


async def test_an_agent_that_never_answers_with_its_type_fails_and_asks_anew_when_it_is_resumed(
    memory: World,
) -> None:
    @flow
    async def pricing() -> int:
        return (await agent("How much?", returns=Priced)).cents

    scripted = model(says("a lot", times=3), default='{"cents": 4}')
    process = await asking(memory, scripted, pricing)
    run = await begin(process, pricing.bind())
    assert run.status is RunStatus.FAILED
    assert "step 'agent' failed: AgentFailed: the response cannot be used" in run.detail
    assert len(scripted.received) == 3
    assert result(await process.resume()) == 4
    assert len(scripted.received) == 4
    assert (await called(process))[-2:] == ["agent~1/m1", "agent"]
    assert scripted.received[3].idempotency_key == "run/flow#1/agent~1/m1"


async def test_a_failed_agent_can_be_caught_and_stays_history(memory: World) -> None:
    @step
    async def shaky() -> str:
        if outside.do("shaky") == 1:
            raise ValueError("not yet")
        return "at last"

    @flow
    async def careful() -> str:
        try:
            return str(await agent("How much?", returns=Priced))
        except StepFailed as error:
            said = f"{error.key} {await agent('Say sorry.', name='sorry')}"
            return f"{said} {await shaky()}"

    scripted = model(says("a lot", times=3), default="Sorry.")
    process = await asking(memory, scripted, careful)
    assert (await begin(process, careful.bind())).status is RunStatus.FAILED
    assert result(await process.resume()) == "agent Sorry. at last"
    assert len(scripted.received) == 4


@flow
async def site() -> list[Any]:
    front, back = await gather(
        agent("Write the front.", tools=[look_up], returns=Notes), agent("Write the back.", tools=[look_up])
    )
    return [front.topic, back, await agent("Sum it up.", name="sum")]


SITE = ["front", "the back", "in sum"]
SCRIPT = (
    says("in sum", contains="Sum it up"),
    uses("look_up", '{"word": "front"}', contains="Write the front", times=None),
    uses("look_up", '{"word": "back"}', contains="Write the back", times=None),
    says('{"topic": "front", "facts": []}', contains="front is a word"),
    says("the back", contains="back is a word"),
)
ANSWERS = {
    *("gather.0/agent/m1", "gather.0/agent/m1.t1", "gather.0/agent/m2", "gather.0/agent"),
    *("gather.1/agent/m1", "gather.1/agent/m1.t1", "gather.1/agent/m2", "gather.1/agent", "sum/m1", "sum"),
}


async def test_two_agents_at_once_are_answered_by_their_keys(memory: World) -> None:
    """F20"""
    process = await asking(memory, model(*SCRIPT), site)
    assert result(await begin(process, site.bind())) == SITE
    assert set(await called(process)) == ANSWERS
    assert outside.done == {"look_up front": 1, "look_up back": 1}
    assert await process.is_sound()


def asked_again(requests: list[str | None], kept: set[str], run_id: str) -> list[str]:
    """The requests that were sent although the log had their answers."""
    prefix = f"{run_id}/flow#1/"
    return [key for one in requests if one and (key := one.removeprefix(prefix)) in kept]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER])
async def test_agents_in_a_flow_killed_at_every_call_ask_nothing_twice(memory: World, fault: Fault) -> None:
    """F20"""
    whole = await asking(memory, model(*SCRIPT), site)
    await begin(whole, site.bind(), "whole")
    for at in range(1, len(whole.store.calls) + 1):
        outside.done.clear()
        run_id = f"run-{at}"
        dying = await asking(memory, model(*SCRIPT), site)
        dying.store.fail(fault, within=at)
        kept: set[str] = set()
        try:
            await begin(dying, site.bind(), run_id)
        except Died:
            await dying.die()
            looking = await asking(memory, model(*SCRIPT), site)
            with contextlib.suppress(RunNotFound):
                kept.update(await answered(looking, run_id))
        done = outside.done.copy()
        scripted = model(*SCRIPT)
        process = await asking(memory, scripted, site)
        assert result(await live(process, site.bind(), run_id)) == SITE
        assert not asked_again([one.idempotency_key for one in scripted.received], kept, run_id)
        for name, key in (("front", "gather.0/agent/m1.t1"), ("back", "gather.1/agent/m1.t1")):
            if key in kept:
                assert outside.done[f"look_up {name}"] == done[f"look_up {name}"]
        assert await process.is_sound(run_id)


async def test_a_fork_in_the_middle_of_an_agent_asks_only_the_rest(memory: World) -> None:
    """F20"""
    process = await asking(memory, model(*SCRIPT), site)
    await begin(process, site.bind())
    scripted = model(*SCRIPT)
    other = await asking(memory, scripted, site)
    await other.engine.fork("run", ForkRequest(from_step="sum", new_id="fork"))
    assert result(await other.resume("fork", original=True)) == SITE
    assert [one.idempotency_key for one in scripted.received] == ["fork/flow#1/sum/m1"]
    await other.engine.fork("run", ForkRequest(from_step="gather.1/agent/m2", new_id="inner"))
    assert result(await other.resume("inner", original=True)) == SITE
    assert "inner/flow#1/gather.1/agent/m2" in [one.idempotency_key for one in scripted.received]
    assert not asked_again(
        [one.idempotency_key for one in scripted.received],
        {"gather.1/agent/m1", "gather.0/agent/m1"},
        "inner",
    )
    assert await other.is_sound("inner")


async def test_requests_at_a_real_endpoint_are_counted_once_through_a_kill(memory: World) -> None:
    async with at_endpoint(ModelScript(rules=SCRIPT)) as (models, endpoint):

        async def serving() -> Process:
            handler = AgentHandler(models, read_prices(PRICES), ManualClock(), SeededDice(1))
            return await memory.process(handlers={"codergen": Named(handler), site.kind: FlowHandler(site)})

        dying = await serving()
        dying.store.fail(Fault.DIE_AFTER, within=9)
        with pytest.raises(Died):
            await begin(dying, site.bind())
        await dying.die()
        await endpoint.until_idle()
        looking = await serving()
        kept = set(await answered(looking, "run"))
        assert result(await live(looking, site.bind())) == SITE
        sent = Counter(entry.idempotency_key for entry in endpoint.ledger.entries)
        requests = [key for key in kept if re.fullmatch(r".*/m\d+", key)]
        assert requests
        assert {key: sent[f"run/flow#1/{key}"] for key in requests} == dict.fromkeys(requests, 1)


class Named:
    """A handler of agents whose model is that of the endpoint, unless they name one."""

    keeps_time = False

    def __init__(self, handler: AgentHandler) -> None:
        self._handler = handler

    async def run(self, step: Any) -> Any:
        attrs = {"llm_model": "acme:small", **step.node.attrs}
        step.node = type(step.node)(step.node.id, attrs)
        return await self._handler.run(step)


@flow
async def selling() -> str:
    return await agent("Sell it.", tools=[charge, look_up])


async def killed_in_the_tool(memory: World) -> None:
    """The process dies in the middle of the charge."""
    dying = await asking(memory, model(uses("charge", '{"cents": 5}'), default="Sold."), selling)

    async def die(cents: int) -> str:
        """Charge the customer."""
        outside.do("charge")
        dying.store.is_dead = True
        raise Died("in the middle")

    function, charge.function = charge.function, die
    try:
        with pytest.raises(Died):
            await begin(dying, selling.bind())
    finally:
        charge.function = function
    await dying.die()


@pytest.mark.parametrize("action", ["retry", "continue", "skip"])
async def test_a_tool_in_doubt_is_settled_by_a_person(memory: World, action: str) -> None:
    await killed_in_the_tool(memory)
    scripted = model(default="Sold.")
    process = await asking(memory, scripted, selling)
    with pytest.raises(Refused) as refused:
        await process.resume()
    assert refused.value.code == "in_doubt"
    assert refused.value.details["calls"] == ["agent/m1.t1"]
    how: dict[str, Any] = {"answers": {"agent/m1.t1": "charged by hand"}} if action == "continue" else {}
    run = await process.resume(action=action, **how)
    assert result(run) == "Sold."
    assert outside.done["charge"] == (2 if action == "retry" else 1)
    (received,) = scripted.received  # the request before the tool is not sent again
    told = said_last(received)
    assert told == {"retry": "charged 5", "continue": "charged by hand"}.get(action, told)
    if action == "skip":
        assert "Nobody knows whether this was done" in told
    assert await process.is_sound()


async def test_an_agent_that_charged_and_failed_goes_on_with_its_conversation(memory: World) -> None:
    refusing = ScriptRule(reply=ScriptedReply(refusal="No more."), contains="charged 5", times=1)
    scripted = model(refusing, uses("charge", '{"cents": 5}'), default="Sold.")
    process = await asking(memory, scripted, selling)
    run = await begin(process, selling.bind())
    assert run.status is RunStatus.FAILED
    assert result(await process.resume()) == "Sold."
    assert outside.done["charge"] == 1
    assert "do not repeat it" in said_last(scripted.received[-1])


async def test_what_an_agent_is_allowed_is_asked_beside_a_branch_that_works(memory: World) -> None:
    going = asyncio.Event()

    @step
    async def slow() -> str:
        await going.wait()
        return "slow"

    @flow
    async def both() -> list[Any]:
        return list(await gather(slow(), agent("Sell it.", tools=["charge", "refund"])))

    clock = ManualClock()
    scripted = model(
        ScriptRule(
            reply=ScriptedReply(tool_calls=(ToolCall("c1", "charge", "{}"), ToolCall("c2", "refund", "{}"))),
            times=1,
        ),
        default="Sold.",
    )
    tools = [Counting(name, ToolRules(approval=True)) for name in ("charge", "refund")]
    handler = AgentHandler(scripted, read_prices(PRICES), clock, SeededDice(1), Toolbox([Shelf(tools)]))

    async def serving() -> Process:
        return await memory.process(handlers={"codergen": handler, both.kind: FlowHandler(both)}, clock=clock)

    process, other = await serving(), await serving()
    running = asyncio.create_task(begin(process, both.bind()))

    async def asked() -> list[str]:
        try:
            return list((await other.load()).run.gates)
        except RunNotFound:
            return []

    while len(await asked()) < 2:  # noqa: ASYNC110 - another process appends them
        await asyncio.sleep(0)
    going.set()
    run = await running
    assert run.status is RunStatus.WAITING
    assert [gate.text for gate in run.gates.values()] == ["May agent use charge?", "May agent use refund?"]
    first, second = run.gates
    run = (await process.engine.answer("run", "yes", by="ann", gate=first)).run
    assert run.status is RunStatus.WAITING
    assert tools[0].done.total() == 0  # nothing is done before every approval is decided
    run = (await process.engine.answer("run", "no", by="ann", gate=second)).run
    assert result(run) == ["slow", "Sold."]
    assert (tools[0].done.total(), tools[1].done.total()) == (1, 0)
    assert await process.is_sound()


async def test_a_limit_stops_the_flow_at_its_agent_and_a_raised_one_continues_it(memory: World) -> None:
    scripted = model(*SCRIPT)
    process = await asking(memory, scripted, site)
    await process.store.limits.change("run/run", {"calls": 2})
    run = await begin(process, site.bind())
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "limit")
    assert len(scripted.received) == 2
    await process.store.limits.change("run/run", {"calls": 9})
    assert result(await process.resume()) == SITE
    assert len(scripted.received) == 5


async def test_an_agent_whose_prompt_changed_is_refused(memory: World) -> None:
    words = iter(["Write.", "Draw."])

    @flow
    async def fickle() -> str:
        first = await agent(next(words))
        return first + await broken()

    @step
    async def broken() -> str:
        raise ValueError("no")

    process = await asking(memory, model(), fickle)
    assert (await begin(process, fickle.bind())).status is RunStatus.FAILED
    run = await process.resume()
    assert run.reason == "flow_changed"
    assert "'agent' was called with" in run.detail


async def test_without_a_provider_the_flow_says_what_to_set(memory: World) -> None:
    process = await memory.process(handlers={site.kind: FlowHandler(site)})
    run = await begin(process, site.bind())
    assert run.status is RunStatus.FAILED
    assert "is an agent and no model provider is set up" in run.detail


async def test_an_agent_outside_a_flow_or_inside_a_step_is_refused(memory: World) -> None:
    with pytest.raises(InvalidInput, match="only inside a flow"):
        await agent("Write.")

    @step
    async def inner() -> str:
        return await agent("Write.")

    @flow
    async def nesting() -> str:
        return await inner()

    process = await asking(memory, model(), nesting)
    run = await begin(process, nesting.bind())
    assert "does not work inside a step" in run.detail


async def test_a_tool_without_a_docstring_is_refused_with_its_name(memory: World) -> None:
    def mute(word: str) -> str:
        return word

    @flow
    async def asks() -> str:
        return await agent("Write.", tools=[mute])

    process = await asking(memory, model(), asks)
    run = await begin(process, asks.bind())
    assert "the tool 'mute' has no docstring" in run.detail


async def test_agents_are_played_in_a_flow_test() -> None:
    @flow
    async def writing() -> list[str]:
        notes = await agent("Note it.", returns=Notes, name="notes")
        return [notes.topic, await agent("Write.")]

    test = FlowTest(steps={"notes": Notes("x", []), "agent": lambda prompt: f"wrote: {prompt}"})
    assert await test.run(writing.bind()) == ["x", "wrote: Write."]
    assert await test.check_replays(writing.bind()) == 2
    with pytest.raises(FlowFailed, match=r"steps=\{'notes'"):
        await FlowTest().run(writing.bind())


async def test_a_flow_test_may_have_a_scripted_model() -> None:
    script = ModelScript(rules=SCRIPT)
    test = FlowTest(model=script)
    assert await test.run(site.bind()) == SITE
    assert await test.check_replays(site.bind()) == 10
    assert set(test.calls) == ANSWERS


async def test_the_example_answers_a_customer() -> None:
    script = ModelScript(
        rules=(
            says("angry", contains="mood"),
            uses("find_order", '{"number": "17"}', contains="Decide", times=None),
            says('{"refund_cents": 9000, "letter": "Dear Ann"}', contains="a lamp"),
        )
    )
    test = FlowTest(model=script, steps={support.refund: "sent"}, answers={"So much?": "yes"})
    with contextlib.chdir(tempfile.mkdtemp()):
        assert await test.run(support.answer.bind("My lamp of order 17 broke!")) == "Dear Ann (angry; sent)"
        assert await test.check_replays(support.answer.bind("My lamp broke!")) == 8


@pytest.mark.parametrize("key", ["page", "page/1", "a~1/b"])
async def test_a_call_that_a_tool_records_is_the_agents_whatever_its_key(memory: World, key: str) -> None:
    """A key with a slash was taken for a call of the flow, whose resume was refused for ever."""

    async def fetch() -> str:
        return f"fetched {outside.do('fetch')}"

    async def act(use: ToolUse) -> ToolAnswer:
        return ToolAnswer(await use.step.call(key, fetch))

    @step
    async def flaky() -> str:
        if outside.do("flaky") == 1:
            raise OSError("not yet")
        return "done"

    @flow
    async def looking() -> list[str]:
        return [await agent("Look.", tools=["look"]), await flaky()]

    scripted = model(uses("look"), default="Seen.")
    process = await with_tool(memory, scripted, looking, act)
    assert (await begin(process, looking.bind())).status is RunStatus.FAILED
    assert result(await process.resume()) == ["Seen.", "done"]
    assert outside.done == {"fetch": 1, "flaky": 2}
    assert await process.is_sound()


async def test_an_effect_of_a_tool_is_not_repeated_when_its_agent_is_tried_anew(memory: World) -> None:
    """Its key is the tool's own, and lasts as long as the flow; positional calls begin anew."""

    async def pay() -> str:
        return f"paid {outside.do('pay')}"

    async def look_again() -> str:
        return f"looked {outside.do('look')}"

    async def act(use: ToolUse) -> ToolAnswer:
        seen = await use.step.call("seen", look_again)
        return ToolAnswer(f"{await use.step.effect('order-17', pay)}, {seen}")

    @flow
    async def paying() -> int:
        return await agent("Pay.", returns=int, tools=["look"])

    scripted = model(
        uses("look"),
        says("nonsense", times=3),
        uses("look"),
        default='{"value": 17}',
    )
    process = await with_tool(memory, scripted, paying, act)
    assert (await begin(process, paying.bind())).status is RunStatus.FAILED
    assert result(await process.resume()) == 17
    assert outside.done == {"pay": 1, "look": 2}
    assert said_last(scripted.received[-1]) == "paid 1, looked 2"
    assert await process.is_sound()


async def test_an_answer_counts_only_for_the_question_that_was_put(memory: World) -> None:
    """A tool that asks something else under the same key was taken to be allowed by the answer."""

    async def act(use: ToolUse) -> ToolAnswer:
        cents = 5 if outside.do("asked") == 1 else 5_000_000
        decision = await use.step.ask("sure", f"Send back {cents} cents?", choices=["yes", "no"])
        return ToolAnswer(f"{decision.choice} to {cents}")

    @flow
    async def refunding() -> str:
        return await agent("Refund.", tools=["look"])

    scripted = model(uses("look"), default="Done.")
    process = await with_tool(memory, scripted, refunding, act)
    running = asyncio.create_task(begin(process, refunding.bind()))
    while not outside.done["asked"] or not (await process.load()).run.gates:  # noqa: ASYNC110 - it appends them
        await asyncio.sleep(0)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await process.engine.answer("run", "yes", by="ann")
    run = await process.resume()
    assert "yes to 5000000" not in [said_last(one) for one in scripted.received]
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed"), (run.status, run.reason, run.detail)
    assert "asks a different question under" in run.detail
    assert await process.is_sound()


async def test_a_tool_that_asks_a_person_holds_no_process(memory: World) -> None:
    """The use of the tool was under way, so the run stayed running until somebody answered."""

    async def act(use: ToolUse) -> ToolAnswer:
        outside.do("used")
        return ToolAnswer((await use.step.ask("sure", "Send it back?", choices=["yes", "no"])).choice)

    @flow
    async def refunding() -> list[str]:
        return list(await gather(agent("Refund.", tools=["look"]), agent("Wait.", name="other")))

    scripted = model(uses("look", contains="Refund"), default="Done.")
    process = await with_tool(memory, scripted, refunding, act)
    async with asyncio.timeout(10):
        run = await begin(process, refunding.bind())
    assert (run.status, list(run.gates)) == (RunStatus.WAITING, ["flow#1:gather.0/agent/sure"])
    assert result((await process.engine.answer("run", "yes", by="ann")).run) == ["Done.", "Done."]
    assert outside.done == {"used": 2}
    assert len(scripted.received) == 3
    assert await process.is_sound()
