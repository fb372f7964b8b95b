"""Questions inside a step: a gate holds the attempt, and its answer goes to the call that asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from onward.draw.scene import Trace
from onward.engine.control.requests import AutoApprove, ForkRequest, QueueInterviewer, StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, Refused, RunNotFound, StoreError
from onward.handlers.calls import CallOptions, step_question
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.handlers.user_functions import running
from onward.machine.decide.calls import calls_in_doubt
from onward.model.call import AttemptHeld, CallFinished
from onward.model.events import Event
from onward.model.gate import Answer, Choice, GateDecided, GateOpened, GateWithdrawn
from onward.model.result import Result
from onward.model.run import AttemptState, Gate, Run, RunStatus
from onward.read.lookup import matching_steps, read_projection
from onward.redact.redactor import Redactor
from onward.store.port.runs import GateQuery
from onward.testing.clock import ManualClock
from tests.cli.shell import wait_until
from tests.conformance.faults import Died, Fault, FaultyStore
from tests.engine.test_calls import Outside
from tests.engine.test_deadlines import Silent
from tests.world import Process, World, line, until

SOURCE = line("work", "after", work="type=work", after="type=after")
GATE = "work#1:approve"
FAN = """digraph fan {
  start [shape=Mdiamond]; exit [shape=Msquare]
  fan [shape=component]; join [shape=tripleoctagon]
  left [type=left]; right [type=right]
  start -> fan; fan -> left -> join; fan -> right -> join; join -> exit
}"""


@pytest.fixture(autouse=True)
async def _no_thread_is_left() -> AsyncIterator[None]:
    yield
    await asyncio.to_thread(wait_until, lambda: not running.has("run/work#1"))


async def _nothing(step: StepContext) -> None:
    return None


async def at(world: World, body: Callable[[StepContext], Any], **more: Any) -> Process:
    """A process whose step `work` is this function."""
    handlers = {"work": FunctionHandler(body), "after": FunctionHandler(_nothing)}
    return await world.process(handlers=handlers, **more)


async def answer(process: Process, said: Answer | str, run_id: str = "run", **more: Any) -> Run:
    return (await process.engine.answer(run_id, said, by="ann", **more)).run


async def of_kind(process: Process, *kinds: type[Event]) -> list[Event]:
    return [event for event in await process.events() if isinstance(event, kinds)]


class Shop:
    """A handler that asks before it charges a card."""

    def __init__(self, **question: Any) -> None:
        self.outside, self.question, self.answers = Outside(), question, list[Any]()

    async def __call__(self, step: StepContext) -> dict[str, Any]:
        quote = await step.call("quote", self.outside.do, "quote")
        answer = await step.ask("approve", f"Charge the card for {quote}?", **self.question)
        self.answers.append(answer)
        charged = answer.rejected or await step.call("charge", self.outside.do, "charge", repeatable=False)
        return {"charged": charged, "by": answer.by, "choice": answer.choice, "text": answer.text}


async def test_a_question_holds_the_attempt_and_its_answer_goes_to_the_call(world: World) -> None:
    shop = Shop(about="the cart")
    process = await at(world, shop)
    run = await process.start(SOURCE)
    assert (run.status, run.worker, run.wake_at_us) == (RunStatus.WAITING, None, None)
    gate, opened = run.gates[GATE], run.open_steps["work#1"]
    assert (gate.text, gate.about, gate.type) == ("Charge the card for quote 1?", "the cart", "yes_no")
    assert (opened.state, opened.held, opened.gates) == (AttemptState.HELD, "gate", (GATE,))
    assert [row.gate for row in await process.store.gates.open(GateQuery())] == [GATE]
    run = await answer(process, "yes", text="go ahead")
    assert run.status is RunStatus.COMPLETED
    told = {key: run.context[key] for key in ("charged", "by", "choice", "text")}
    assert told == {"charged": "charge 1", "by": "ann", "choice": "Yes", "text": "go ahead"}
    assert shop.outside.done == {"quote": 1, "charge": 1}
    assert (run.visits["work"], run.executions["work"], run.retries.plain()) == (1, 1, {})
    assert await process.completed() == ["start#1", "work#1", "after#1", "exit#1"]
    assert await process.store.gates.open(GateQuery()) == []
    assert await process.is_sound()


async def test_the_question_and_the_hold_are_one_append(world: World) -> None:
    appends: list[list[str]] = []
    process = await at(world, Shop(), observe=lambda run, events: appends.append([e.kind for e in events]))
    await process.start(SOURCE)
    assert ["GateOpened", "AttemptHeld"] in appends


async def test_a_no_goes_to_the_call_and_routes_nothing(world: World) -> None:
    shop = Shop()
    process = await at(world, shop)
    await process.start(SOURCE)
    run = await answer(process, Answer.reject("too dear"))
    assert run.status is RunStatus.COMPLETED
    assert (run.context["charged"], run.context["choice"], run.context["text"]) == (True, "No", "too dear")
    assert shop.outside.done == {"quote": 1}


async def test_choices_come_back_in_the_words_in_which_they_were_offered(world: World) -> None:
    process = await at(world, shop := Shop(choices=["Charge it", "[L] Later", "Cancel"]))
    run = await process.start(SOURCE)
    assert [(c.key, c.label) for c in run.gates[GATE].choices] == [
        ("C", "Charge it"),
        ("L", "[L] Later"),
        ("3", "Cancel"),
    ]
    with pytest.raises(InvalidInput, match="has no choice 'maybe'; choose one of: C"):
        await answer(process, "maybe")
    await answer(process, "l")
    assert [(a.choice, a.rejected) for a in shop.answers] == [("[L] Later", False)]
    other = await at(world, shop := Shop(choices=["Charge it", "Cancel"]))
    await other.start(SOURCE, "other")
    await answer(other, Answer.reject(), "other")
    assert [(a.choice, a.rejected) for a in shop.answers] == [("Cancel", True)]


async def test_a_question_for_words_takes_any(world: World) -> None:
    process = await at(world, Shop(type="freeform"))
    await process.start(SOURCE)
    with pytest.raises(InvalidInput, match="asks for text"):
        await answer(process, " ")
    run = await answer(process, "only if it rains")
    assert (run.context["choice"], run.context["text"]) == ("", "only if it rains")


async def test_the_process_may_die_before_the_answer_comes(world: World) -> None:
    shop = Shop()
    first = await at(world, shop)
    await first.start(SOURCE)
    await first.die()
    run = await answer(await at(world, shop), "yes")
    assert run.status is RunStatus.COMPLETED
    assert shop.outside.done == {"quote": 1, "charge": 1}


async def test_an_answer_alone_queues_the_run(world: World) -> None:
    process = await at(world, Shop())
    await process.start(SOURCE)
    run = await answer(process, "yes", run=False)
    assert run.status is RunStatus.QUEUED
    taken = await process.engine.take(StopSwitch(grace_s=None))
    assert taken is not None
    assert (await taken[1]).run.status is RunStatus.COMPLETED


async def test_a_question_is_answered_once(world: World) -> None:
    process = await at(world, Shop())
    await process.start(SOURCE)
    await answer(process, "yes")
    with pytest.raises(Refused, match=f"gate {GATE} is already decided: 'Yes' by ann"):
        await answer(process, "no", gate=GATE)


async def test_a_plain_function_asks_from_its_thread(world: World) -> None:
    outside = Outside()

    def work(step: StepContext) -> dict[str, Any]:
        quote = step.call_sync("quote", outside.do_plainly, "quote")
        said = step.ask_sync("approve", f"Charge for {quote}?")
        return {"said": said.choice, "by": said.by}

    process = await at(world, work)
    run = await process.start(SOURCE)
    assert run.status is RunStatus.WAITING
    (step,) = run.open_steps
    # Its thread ends by itself; the manual clock would not wait for it.
    while running.has(f"{run.id}/{step}"):  # noqa: ASYNC110 - nothing tells when a thread has ended
        await asyncio.sleep(0.001)
    run = await answer(process, "yes")
    assert (run.status, run.context["said"], run.context["by"]) == (RunStatus.COMPLETED, "Yes", "ann")
    assert outside.done == {"quote": 1}


async def test_an_interviewer_answers_it_like_any_gate(world: World) -> None:
    process = await at(world, Shop())
    run = await process.start(SOURCE)
    folded = await process.engine.attend(await process.load(), AutoApprove(), StopSwitch(grace_s=None))
    run = folded.run
    assert (run.status, run.context["choice"], run.context["by"]) == (RunStatus.COMPLETED, "Yes", "auto")


async def test_several_questions_one_after_the_other_are_each_asked_once(world: World) -> None:
    async def work(step: StepContext) -> dict[str, Any]:
        return {"got": [(await step.ask(key, f"{key}?")).choice for key in "abc"]}

    process = await at(world, work)
    run = await process.start(SOURCE)
    for key in "abc":
        assert list(run.gates) == [f"work#1:{key}"]
        run = await answer(process, "yes")
    assert run.context["got"] == ["Yes", "Yes", "Yes"]
    assert run.gates == {}
    assert len(await of_kind(process, GateOpened)) == 3


async def test_questions_asked_at_once_are_open_at_once_and_answered_in_any_order(world: World) -> None:
    async def work(step: StepContext) -> dict[str, Any]:
        said = await asyncio.gather(*(step.ask(key, f"{key}?") for key in "ab"))
        return {"got": [one.choice for one in said]}

    process = await at(world, work)
    run = await process.start(SOURCE)
    assert list(run.gates) == ["work#1:a", "work#1:b"]
    run = await answer(process, "no", gate="work#1:b")
    assert (run.status, list(run.gates)) == (RunStatus.WAITING, ["work#1:a"])
    run = await answer(process, "yes")
    assert (run.status, run.context["got"]) == (RunStatus.COMPLETED, ["Yes", "No"])
    assert len(await of_kind(process, GateOpened)) == 2
    assert await process.is_sound()


async def test_the_hold_waits_for_the_calls_that_are_open(world: World) -> None:
    outside, go = Outside(), asyncio.Event()

    async def slow() -> str:
        await go.wait()
        return await outside.do("slow")

    async def work(step: StepContext) -> dict[str, Any]:
        got = await asyncio.gather(step.call("slow", slow), step.ask("approve", "go?"))
        return {"got": [got[0], got[1].choice]}

    process = await at(world, work)
    starting = asyncio.ensure_future(process.start(SOURCE))
    await until(lambda: bool(process.store.calls))
    go.set()
    assert (await starting).status is RunStatus.WAITING
    run = await answer(process, "yes")
    assert run.context["got"] == ["slow 1", "Yes"]
    assert outside.done == {"slow": 1}


async def test_a_question_inside_a_call_is_asked(world: World) -> None:
    outside = Outside()

    async def work(step: StepContext) -> dict[str, Any]:
        async def outer() -> str:
            first = await step.call("inner", outside.do, "inner")
            return f"{first} {(await step.ask('approve', 'go?')).choice}"

        return {"got": await step.call("outer", outer)}

    process = await at(world, work)
    run = await process.start(SOURCE)
    assert run.status is RunStatus.WAITING
    run = await answer(process, "yes")
    assert run.context["got"] == "inner 1 Yes"
    assert outside.done == {"inner": 1}


# -- the same question -------------------------------------------------------------------------------


async def test_an_answer_never_counts_for_another_question(world: World) -> None:
    """A handler whose question changes from one entry to the next is told; nothing is approved."""
    entered = Counter[str]()

    async def work(step: StepContext) -> dict[str, Any]:
        entered["work"] += 1
        return {"said": (await step.ask("approve", f"Charge {entered['work']}?")).choice}

    process = await at(world, work)
    await process.start(SOURCE)
    run = await answer(process, "yes")
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert "asks a different question under 'approve'" in run.detail
    assert "said" not in run.context
    # A retry forgets the old question, and asks the new one.
    run = await process.resume(action="retry")
    assert (run.status, run.gates[GATE].text) == (RunStatus.WAITING, "Charge 3?")
    assert run.gates[GATE].decided is None


async def test_an_answer_that_names_what_was_shown_counts_for_no_other_question(world: World) -> None:
    """S21: judged where it is decided. The gate has the name of the one that was shown."""
    process = await at(world, Shop())
    shown = (await process.start(SOURCE)).gates[GATE].content_hash
    await process.engine.pause("run", by="ann")
    asked = (await process.resume(action="retry")).gates[GATE]
    assert (asked.text, asked.decided) == ("Charge the card for quote 2?", None)
    for gate in (GATE, None):
        with pytest.raises(Refused) as refused:
            await answer(process, "yes", gate=gate, shown=shown)
        assert refused.value.code == "gate_changed"
    run = (await process.load()).run
    assert (run.status, run.gates[GATE].decided) == (RunStatus.WAITING, None)
    (row,) = await process.store.gates.open(GateQuery())
    assert row.content_hash == asked.content_hash != shown
    run = await answer(process, "yes", shown=row.content_hash)
    assert (run.status, run.context["charged"]) == (RunStatus.COMPLETED, "charge 1")


@pytest.mark.parametrize(
    "change",
    [
        {"node": "other"},
        {"type": "confirmation"},
        {"text": "Charge 2?"},
        {"about": "another cart"},
        {"choices": (Choice(key="Y", label="Yes", to="left"),)},
        {"choices": (Choice(key="Y", label="Yes", to="", data={"cost": 2}),)},
        {"choices": ()},
    ],
)
async def test_the_hash_of_what_is_shown_is_of_all_that_decides(change: dict[str, Any]) -> None:
    """S21: what an answer leads to as well. When it was asked, and until when, changes nothing."""
    choices = (Choice(key="Y", label="Yes", to=""),)
    gate = Gate(gate="g#1", node="g", text="Charge?", choices=choices, opened_at_us=1)
    assert replace(gate, **change).content_hash != gate.content_hash
    assert replace(gate, opened_at_us=2, deadline_us=3, by="ann").content_hash == gate.content_hash


async def test_another_question_under_an_answered_key_is_refused(world: World) -> None:
    async def work(step: StepContext) -> None:
        await step.ask("approve", "Charge 1?")
        await step.ask("approve", "Charge 1000?")

    process = await at(world, work)
    await process.start(SOURCE)
    run = await answer(process, "yes")
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert "asks a different question under 'approve'" in run.detail


@pytest.mark.parametrize("changed", ["text", "about", "choices", "default", "type", "on_timeout"])
async def test_the_hash_of_a_question_is_what_is_asked(changed: str) -> None:
    asked: dict[str, Any] = {
        "text": "Charge?",
        "about": "",
        "choices": ["Charge", "Cancel"],
        "default": "",
        "type": None,
        "on_timeout": "none",
    }
    other = {
        "text": "Refund?",
        "about": "42",
        "choices": ["Charge", "Wait"],
        "default": "Cancel",
        "type": "yes_no",
        "on_timeout": "reject",
    }
    one, same, two = (
        step_question("key", timeout_s=timeout, remind_s=None, metadata=None, **said).hash
        for said, timeout in ((asked, None), (asked, 5.0), ({**asked, changed: other[changed]}, None))
    )
    assert one == same != two


async def test_one_key_is_for_a_call_or_for_a_question(world: World) -> None:
    outside = Outside()

    async def work(step: StepContext) -> None:
        await step.call("approve", outside.do, "a")
        await step.ask("approve", "go?")

    run = await (await at(world, work)).start(SOURCE)
    assert "'approve' is the key of both a call and a question of step work#1" in run.detail


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ({"question": "  "}, "is empty"),
        ({"question": "x" * 10_001}, "has 10001 characters"),
        ({"choices": []}, "has 0 choices"),
        ({"choices": ["a", "a"]}, "offers the same choice twice"),
        ({"choices": ["a", " "]}, "is empty or too long"),
        ({"choices": "yes"}, "needs a list of choices"),
        ({"type": "multiple_choice"}, "needs a list of choices"),
        ({"type": "essay"}, "use one of multiple_choice, yes_no"),
        ({"type": "yes_no", "choices": ["a", "b", "c"]}, "first yes, then no"),
        ({"type": "freeform", "choices": ["a"]}, "has no choices"),
        ({"default": "maybe"}, "its choices are Yes, No"),
        ({"on_timeout": "panic"}, "use one of reject, none"),
        ({"timeout_s": 0}, "timeout_s of the question 'approve' is 0"),
        ({"metadata": {"a": 1}}, "is a int"),
        ({"choices": ["Yes, s3cret-s3cret", "No"]}, "contains a secret"),
    ],
)
async def test_a_question_that_nobody_could_answer_is_refused(
    world: World, question: dict[str, Any], why: str
) -> None:
    async def work(step: StepContext) -> None:
        asked = {"question": "go?", **question}
        await step.ask("approve", asked.pop("question"), **asked)

    process = await at(world, work, redactor=Redactor({"KEY": "s3cret-s3cret"}))
    run = await process.start(SOURCE)
    assert (run.status, run.gates) == (RunStatus.FAILED, {})
    assert why in run.detail


async def test_a_secret_in_a_question_is_not_stored(world: World) -> None:
    async def work(step: StepContext) -> dict[str, Any]:
        return {"said": (await step.ask("approve", "Use s3cret-s3cret?", about="s3cret-s3cret")).choice}

    process = await at(world, work, redactor=Redactor({"KEY": "s3cret-s3cret"}))
    run = await process.start(SOURCE)
    assert run.gates[GATE].text == "Use [redacted KEY]?"
    run = await answer(process, "yes")
    assert run.context["said"] == "Yes"
    assert not any("s3cret" in record.body for record in await process.log())


# -- deadlines ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "choice", "rejected"),
    [
        ({"default": "Yes"}, "Yes", False),
        ({"default": "No"}, "No", True),
        ({"on_timeout": "reject"}, "No", True),
    ],
)
async def test_a_deadline_answers_by_its_rule(
    world: World, rule: dict[str, Any], choice: str, rejected: bool
) -> None:
    shop, clock = Shop(timeout_s=60, **rule), ManualClock()
    process = await at(world, shop, clock=clock)
    run = await process.start(SOURCE)
    deadline_us = run.gates[GATE].deadline_us
    assert deadline_us is not None
    assert run.wake_at_us == deadline_us
    clock.advance(61)
    run = await process.resume()
    assert run.status is RunStatus.COMPLETED
    (said,) = shop.answers
    assert (said.choice, said.rejected, said.expired, said.by) == (choice, rejected, True, "deadline")


# -- what ends a question ----------------------------------------------------------------------------


async def test_cancel_withdraws_it(world: World) -> None:
    process = await at(world, Shop())
    await process.start(SOURCE)
    run = (await process.engine.cancel("run", by="ann")).run
    assert (run.status, run.gates) == (RunStatus.CANCELLED, {})
    assert [e.gate for e in await of_kind(process, GateWithdrawn)] == [GATE]  # type: ignore[attr-defined]
    assert await process.store.gates.open(GateQuery()) == []


async def test_a_pause_keeps_it_and_a_resume_waits_again(world: World) -> None:
    shop = Shop()
    process = await at(world, shop)
    await process.start(SOURCE)
    run = (await process.engine.pause("run", by="ann")).run
    assert (run.status, list(run.gates)) == (RunStatus.PAUSED, [GATE])
    run = await process.resume()
    assert (run.status, list(run.gates)) == (RunStatus.WAITING, [GATE])
    await process.engine.pause("run", by="ann")
    await answer(process, "yes")
    run = await process.resume()
    assert run.status is RunStatus.COMPLETED
    assert len(await of_kind(process, GateOpened)) == 1
    assert shop.outside.done == {"quote": 1, "charge": 1}


@pytest.mark.parametrize("is_answered", [False, True])
async def test_a_retry_asks_again(world: World, is_answered: bool) -> None:
    """A new generation: an answer that no call has had yet is forgotten with the others."""
    shop = Shop()
    process = await at(world, shop)
    await process.start(SOURCE)
    await process.engine.pause("run", by="ann")
    if is_answered:
        await answer(process, "yes")
    run = await process.resume(action="retry")
    assert (run.status, run.gates[GATE].text) == (RunStatus.WAITING, "Charge the card for quote 2?")
    assert len(await of_kind(process, GateWithdrawn)) == (0 if is_answered else 1)
    (row,) = await process.store.gates.open(GateQuery())
    assert row.text == "Charge the card for quote 2?"
    run = await answer(process, "yes")
    assert (run.status, run.context["charged"]) == (RunStatus.COMPLETED, "charge 1")
    assert await process.is_sound()


async def test_a_handler_that_says_fail_asks_again_and_an_error_does_not(world: World) -> None:
    ends: list[Any] = [RuntimeError("later"), Result.fail("no stock"), None]

    async def work(step: StepContext) -> Any:
        await step.ask("approve", "go?")
        end = ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    source = line("work", "after", work="type=work, max_retries=5", after="type=after")
    process = await at(world, work)
    await process.start(source)
    starting = asyncio.ensure_future(answer(process, "yes"))
    while not starting.done():
        await process.clock.until_idle()  # however long a database takes
        process.clock.advance(1)
        await asyncio.sleep(0)
    run = await starting
    assert (run.status, len(ends)) == (RunStatus.WAITING, 1)
    assert len(await of_kind(process, GateOpened)) == 2


async def test_a_question_of_an_agent_has_the_generation_in_its_id(world: World) -> None:
    """Positional calls of another generation are other questions: an old answer cannot reach them."""
    outside = Outside()
    asked = step_question(
        "m1.t1",
        "Run the tool?",
        choices=None,
        type=None,
        default="",
        on_timeout="none",
        about="",
        timeout_s=None,
        remind_s=None,
        metadata=None,
    )

    async def work(step: StepContext) -> Any:
        await step.recorder.call("m1", outside.do, ("m1",), CallOptions())
        said = await step.recorder.ask("m1.t1", asked)
        return Result.fail("no", retryable=False) if said.rejected else {"said": said.choice}

    process = await at(world, work)
    run = await process.start(SOURCE)
    assert list(run.gates) == ["work#1:m1.t1"]
    run = await answer(process, "no")
    assert run.status is RunStatus.FAILED
    run = await process.resume(action="retry")
    assert list(run.gates) == ["work#1:m1.t1~1"]
    with pytest.raises(Refused, match="already decided: 'No' by ann"):
        await answer(process, "yes", gate="work#1:m1.t1")
    run = await answer(process, "yes", gate="work#1:m1.t1~1")
    assert (run.status, run.context["said"], outside.done["m1"]) == (RunStatus.COMPLETED, "Yes", 2)
    assert await process.is_sound()


@pytest.mark.parametrize("action", ["skip", "continue"])
async def test_skip_and_continue_withdraw_it(world: World, action: str) -> None:
    process = await at(world, Shop())
    await process.start(SOURCE)
    await process.engine.pause("run", by="ann")
    run = await process.resume(action=action)
    assert len(await of_kind(process, GateWithdrawn)) == 1
    if action == "skip":
        assert (run.status, run.gates) == (RunStatus.COMPLETED, {})
    else:  # it asks again, with the answers of its calls
        assert (run.status, run.gates[GATE].text) == (RunStatus.WAITING, "Charge the card for quote 1?")
    assert await process.is_sound()


async def test_a_resume_from_elsewhere_withdraws_it(world: World) -> None:
    process = await at(world, Shop())
    await process.start(SOURCE)
    await process.engine.pause("run", by="ann")
    run = await process.resume(from_node="after")
    assert (run.status, run.gates) == (RunStatus.COMPLETED, {})
    assert await process.is_sound()


async def test_a_fork_from_before_the_step_asks_for_itself(world: World) -> None:
    process = await at(world, Shop())
    await process.start(SOURCE)
    fork = (await process.engine.fork("run", ForkRequest(new_id="fork", from_step="work#1"))).run
    assert fork.gates == {}
    run = await process.resume("fork")
    assert (run.status, list(run.gates)) == (RunStatus.WAITING, [GATE])
    assert (await answer(process, "yes", "fork")).status is RunStatus.COMPLETED
    assert (await process.load()).run.status is RunStatus.WAITING
    assert await process.is_sound("fork")


# -- branches ----------------------------------------------------------------------------------------


def fan(left: Callable[[StepContext], Any], right: Callable[[StepContext], Any]) -> dict[str, Any]:
    return {"left": FunctionHandler(left), "right": FunctionHandler(right)}


async def asks(step: StepContext) -> None:
    answer = await step.ask("approve", "go?")
    assert answer.by


def held_once(
    why: str, until_us: int, entered: Counter[str]
) -> Callable[[StepContext], Coroutine[Any, Any, None]]:
    """A step that is held until then when it is first entered; `entered` counts."""

    async def right(step: StepContext) -> None:
        entered["right"] += 1
        if entered["right"] == 1:
            await step.recorder.hold(why, "come back later", until_us)

    return right


async def test_other_branches_continue_while_one_is_held(world: World) -> None:
    done = asyncio.Event()

    async def right(step: StepContext) -> None:
        done.set()

    process = await world.process(handlers=fan(asks, right))
    run = await process.start(FAN)
    assert done.is_set()
    assert (run.status, list(run.gates)) == (RunStatus.WAITING, ["fan#1.left/left#1:approve"])
    run = await answer(process, "yes")
    assert run.status is RunStatus.COMPLETED
    assert await process.is_sound()


async def test_a_key_may_look_like_a_step_or_a_branch(world: World) -> None:
    key = "a/b#2 c:d"

    async def left(step: StepContext) -> None:
        await step.ask(key, "go?")

    process = await world.process(handlers=fan(left, _nothing))
    run = await process.start(FAN)
    gate = f"fan#1.left/left#1:{key}"
    assert list(run.gates) == [gate]
    projection = await read_projection(process.store.log, "run")
    assert (projection.steps[gate].node, projection.steps[gate].state) == ("left", "waiting")
    assert [step.step for step in matching_steps(projection, "left")] == ["fan#1.left/left#1"]
    assert [step.step for step in matching_steps(projection, gate)] == [gate]
    trace = Trace()
    trace.add(await process.events())
    assert trace.visits["fan#1.left/left"] == 1
    run = await answer(process, "yes", gate=gate)
    assert run.status is RunStatus.COMPLETED
    assert await process.is_sound()


async def test_a_waiting_run_wakes_for_a_branch_that_can_continue(world: World) -> None:
    """The wake time is the earliest of all branches: a question without a deadline hides no other."""
    clock, entered = ManualClock(), Counter[str]()
    until_us = clock.now_us() + 3_600_000_000
    right = held_once("limit", until_us, entered)

    process = await world.process(handlers=fan(asks, right), clock=clock)
    run = await process.start(FAN)
    assert (run.status, run.wake_at_us) == (RunStatus.WAITING, until_us)
    with pytest.raises(Refused, match="waits for an answer"):
        await process.resume()
    clock.advance(3_601)
    run = await process.resume()
    assert (run.status, run.wake_at_us, entered["right"]) == (RunStatus.WAITING, None, 2)
    assert (await answer(process, "yes")).status is RunStatus.COMPLETED
    assert await process.is_sound()


async def test_a_question_gives_way_to_a_branch_that_becomes_due_and_is_asked_again(world: World) -> None:
    """Nobody may be there to answer, and the other branch does not need one."""
    clock, entered, nobody = ManualClock(), Counter[str](), Silent()
    until_us = clock.now_us() + 3_600_000_000
    right = held_once("limit", until_us, entered)

    process = await world.process(handlers=fan(asks, right), clock=clock)
    await process.start(FAN)
    stop = StopSwitch(grace_s=None)
    attending = asyncio.create_task(process.engine.attend(await process.load(), nobody, stop))
    await until(lambda: len(nobody.asked) == 2)
    gate = "fan#1.left/left#1:approve"
    assert nobody.asked == [gate] * 2
    assert nobody.told == [
        f"left: another branch of the run continues first; {gate} is asked again after that"
    ]
    assert (clock.now_us() >= until_us, entered["right"]) == (True, 2)
    attending.cancel()
    await asyncio.gather(attending, return_exceptions=True)
    assert (await answer(process, "yes")).status is RunStatus.COMPLETED
    assert await process.is_sound()


@pytest.mark.parametrize("has_seen", [True, False])
async def test_a_question_stays_open_while_another_process_continues_the_run(
    world: World, *, has_seen: bool
) -> None:
    """A worker that finds the branch due may be first, whether the asking process has seen it or not."""
    clock, late, entered, nobody = ManualClock(), ManualClock(), Counter[str](), Silent()
    until_us, go, gate = clock.now_us() + 3_600_000_000, asyncio.Event(), "fan#1.left/left#1:approve"
    hold = held_once("limit", until_us, entered)

    async def right(step: StepContext) -> None:
        await hold(step)
        await go.wait()

    process = await world.process(handlers=fan(asks, right), clock=clock)
    await process.start(FAN)
    before = await process.load()
    late.advance(3_601)
    other = await world.process(handlers=fan(asks, right), clock=late)
    working = asyncio.create_task(other.resume())
    await until(lambda: entered["right"] == 2)
    clock.advance(0 if has_seen else 3_601)
    stop = StopSwitch(grace_s=None)
    attending = asyncio.create_task(process.engine.attend(before, nobody, stop))
    await until(lambda: nobody.asked == [gate])
    clock.advance(3_602)
    go.set()
    assert (await working).status is RunStatus.WAITING
    assert nobody.asked == [gate]
    await answer(other, "yes", run=False)
    assert (await attending).run.status is RunStatus.QUEUED
    assert nobody.told == [f"left: {gate} was decided elsewhere: 'Yes' by ann"]


async def test_an_answer_does_not_wait_for_a_provider_that_another_branch_waits_for(world: World) -> None:
    clock, entered = ManualClock(autojump=False), Counter[str]()
    until_us = clock.now_us() + 3_600_000_000
    right = held_once("rate_limit", until_us, entered)

    process = await world.process(handlers=fan(asks, right), clock=clock)
    await process.engine.submit(process.pipeline(FAN), StartRequest(run_id="run"))
    taken = await process.engine.take(StopSwitch(grace_s=None))
    assert taken is not None
    run = (await taken[1]).run
    assert (run.status, run.wake_at_us) == (RunStatus.WAITING, until_us)
    assert (await answer(process, "yes", run=False)).status is RunStatus.QUEUED


async def until_asked(process: Process) -> None:
    """Return when the run, which another process executes, has an open question."""
    while True:
        with contextlib.suppress(RunNotFound):
            if (await process.load()).run.gates:
                break
        await asyncio.sleep(0)


async def test_an_answer_reaches_a_branch_while_another_works(world: World) -> None:
    go = asyncio.Event()

    async def right(step: StepContext) -> None:
        await go.wait()

    process = await world.process(handlers=fan(asks, right))
    running_ = asyncio.ensure_future(process.start(FAN))
    other = await world.process(handlers=fan(asks, right), clock=process.clock)
    await until_asked(other)
    await answer(other, "yes")
    go.set()
    assert (await running_).status is RunStatus.COMPLETED


async def test_a_fork_asks_the_questions_of_its_branches_anew(world: World) -> None:
    process = await world.process(handlers=fan(asks, _nothing))
    run = await process.start(FAN)
    gate = "fan#1.left/left#1:approve"
    seq = max(c["seq"] for c in await process.checkpoints())
    fork = (await process.engine.fork("run", ForkRequest(new_id="fork", checkpoint=seq))).run
    run = await process.resume("fork") if fork.status is RunStatus.QUEUED else fork
    assert (run.status, list(run.gates)) == (RunStatus.WAITING, [gate])
    assert sorted(row.run_id for row in await process.store.gates.open(GateQuery())) == ["fork", "run"]
    assert (await answer(process, "yes", "fork")).status is RunStatus.COMPLETED
    assert (await answer(process, "yes")).status is RunStatus.COMPLETED
    assert await process.is_sound("fork")


async def test_a_branch_that_lost_the_race_withdraws_its_question(world: World) -> None:
    source = FAN.replace("fan [shape=component]", 'fan [shape=component, join_policy="first_success"]')
    slow = asyncio.Event()

    async def right(step: StepContext) -> None:
        await slow.wait()

    process = await world.process(handlers=fan(asks, right))
    racing = asyncio.ensure_future(process.start(source))
    other = await world.process(handlers=fan(asks, right), clock=process.clock)
    await until_asked(other)
    slow.set()
    run = await racing
    assert (run.status, run.gates) == (RunStatus.COMPLETED, {})
    assert len(await of_kind(process, GateWithdrawn)) == 1
    assert await process.is_sound()


# -- crashes at every append -------------------------------------------------------------------------


async def _finish(process: Process, run_id: str) -> Run:
    """What a person with a terminal would do."""
    try:
        run = (await process.load(run_id)).run
    except RunNotFound:
        run = await process.start(SOURCE, run_id)
    while not run.is_final:
        opened = run.open_steps.get("work#1")
        if run.status is RunStatus.WAITING:
            run = await answer(process, "yes", run_id)
        elif opened is not None and calls_in_doubt(opened):
            run = await process.resume(run_id, action="continue", answers={"charge": "charge 1"})
        else:
            run = await process.resume(run_id)
    return run


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER, Fault.LOSE_REPLY])
async def test_a_death_at_any_append_asks_nothing_twice_that_was_answered(world: World, fault: Fault) -> None:
    """Asked, answered, taken up: on both sides of every commit, a decision is made once and never lost."""
    deaths = 0
    for nth in range(1, 30):
        shop, run_id = Shop(), f"run-{nth}"
        first = await at(world, shop, wrap=partial(FaultyStore, fault=fault, at=nth))
        with contextlib.suppress(Died, StoreError):
            await _finish(first, run_id)
        if len(first.store.calls) < nth:
            break
        await first.die()
        second = await at(world, shop)
        run = await _finish(second, run_id)
        assert (run.status, run.context["charged"]) == (RunStatus.COMPLETED, "charge 1"), nth
        events = await second.events(run_id)
        assert sum(isinstance(e, GateDecided) for e in events) == 1
        assert sum(isinstance(e, GateOpened) for e in events) == 1
        assert sum(isinstance(e, AttemptHeld) for e in events) == 1
        assert sum(isinstance(e, CallFinished) and e.type == "gate" for e in events) == 1
        assert await second.is_sound(run_id)
        deaths += 1
    assert deaths > 5


async def test_a_crash_withdraws_what_an_attempt_that_was_not_held_had_asked(world: World) -> None:
    """One of two answers let the attempt go on; when that dies, the open question is asked anew."""
    deaths = [Died()]

    async def work(step: StepContext) -> dict[str, Any]:
        async def b() -> str:
            first = await step.ask("b", "b?")
            if deaths:
                raise deaths.pop()
            return first.choice

        async def a() -> str:
            return (await step.ask("a", "a?")).choice

        return {"got": await asyncio.gather(a(), b())}

    first = await at(world, work)
    await first.start(SOURCE)
    with contextlib.suppress(Died):
        await answer(first, "no", gate="work#1:b")
    await first.die()
    second = await at(world, work)
    run = (await second.load()).run
    if run.status is not RunStatus.WAITING:
        run = await second.resume()
    assert (run.status, list(run.gates)) == (RunStatus.WAITING, ["work#1:a"])
    run = await answer(second, "yes")
    assert (run.status, run.context["got"]) == (RunStatus.COMPLETED, ["Yes", "No"])
    assert await second.is_sound()


async def test_a_queue_of_answers_serves_steps_and_pipelines_alike(world: World) -> None:
    process = await at(world, Shop())
    await process.start(SOURCE)
    queue = QueueInterviewer([False])
    folded = await process.engine.attend(await process.load(), queue, StopSwitch(grace_s=None))
    assert (folded.run.status, folded.run.context["choice"]) == (RunStatus.COMPLETED, "No")
