"""Agents with tools: what was done is never done again, and the model sees what came of every call."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from functools import partial
from typing import Any

import pytest

from onward.agents.model import Message, TokenUsage, ToolChoice, ToolMessage, ToolResult, UserMessage, user
from onward.agents.step.rounds import LOOPING, UNUSED
from onward.agents.tools.port import ToolAnswer, ToolRefused, ToolRules, ToolUse
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, Refused, RunNotFound, StoreError
from onward.machine.decide.calls import calls_in_doubt
from onward.model.call import CallFinished, CallKind, CallStarted
from onward.model.gate import Answer
from onward.model.run import AttemptState, Run, RunStatus
from onward.testing.clock import ManualClock
from onward.testing.script import ScriptedReply, ScriptRule
from tests.agents.test_agent_step import Scripted, calls, model
from tests.agents.tooling import Counting, asks, wish, working
from tests.conformance.faults import Died, Fault, FaultyStore
from tests.world import Process, World, line

ONCE = ToolRules(repeatable=False)
ASKED = ToolRules(repeatable=False, approval=True)
SOURCE = line("work")


def shown(scripted: Scripted, at: int = -1) -> list[ToolResult]:
    """What a request shows of the tools, at its end."""
    return results(scripted.received[at].request.messages)


def results(messages: tuple[Message, ...]) -> list[ToolResult]:
    last = next(one for one in reversed(messages) if isinstance(one, ToolMessage))
    return list(last.parts)


async def test_the_model_sees_what_its_tool_answered_and_the_step_has_its_result(world: World) -> None:
    scripted = model(asks(wish(arguments='{"for": "x"}'), text="Let me see."), default="It is 42.")
    process = await working(world, scripted, tool := Counting())
    run = await process.start(SOURCE)
    assert run.status is RunStatus.COMPLETED
    assert run.context["last_response"] == "It is 42."  # not what it said before it knew
    assert tool.seen == [{"for": "x"}]
    assert shown(scripted) == [ToolResult("c1", "look found 42")]
    assert [(one.name, one.parameters) for one in scripted.received[0].request.tools] == [
        ("look", {"type": "object"})
    ]
    found = [(one.call, one.type, one.name, one.about) for one in await calls(process)]
    assert found == [
        ("m1", "model", "openai:small", ""),
        ("m1.t1", "tool", "look", '{"for": "x"}'),
        ("m2", "model", "openai:small", ""),
    ]
    assert await process.is_sound()


async def test_an_agent_has_only_the_tools_that_its_node_allows(world: World) -> None:
    scripted = model(asks(wish("secret")))
    tools = Counting("look"), Counting("secret")
    process = await working(world, scripted, *tools)
    run = await process.start(line("work", work='allowed_tools="look"'))
    assert run.status is RunStatus.COMPLETED
    assert [one.name for one in scripted.received[0].request.tools] == ["look"]
    assert shown(scripted) == [ToolResult("c1", "There is no tool 'secret'. Tools: look.", is_error=True)]
    assert not tools[1].begun
    with pytest.raises(InvalidInput, match="node 'work' allows the tool 'loook', which does not exist"):
        await process.start(line("work", work='allowed_tools="loook"'), "other")


async def test_calls_of_one_answer_run_at_the_same_time_and_are_answered_in_order(world: World) -> None:
    both = asyncio.Barrier(2)

    async def meet(use: ToolUse) -> ToolAnswer:
        await both.wait()
        return ToolAnswer(str(use.arguments["n"]))

    scripted = model(asks(wish(arguments='{"n": 1}', id="a"), wish(arguments='{"n": 2}', id="b")))
    process = await working(world, scripted, Counting(act=meet))
    await process.start(SOURCE)
    assert shown(scripted) == [ToolResult("a", "1"), ToolResult("b", "2")]


async def test_a_tool_that_must_run_alone_does(world: World) -> None:
    under_way, most = 0, 0

    async def alone(use: ToolUse) -> ToolAnswer:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return ToolAnswer("fine")

    scripted = model(asks(*(wish(id=f"c{n}") for n in range(3))))
    tool = Counting(act=alone, rules=ToolRules(is_concurrent=False))
    await (await working(world, scripted, tool)).start(SOURCE)
    assert most == 1
    assert [one.call_id for one in shown(scripted)] == ["c0", "c1", "c2"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "The arguments are not JSON"),
        ("[1]", "The arguments are not a JSON object."),
        ("[" * 100_000, "The arguments are not JSON"),
    ],
)
async def test_arguments_that_are_none_are_told_and_nothing_is_done(
    world: World, arguments: str, said: str
) -> None:
    scripted = model(asks(wish(arguments=arguments)))
    process = await working(world, scripted, tool := Counting())
    assert (await process.start(SOURCE)).status is RunStatus.COMPLETED
    (result,) = shown(scripted)
    assert result.is_error
    assert result.text.startswith(said)
    assert not tool.begun


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ToolRefused("not there"), "not there"),
        (OSError("gone"), "OSError: gone"),
        (asyncio.CancelledError(), "The tool cancelled itself."),
    ],
)
async def test_an_error_of_a_tool_is_an_answer_that_the_model_sees(
    world: World, error: BaseException, said: str
) -> None:
    async def fail(use: ToolUse) -> ToolAnswer:
        raise error

    scripted = model(asks(wish()))
    process = await working(world, scripted, tool := Counting(act=fail, rules=ONCE))
    assert (await process.start(SOURCE)).status is RunStatus.COMPLETED
    assert shown(scripted) == [ToolResult("c1", said, is_error=True)]
    assert tool.begun.total() == 1


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER])
async def test_a_crash_at_any_call_of_the_store_repeats_nothing_that_was_answered(
    world: World, fault: Fault
) -> None:
    """Counted by the model and by the tools themselves, on both sides of every commit."""
    deaths = 0
    for nth in range(1, 60):
        run_id = f"run-{nth}"
        scripted = model(
            ScriptRule(contains="look found", reply=ScriptedReply(tool_calls=(wish("check"),))),
            ScriptRule(contains="check found", reply=ScriptedReply(text="Done.")),
            ScriptRule(reply=ScriptedReply(tool_calls=(wish("look", id="a"), wish("pay", id="b")))),
        )
        tools = Counting("look"), Counting("pay", ONCE), Counting("check")
        first = await working(world, scripted, *tools, wrap=partial(FaultyStore, fault=fault, at=nth))
        with contextlib.suppress(Died):
            await first.start(SOURCE, run_id)
        if len(first.store.calls) < nth:
            break
        await first.die()
        second = await working(world, scripted, *tools)
        try:
            run = (await second.load(run_id)).run
            answered = {one.call for one in await calls(second, run_id)}
        except RunNotFound:
            continue
        before = Counter(one.idempotency_key for one in scripted.received)
        used = tools[0].begun + tools[1].begun + tools[2].begun
        is_stated = bool(payments_in_doubt(run))
        if run.status is not RunStatus.COMPLETED:
            decided: dict[str, Any] = (
                {"action": "continue", "answers": {"m1.t2": "paid"}} if is_stated else {}
            )
            run = await second.resume(run_id, **decided)
        assert run.status is RunStatus.COMPLETED, (nth, run.reason)
        after = Counter(one.idempotency_key for one in scripted.received)
        now_used = tools[0].begun + tools[1].begun + tools[2].begun
        for call in answered:
            key = f"{run_id}/work#1/{call}"
            assert (after[key], now_used[key]) == (before[key], used[key]), (nth, call)
        assert tools[1].begun.total() == 1 or (is_stated and not tools[1].begun), nth
        assert await second.is_sound(run_id)
        deaths += 1
    assert deaths > 10


def payments_in_doubt(run: Run) -> dict[str, int]:
    """The uses that a person must decide about: begun, without an answer, and not to be repeated."""
    opened = run.open_steps.get("work#1")
    return {} if opened is None else calls_in_doubt(opened)


async def in_doubt(world: World) -> tuple[Process, Scripted, Counting]:
    """A payment whose process died in the middle of it."""

    async def die(use: ToolUse) -> ToolAnswer:
        if tool.begun.total() == 1:
            raise Died
        return ToolAnswer("paid")

    tool = Counting("pay", ONCE, act=die)
    scripted = model(asks(wish("pay", '{"amount": 7}')), default="Done.")
    first = await working(world, scripted, tool)
    with pytest.raises(Died):
        await first.start(SOURCE)
    await first.die()
    second = await working(world, scripted, tool)
    with pytest.raises(Exception, match=r"in doubt: m1\.t1: pay \{\"amount\": 7\}"):
        await second.resume()
    return second, scripted, tool


async def test_a_use_in_doubt_is_named_with_its_arguments_and_continue_says_what_came_of_it(
    world: World,
) -> None:
    process, scripted, tool = await in_doubt(world)
    run = await process.resume(action="continue", answers={"m1.t1": "paid by hand"})
    assert run.status is RunStatus.COMPLETED
    assert tool.begun.total() == 1
    assert shown(scripted) == [ToolResult("c1", "paid by hand")]


async def test_continue_without_an_answer_tells_the_model_that_nobody_knows(world: World) -> None:
    process, scripted, tool = await in_doubt(world)
    run = await process.resume(action="continue")
    assert run.status is RunStatus.COMPLETED
    assert tool.begun.total() == 1
    (result,) = shown(scripted)
    assert result.is_error
    assert result.text.startswith("Nobody knows whether this was done")


async def test_retry_makes_the_use_again_with_its_arguments_and_key_and_asks_the_model_nothing_twice(
    world: World,
) -> None:
    process, scripted, tool = await in_doubt(world)
    asked = len(scripted.received)
    run = await process.resume(action="retry")
    assert run.status is RunStatus.COMPLETED
    assert len(scripted.received) == asked + 1  # only what comes after the use
    assert shown(scripted) == [ToolResult("c1", "paid")]
    assert tool.seen == [{"amount": 7}, {"amount": 7}]
    assert [*tool.begun.values()] == [2]  # one key
    assert await process.is_sound()


async def test_a_fresh_retry_asks_the_model_anew(world: World) -> None:
    process, scripted, tool = await in_doubt(world)
    asked = len(scripted.received)
    run = await process.resume(action="retry", fresh=True)
    assert run.status is RunStatus.COMPLETED
    assert len(scripted.received) == asked + 1  # a new question, to which it answered without a tool
    assert len(scripted.received[-1].request.messages) == 1
    assert tool.begun.total() == 1


async def test_skip_tells_the_model_that_nobody_knows_and_uses_nothing(world: World) -> None:
    process, scripted, tool = await in_doubt(world)
    asked = len(scripted.received)
    run = await process.resume(action="skip")
    assert run.status is RunStatus.COMPLETED
    assert (len(scripted.received), tool.begun.total()) == (asked + 1, 1)
    (result,) = shown(scripted)
    assert result.is_error
    assert result.text.startswith("Nobody knows whether this was done")
    assert run.context["last_response"] == "Done."
    assert await process.is_sound()


@pytest.mark.parametrize("error", [StoreError("its own database is gone"), Refused("held", "no")])
async def test_a_use_that_ends_in_trouble_of_the_run_is_in_doubt_and_not_made_again(
    world: World, error: Exception
) -> None:
    """Nobody knows whether it paid before that."""

    async def trouble(use: ToolUse) -> ToolAnswer:
        if tool.begun.total() == 1:
            raise error
        return ToolAnswer("paid")

    tool = Counting("pay", ONCE, act=trouble)
    scripted = model(asks(wish("pay", '{"amount": 7}')), default="Done.")
    process = await working(world, scripted, tool)
    run = await process.start(SOURCE)
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    with pytest.raises(Refused, match="in doubt"):
        await process.resume()
    assert tool.begun.total() == 1
    run = await process.resume(action="continue", answers={"m1.t1": "paid by hand"})
    assert run.status is RunStatus.COMPLETED
    assert tool.begun.total() == 1
    assert await process.is_sound()


async def test_abort_uses_nothing(world: World) -> None:
    process, scripted, tool = await in_doubt(world)
    asked = len(scripted.received)
    run = await process.resume(action="abort")
    assert run.status is RunStatus.CANCELLED
    assert (len(scripted.received), tool.begun.total()) == (asked, 1)


async def test_an_approval_is_a_gate_with_the_exact_arguments_and_survives_the_process(
    world: World,
) -> None:
    scripted = model(asks(wish("pay", '{"amount": 7}')), default="Done.")
    tool = Counting("pay", ASKED)
    first = await working(world, scripted, tool)
    run = await first.start(SOURCE)
    assert run.status is RunStatus.WAITING
    (gate,) = run.gates.values()
    assert (gate.gate, gate.text) == ("work#1:m1.t1.ask", "May work use pay?")
    assert gate.about == '{\n  "amount": 7\n}'
    assert not tool.begun
    await first.die()
    second = await working(world, scripted, tool)
    run = (await second.engine.answer("run", "yes", by="ann")).run
    assert run.status is RunStatus.COMPLETED
    assert (tool.done.total(), len(scripted.received)) == (1, 2)
    assert await second.is_sound()


async def test_a_no_is_an_answer_that_the_model_sees(world: World) -> None:
    scripted = model(asks(wish("pay")), default="Then not.")
    process = await working(world, scripted, tool := Counting("pay", ASKED))
    await process.start(SOURCE)
    run = (await process.engine.answer("run", Answer.reject("too dear"), by="ann")).run
    assert run.status is RunStatus.COMPLETED
    assert not tool.begun
    said = "A person did not allow this. They said: too dear"
    assert shown(scripted) == [ToolResult("c1", said, is_error=True)]


async def test_an_approval_holds_for_one_use_alone(world: World) -> None:
    scripted = model(asks(wish("pay", '{"amount": 7}')), asks(wish("pay", '{"amount": 700}')))
    process = await working(world, scripted, tool := Counting("pay", ASKED))
    await process.start(SOURCE)
    run = (await process.engine.answer("run", "yes", by="ann")).run
    assert run.status is RunStatus.WAITING
    (gate,) = (one for one in run.gates.values() if one.decided is None)
    assert '"amount": 700' in gate.about
    assert tool.seen == [{"amount": 7}]


async def test_every_approval_of_an_answer_is_asked_at_once_and_nothing_is_done_before_all_are_decided(
    world: World,
) -> None:
    scripted = model(asks(wish("look"), wish("pay", '{"n": 1}', "b"), wish("pay", '{"n": 2}', "c")))
    look, pay = Counting("look"), Counting("pay", ASKED)
    process = await working(world, scripted, look, pay)
    run = await process.start(SOURCE)
    assert [gate.gate for gate in run.gates.values()] == ["work#1:m1.t2.ask", "work#1:m1.t3.ask"]
    run = (await process.engine.answer("run", "no", by="ann", gate="work#1:m1.t2.ask")).run
    assert run.status is RunStatus.WAITING
    assert not look.begun
    assert not pay.begun
    run = (await process.engine.answer("run", "yes", by="ann", gate="work#1:m1.t3.ask")).run
    assert run.status is RunStatus.COMPLETED
    assert pay.seen == [{"n": 2}]
    assert [one.text for one in shown(scripted)] == [
        "look found 42",
        "A person did not allow this.",
        "pay found 42",
    ]


async def test_arguments_that_nobody_could_read_are_not_put_to_people(world: World) -> None:
    scripted = model(asks(wish("pay", f'{{"text": "{"x" * 60_000}"}}')))
    process = await working(world, scripted, tool := Counting("pay", ASKED))
    assert (await process.start(SOURCE)).status is RunStatus.COMPLETED
    (result,) = shown(scripted)
    assert "A person must read the arguments" in result.text
    assert not tool.begun


async def test_the_rounds_of_a_step_have_an_end_and_its_answers_are_kept(world: World) -> None:
    scripted = model(*(asks(wish(arguments=f'{{"n": {n}}}')) for n in range(3)), default="Done.")
    process = await working(world, scripted, tool := Counting())
    run = await process.start(line("work", work="max_rounds=2"))
    assert run.status is RunStatus.FAILED
    said = "no result after 2 requests, it is still using tools; max_rounds allows 2"
    assert run.open_steps["work#1"].reason == said
    run = await process.resume(action="continue")
    assert run.open_steps["work#1"].reason == said
    assert (len(scripted.received), tool.begun.total()) == (2, 1)


async def test_the_output_of_a_step_has_a_ceiling(world: World) -> None:
    big = TokenUsage(input=1, output=60)
    scripted = model(asks(wish(arguments='{"n": 1}'), usage=big), asks(wish(arguments='{"n": 2}'), usage=big))
    process = await working(world, scripted, tool := Counting())
    run = await process.start(line("work", work="max_output_tokens=100"))
    assert run.status is RunStatus.FAILED
    said = "no result after 120 tokens of output, it is still using tools; max_output_tokens allows 100"
    assert run.open_steps["work#1"].reason == said
    assert [one.request.max_tokens for one in scripted.received] == [100, 40]
    assert tool.begun.total() == 1


async def test_a_call_that_is_repeated_with_the_same_result_is_refused_and_then_fails_the_step(
    world: World,
) -> None:
    scripted = model(ScriptRule(reply=ScriptedReply(tool_calls=(wish(),))))
    process = await working(world, scripted, tool := Counting())
    run = await process.start(line("work", work="max_rounds=50, max_retries=0"))
    assert run.status is RunStatus.FAILED
    assert run.open_steps["work#1"].reason == "the agent repeats the same calls (look)"
    assert tool.begun.total() == 3
    assert shown(scripted) == [ToolResult("c1", LOOPING, is_error=True)]
    assert len(scripted.received) == 5


async def test_a_pattern_of_two_calls_is_a_loop_as_well(world: World) -> None:
    rules = [asks(wish("look" if n % 2 else "other")) for n in range(20)]
    scripted = model(*rules)
    tools = Counting("look"), Counting("other")
    process = await working(world, scripted, *tools)
    run = await process.start(line("work", work="max_rounds=50, max_retries=0"))
    assert run.status is RunStatus.FAILED
    assert (tools[0].begun + tools[1].begun).total() < 8


async def test_a_call_whose_result_changes_is_no_loop(world: World) -> None:
    async def poll(use: ToolUse) -> ToolAnswer:
        return ToolAnswer(f"{tool.begun.total() * 10} %")

    tool = Counting(act=poll)
    scripted = model(*(asks(wish()) for _ in range(8)), default="Finished.")
    process = await working(world, scripted, tool)
    run = await process.start(line("work", work="max_rounds=50"))
    assert run.status is RunStatus.COMPLETED
    assert tool.begun.total() == 8


async def test_an_instruction_reaches_the_agent_at_its_next_request_and_only_once(world: World) -> None:
    async def steer(use: ToolUse) -> ToolAnswer:
        if tool.begun.total() == 1:
            await process.engine.steer("run", "be brief", by="ann")
        return ToolAnswer("fine")

    tool = Counting(act=steer)
    scripted = model(asks(wish(arguments='{"n": 1}')), asks(wish(arguments='{"n": 2}')))
    process = await working(world, scripted, tool)
    run = await process.start(line("work", "after"))
    assert run.status is RunStatus.COMPLETED
    told = [
        [
            part.text
            for message in one.request.messages
            if isinstance(message, UserMessage)
            for part in message.parts
            if "be brief" in part.text
        ]
        for one in scripted.received
    ]
    instruction = ["Instruction from the operator: be brief"]
    assert told[:3] == [[], instruction, instruction]
    assert run.steering == ()
    assert await process.is_sound()


async def test_old_results_make_room_when_a_conversation_is_too_long(world: World) -> None:
    async def long(use: ToolUse) -> ToolAnswer:
        return ToolAnswer(f"{use.arguments['n']}:" + "x" * 5_000)

    too_long = ScriptedReply(
        status=400,
        body='{"error": {"message": "too long", "code": "context_length_exceeded"}}',
    )
    scripted = model(
        *(asks(wish(arguments=f'{{"n": {n}}}')) for n in range(4)),
        ScriptRule(nth=5, reply=too_long),
        default="Done.",
    )
    process = await working(world, scripted, tool := Counting(act=long))
    run = await process.start(SOURCE)
    assert run.status is RunStatus.COMPLETED
    parts = [
        part.text
        for one in scripted.received[-1].request.messages
        if isinstance(one, ToolMessage)
        for part in one.parts
    ]
    assert [len(text) > 5_000 for text in parts] == [False, False, True, True]
    assert parts[0].startswith("0:")
    assert "left out to save space" in parts[0]
    assert set(tool.begun.values()) == {1}
    assert await process.is_sound()


async def test_a_conversation_that_cannot_be_shortened_fails_the_step(world: World) -> None:
    too_long = ScriptedReply(
        status=400, body='{"error": {"message": "too long", "code": "context_length_exceeded"}}'
    )
    scripted = model(ScriptRule(reply=too_long))
    run = await (await working(world, scripted, Counting())).start(line("work", work="max_retries=0"))
    assert run.status is RunStatus.FAILED
    assert len(scripted.received) == 1


async def test_after_a_use_that_must_not_be_repeated_a_retry_continues_the_conversation(world: World) -> None:
    scripted = model(
        asks(wish("pay", '{"amount": 7}')),
        ScriptRule(reply=ScriptedReply(text="No.\nOUTCOME: fail\nNOTE: the printer is off"), times=1),
        default="Done.",
    )
    process = await working(world, scripted, tool := Counting("pay", ONCE))
    run = await process.start(line("work", work='max_retries=1, retry_policy="none"'))
    if run.status is not RunStatus.COMPLETED:
        run = await process.resume(action="retry")
    assert run.status is RunStatus.COMPLETED
    assert tool.begun.total() == 1
    last = scripted.received[-1].request.messages
    assert results(last) == [ToolResult("c1", "pay found 42")]
    (said,) = (part.text for part in last[-1].parts if not isinstance(part, ToolResult))  # type: ignore[union-attr]
    assert said.startswith("This step failed: the printer is off. Try again.")
    assert await process.is_sound()


@pytest.mark.parametrize("fresh", [False, True])
async def test_a_retry_of_one_of_two_uses_repeats_only_that(world: World, fresh: bool) -> None:
    async def die(use: ToolUse) -> ToolAnswer:
        if tool.begun.total() == 2:
            raise Died
        return ToolAnswer("paid")

    tool = Counting("pay", ToolRules(repeatable=False, is_concurrent=False), act=die)
    scripted = model(asks(wish("pay", '{"n": 1}', "a"), wish("pay", '{"n": 2}', "b")), default="Done.")
    first = await working(world, scripted, tool)
    with pytest.raises(Died):
        await first.start(SOURCE)
    await first.die()
    second = await working(world, scripted, tool)
    run = await second.resume(action="retry", fresh=fresh)
    assert run.status is RunStatus.COMPLETED
    known, unknown = results(scripted.received[-1].request.messages)
    assert known == ToolResult("a", "paid")
    if not fresh:
        assert unknown == ToolResult("b", "paid")
        assert sorted(tool.begun.values()) == [1, 2]
        return
    assert tool.begun.total() == 2
    assert unknown.is_error
    assert unknown.text.startswith("Nobody knows whether this was done")


async def test_a_step_that_fails_before_it_did_anything_begins_anew(world: World) -> None:
    scripted = model(
        asks(wish()),
        ScriptRule(reply=ScriptedReply(text="OUTCOME: fail\nNOTE: unsure"), times=1),
        default="Done.",
    )
    process = await working(world, scripted, Counting())
    run = await process.start(line("work", work="max_retries=0"))
    assert run.status is RunStatus.FAILED
    run = await process.resume(action="retry")
    assert run.status is RunStatus.COMPLETED
    assert len(scripted.received[-1].request.messages) == 1


async def test_a_long_answer_is_shown_in_part_and_kept_whole(world: World) -> None:
    whole = "a" * 50_000 + "END"

    async def long(use: ToolUse) -> ToolAnswer:
        return ToolAnswer(whole)

    scripted = model(asks(wish()))
    process = await working(world, scripted, Counting(act=long, rules=ToolRules(output_characters=900)))
    run = await process.start(SOURCE)
    (result,) = shown(scripted)
    assert len(result.text) < 1_000
    assert result.text.endswith("END")
    assert "49,103 characters left out" in result.text
    (kept,) = run.artifacts.values()
    assert (kept.name, kept.size) == ("m1.t1.txt", len(whole))


async def test_a_whole_answer_is_kept_if_the_process_dies_before_the_step_ends(world: World) -> None:
    async def long(use: ToolUse) -> ToolAnswer:
        return ToolAnswer("a" * 5_000)

    class Dying(Scripted):
        async def stream(self, request: Any, **how: Any) -> Any:
            async for piece in super().stream(request, **how):
                if len(self.received) == 2:
                    raise Died
                yield piece

    rules = ToolRules(output_characters=100)
    scripted = Dying(model(asks(wish()))._playing.script, clock=ManualClock())
    first = await working(world, scripted, tool := Counting(act=long, rules=rules))
    with pytest.raises(Died):
        await first.start(SOURCE)
    await first.die()
    second = await working(world, scripted, tool)
    run = await second.resume()
    assert tool.begun.total() == 1
    assert [one.size for one in run.artifacts.values()] == [5_000]


async def test_an_agent_stops_between_two_uses_when_it_is_asked_to(world: World) -> None:
    """S1-18: what was done is kept, and what was asked for is done after the resume."""
    stop = StopSwitch(grace_s=None)

    async def ask_to_stop(use: ToolUse) -> ToolAnswer:
        if not stop.reason:
            stop.request("signal")
        return ToolAnswer("fine")

    scripted = model(asks(wish(), wish(id="b")))
    tool = Counting(act=ask_to_stop, rules=ToolRules(is_concurrent=False))
    process = await working(world, scripted, tool)
    run = await process.start(SOURCE, stop=stop)
    assert run.open_steps["work#1"].state is AttemptState.HELD
    assert tool.begun.total() == 1
    run = await process.resume()
    assert run.status is RunStatus.COMPLETED
    assert set(tool.begun.values()) == {1}
    assert tool.begun.total() == 2


async def test_only_a_use_that_must_not_be_repeated_is_recorded_before_it_begins(world: World) -> None:
    scripted = model(asks(wish("look"), wish("pay", id="b")))
    process = await working(world, scripted, Counting("look"), Counting("pay", ONCE))
    await process.start(SOURCE)
    events = await process.events()
    tool = CallKind.TOOL.value
    begun = [one.call for one in events if isinstance(one, CallStarted) and one.type == tool]
    done = [one.call for one in events if isinstance(one, CallFinished) and one.type == tool]
    assert (begun, sorted(done)) == (["m1.t2"], ["m1.t1", "m1.t2"])


async def test_the_first_request_may_demand_a_tool_and_the_last_one_asks_for_a_result(world: World) -> None:
    scripted = model(asks(wish(arguments='{"n": 1}')), asks(wish(arguments='{"n": 2}')), default="Done.")
    process = await working(world, scripted, Counting())
    run = await process.start(line("work", work="max_rounds=3, must_use_tools=true"))
    assert run.status is RunStatus.COMPLETED
    choices = [one.request.tool_choice for one in scripted.received]
    assert choices == [ToolChoice.REQUIRED, None, ToolChoice.NONE]


async def test_an_agent_that_has_not_used_a_tool_that_it_must_use_is_asked_once_more(world: World) -> None:
    """What it says then counts: it may have a reason."""
    scripted = model(asks(wish("look")), default="Nothing is to be done.")
    process = await working(world, scripted, Counting("look"), Counting("save"))
    run = await process.start(line("work", work='must_use_tools="save"'))
    assert (run.status, len(scripted.received)) == (RunStatus.COMPLETED, 3)
    assert scripted.received[-1].request.messages[-1] == user(UNUSED.format(names="save"))
    assert [one.request.tool_choice for one in scripted.received] == [ToolChoice.REQUIRED, None, None]


async def test_the_last_request_that_can_use_a_tool_has_only_those_that_must_be_used(world: World) -> None:
    async def refuse(use: ToolUse) -> ToolAnswer:
        return ToolAnswer("no such file", is_error=True)

    tools = (Counting("look"), edit := Counting("edit", act=refuse), save := Counting("save"))
    first, second = asks(wish("edit", '{"n": 1}')), asks(wish("save"))
    scripted = model(first, second, default="Done.")
    process = await working(world, scripted, *tools)
    run = await process.start(line("work", work='max_rounds=3, must_use_tools="edit, save"'))
    assert run.status is RunStatus.COMPLETED
    assert (edit.done.total(), save.done.total()) == (1, 1)
    offered = [
        (one.request.tool_choice, [tool.name for tool in one.request.tools]) for one in scripted.received
    ]
    assert offered == [
        (ToolChoice.REQUIRED, ["look", "edit", "save"]),
        (ToolChoice.REQUIRED, ["edit", "save"]),
        (ToolChoice.NONE, ["look", "edit", "save"]),
    ]


async def test_a_fresh_retry_asks_for_approval_anew(world: World) -> None:
    """The approval was for the use that is in doubt; the next one is another question."""

    async def die(use: ToolUse) -> ToolAnswer:
        if pay.begun.total() == 1:
            raise Died
        return ToolAnswer("paid")

    post, pay = Counting("post", ONCE), Counting("pay", ASKED, act=die)
    scripted = model(
        ScriptRule(contains="post found", reply=ScriptedReply(tool_calls=(wish("pay"),))),
        ScriptRule(contains="This step failed", reply=ScriptedReply(tool_calls=(wish("pay"),))),
        ScriptRule(contains="paid", reply=ScriptedReply(text="Done.")),
        ScriptRule(reply=ScriptedReply(tool_calls=(wish("post"),))),
    )
    first = await working(world, scripted, post, pay)
    await first.start(SOURCE)
    with pytest.raises(Died):
        await first.engine.answer("run", "yes", by="ann")
    await first.die()
    second = await working(world, scripted, post, pay)
    run = await second.resume(action="retry", fresh=True)
    assert run.status is RunStatus.WAITING, run.open_steps["work#1"].reason
    assert [name for name, gate in run.gates.items() if gate.decided is None] == ["work#1:m1.t1.ask~1"]
    run = (await second.engine.answer("run", "yes", by="ann")).run
    assert run.status is RunStatus.COMPLETED
    assert (post.begun.total(), pay.begun.total(), pay.done.total()) == (1, 2, 1)
    assert await second.is_sound()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("odd", ["a lone surrogate", "no text", "unprintable"])
async def test_a_use_whose_answer_cannot_be_stored_is_not_made_again(world: World, odd: str) -> None:
    async def act(use: ToolUse) -> ToolAnswer:
        if odd == "unprintable":
            raise Unprintable
        return ToolAnswer("paid \ud800" if odd == "a lone surrogate" else 7)  # type: ignore[arg-type]

    tool = Counting("pay", ONCE, act=act)
    scripted = model(asks(wish("pay")), default="Done.")
    process = await working(world, scripted, tool)
    run = await process.start(SOURCE)
    assert run.status is RunStatus.COMPLETED
    assert tool.begun.total() == 1
    told = {"a lone surrogate": "paid ?", "no text": "succeeded", "unprintable": "Unprintable: "}
    assert told[odd] in shown(scripted)[0].text
    assert await process.is_sound()
