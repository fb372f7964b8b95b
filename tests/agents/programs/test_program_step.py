"""Programs as agents: a turn is a recorded call, its session continues, failures wait, stop or fail."""

from __future__ import annotations

import asyncio
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.clock import SystemClock
from onward.engine.control.requests import StartRequest
from onward.errors import InvalidInput, Refused, RunNotFound
from onward.model.call import CallKind, CallStarted, CallStatus
from onward.model.chat import ChunkKind
from onward.model.events import StepFinished
from onward.model.run import RunStatus
from onward.redact.redactor import Redactor
from onward.store.port.messages import MessageQuery
from onward.testing.clock import ManualClock, SeededDice
from tests.agents.programs.playing import Played, answering, at, calls
from tests.agents.test_agent_step import model as scripted_model
from tests.conformance.faults import Died, Fault, FaultyStore
from tests.world import Process, World, line, until

MINE = 'agent_program="mine"'
TALK = f'{MINE}, fidelity=full, thread_id="talk"'


async def parts(process: Process) -> list[tuple[str, str]]:
    """What the messages of the run say, each part with its kind."""
    messages = process.store.messages
    found = await messages.list(MessageQuery(chat="run/run"))
    return [(part.kind.value, part.text) for one in found for part in await messages.content(one.id) or ()]


async def logged(process: Process) -> list[str]:
    return [line for event in await process.events() if isinstance(event, StepFinished) for line in event.log]


async def test_a_program_works_on_a_step_and_its_turn_is_a_recorded_call(
    world: World, tmp_path: Path
) -> None:
    played = Played(tmp_path, script=[answering("Done.\nSET grade = 5\nNOTE: short")])
    process = await at(world, played, clock=SystemClock())  # supervisors keep deadlines in real time
    run = await process.start(line("write", write=MINE))
    assert (run.status, run.detail) == (RunStatus.COMPLETED, "")
    assert (run.context["last_response"], run.context["grade"]) == ("Done.", 5)
    (answer,) = await calls(process)
    assert (answer.call, answer.type, answer.name) == ("m1", CallKind.PROGRAM.value, "mine")
    assert (answer.model, answer.cost_micro) == ("mine:tiny", 12_500)
    assert answer.usage is not None
    assert (answer.usage.input, answer.usage.output, answer.usage.cached) == (100, 20, 40)
    assert answer.value["session"] == "s-1"
    (start,) = played.starts
    turn = json.loads(start["stdin"])
    assert (turn["version"], turn["session"], turn["run"], turn["step"]) == (1, None, "run", "write#1")
    assert "\n\ndo it\n\n" in turn["prompt"]
    assert "OUTCOME: fail" in turn["prompt"], "the result contract applies to programs"
    (scope,) = await process.store.limits.read(["run/run"])
    assert scope.spent == (120, 12_500, 1)
    assert await process.is_sound()


async def test_a_program_is_told_what_was_said_in_the_chat_before(memory: World, tmp_path: Path) -> None:
    played = Played(tmp_path, script=[answering("Done.")])
    process = await at(memory, played, clock=SystemClock())
    await process.engine.say("talk", "My name is Ann.")
    pipeline = process.pipeline(line("write", write=f"{MINE}, chat_history=true"))
    await process.engine.start(pipeline, StartRequest(run_id="run", chat="talk"))
    prompt = json.loads(played.starts[0]["stdin"])["prompt"]
    assert "What was said in this chat before:\n\nuser: My name is Ann.\n\ndo it" in prompt


async def test_what_a_program_says_is_a_message_while_it_runs(memory: World, tmp_path: Path) -> None:
    hanging = {"print": [{"type": "text", "text": "I have begun.\n"}], "hangs": True}
    played = Played(tmp_path, script=[hanging])
    process = await at(memory, played, clock=ManualClock())
    running = asyncio.create_task(process.start(line("a", a=MINE)))
    while await parts(process) != [("text", "I have begun.\n")]:  # noqa: ASYNC110 - the store tells nobody
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_tools_and_reasoning_are_parts_of_the_message(memory: World, tmp_path: Path) -> None:
    events = [
        {"type": "reasoning", "text": "Hm."},
        {"type": "tool", "name": "ls", "text": "."},
        {"type": "tool_result", "text": "a.py", "is_error": True},
        {"type": "result", "text": "Done."},
    ]
    process = await at(memory, Played(tmp_path, script=[{"print": events}]))
    await process.start(line("a", a=MINE))
    kinds = [ChunkKind.REASONING, ChunkKind.TOOL_CALL, ChunkKind.TOOL_RESULT]
    assert await parts(process) == list(zip(kinds, ["Hm.", "ls .", "error: a.py"], strict=True))


async def test_a_result_may_say_how_the_step_ended_and_which_edge_follows(
    memory: World, tmp_path: Path
) -> None:
    source = """digraph g { start [shape=Mdiamond] exit [shape=Msquare] graph [agent_program=mine]
        a [prompt="?"] good [prompt="g"] bad [prompt="b"]
        start -> a  a -> good [label="Yes"]  a -> bad [label="No"]  good -> exit  bad -> exit }"""
    decided = answering("```json\n{}\n``` I think so.", preferred_label="No", context_updates={"n": [1]})
    failing = answering("Hopeless.", outcome="fail", notes="no tests")
    process = await at(memory, Played(tmp_path, script=[decided, failing]))
    run = await process.start(source)
    assert await process.completed() == ["start#1", "a#1"]
    assert (run.status, run.context["n"]) == (RunStatus.FAILED, [1])
    assert "no tests" in run.detail
    assert run.context["last_response"].endswith("I think so.")


async def test_a_stylesheet_can_name_the_program(memory: World, tmp_path: Path) -> None:
    source = line("a", "b").replace(
        "digraph line {", 'digraph line { graph [model_stylesheet="#b { agent_program: mine }"]'
    )
    played, models = Played(tmp_path, script=[answering("By a program.")]), scripted_model()
    asked = AgentHandler(models, read_prices({}), ManualClock(), SeededDice(1))
    process = await at(memory, played, models=asked)
    run = await process.start(source)
    assert run.context["last_response"] == "By a program."
    assert (len(models.received), len(played.starts)) == (1, 1)


async def test_an_answer_that_cannot_be_read_is_asked_for_once_more_in_its_session(
    memory: World, tmp_path: Path
) -> None:
    played = Played(tmp_path, script=[answering("Done.\nOUTCOME: splendid"), answering("Done.", "s-2")])
    process = await at(memory, played)
    assert (await process.start(line("a", a=MINE))).status is RunStatus.COMPLETED
    first, second = (json.loads(start["stdin"]) for start in played.starts)
    assert (first["session"], second["session"]) == (None, "s-1")
    assert second["prompt"].startswith("The end of your answer cannot be used: the outcome 'splendid'")
    assert [one.call for one in await calls(process)] == ["m1", "m2"]
    hopeless = Played(tmp_path / "b", script=[answering("Done.\nOUTCOME: splendid")])
    run = await (await at(memory, hopeless)).start(line("a", a=MINE), "hopeless")
    assert run.status is RunStatus.FAILED


@pytest.mark.parametrize("value", [2**70, json.loads("[" * 70 + "]" * 70)])
async def test_a_turn_whose_facts_cannot_be_stored_is_recorded_and_asked_for_once_more(
    memory: World, tmp_path: Path, value: Any
) -> None:
    told = answering("Done.", context_updates={"grade": value})
    played = Played(tmp_path, script=[told, answering("Done.", context_updates={"grade": 5})])
    process = await at(memory, played)
    run = await process.start(line("a", a=MINE))
    assert (run.status, run.context["grade"]) == (RunStatus.COMPLETED, 5)
    second = json.loads(played.starts[1]["stdin"])
    assert "what it says about its step cannot be stored: it.context_updates.grade" in second["prompt"]
    assert [(one.call, one.status) for one in await calls(process)] == [
        ("m1", CallStatus.OK),
        ("m2", CallStatus.OK),
    ]


async def test_steps_of_one_thread_continue_one_session(memory: World, tmp_path: Path) -> None:
    played = Played(tmp_path, script=[answering("Blue."), answering("I said blue.")])
    process = await at(memory, played)
    assert (await process.start(line("a", "b", a=TALK, b=TALK))).status is RunStatus.COMPLETED
    assert [json.loads(start["stdin"])["session"] for start in played.starts] == [None, "s-1"]
    assert played.prompts[1].startswith("do it"), "the session itself remembers"


@pytest.mark.parametrize(
    ("format", "name", "lost"),
    [
        (
            "claude-code",
            "mine",
            {
                "print": [
                    {
                        "type": "result",
                        "subtype": "error_during_execution",
                        "is_error": True,
                        "errors": ["No conversation found with session ID: s-1"],
                    }
                ],
                "exit": 1,
            },
        ),
        ("codex", "mine", {"stderr": "Error: no rollout found for thread id s-1", "exit": 1}),
        (
            "gemini",
            "mine",
            {"stderr": 'Error resuming session: Invalid session identifier "s-1".', "exit": 1},
        ),
        ("lines", "mine", {"print": [{"type": "error", "kind": "session", "message": "what session?"}]}),
    ],
)
async def test_a_lost_session_is_replaced_by_a_new_one_that_is_told_of_the_run(
    memory: World, tmp_path: Path, format: str, name: str, lost: dict[str, Any]
) -> None:
    """K12: the degraded hop; the step's log says so, and the next step continues the new session."""
    played = Played(
        tmp_path,
        name,
        format,
        [said(format, "Blue."), lost, said(format, "Green.", "s-9"), said(format, "Red.", "s-9")],
    )
    process = await at(memory, played)
    assert (await process.start(line("a", "b", "c", a=TALK, b=TALK, c=TALK))).status is RunStatus.COMPLETED
    resumed = [has_session(format, start) for start in played.starts]
    assert resumed == ["", "s-1", "", "s-9"]
    assert played.prompts[2].index("Blue.") < played.prompts[2].index("do it"), "a summary comes first"
    assert any("the session s-1 of mine is lost" in text for text in await logged(process))
    assert [one.status.value for one in await calls(process)] == ["ok", "error", "ok", "ok"]


def said(format: str, text: str, session: str = "s-1") -> dict[str, Any]:
    """A play that answers in a format."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    events: dict[str, list[dict[str, Any]]] = {
        "claude-code": [
            {"type": "system", "subtype": "init", "session_id": session, "model": "claude-x"},
            {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}},
            {"type": "result", "subtype": "success", "is_error": False, "result": text, "usage": usage},
        ],
        "codex": [
            {"type": "thread.started", "thread_id": session},
            {"type": "item.completed", "item": {"id": "0", "type": "agent_message", "text": text}},
            {"type": "turn.completed", "usage": usage},
        ],
        "gemini": [
            {"type": "init", "session_id": session, "model": "gemini-x"},
            {"type": "message", "role": "assistant", "content": text, "delta": True},
            {"type": "result", "status": "success", "stats": usage},
        ],
        "lines": answering(text, session)["print"],
    }
    return {"print": events[format]}


def has_session(format: str, start: dict[str, Any]) -> str:
    """The session that a start continues."""
    if format == "lines":
        return json.loads(start["stdin"])["session"] or ""
    if format == "codex":
        return start["argv"][start["argv"].index("resume") + 1] if "resume" in start["argv"] else ""
    return next((word.removeprefix("--resume=") for word in start["argv"] if "--resume" in word), "")


async def test_a_conversation_of_a_model_is_told_to_a_program_as_a_summary(
    memory: World, tmp_path: Path
) -> None:
    asked = AgentHandler(scripted_model(default="Blue."), read_prices({}), ManualClock(), SeededDice(1))
    played = Played(tmp_path, script=[answering("Green.")])
    process = await at(memory, played, models=asked)
    await process.start(line("a", "b", a='fidelity=full, thread_id="talk"', b=TALK))
    assert json.loads(played.starts[0]["stdin"])["session"] is None
    assert "Blue." in played.prompts[0]


async def test_codex_counts_a_whole_session_and_each_turn_is_charged_once(
    memory: World, tmp_path: Path
) -> None:
    def counting(input: int, output: int) -> dict[str, Any]:
        play = said("codex", "Fine.")
        play["print"][-1]["usage"] = {"input_tokens": input, "output_tokens": output}
        return play

    played = Played(tmp_path, "mine", "codex", [counting(100, 10), counting(250, 25), counting(90, 9)])
    process = await at(memory, played)
    await process.start(line("a", "b", "c", a=TALK, b=TALK, c=TALK))
    used = [(one.usage.input, one.usage.output) for one in await calls(process) if one.usage is not None]
    assert used == [(100, 10), (150, 15), (90, 9)], "one that counts less has begun to count anew"


async def test_tokens_without_a_cost_cost_what_the_models_price_says(memory: World, tmp_path: Path) -> None:
    played = Played(tmp_path, "mine", "gemini", [said("gemini", "Fine.")])
    prices = read_prices({"google:gemini-x": {"input": 1, "output": 2}})
    process = await at(memory, played, prices=prices)
    await process.start(line("a", a=MINE))
    assert [one.cost_micro for one in await calls(process)] == [20]


async def test_the_environment_is_an_allow_list_and_the_prompt_is_no_argument(
    memory: World, tmp_path: Path
) -> None:
    """S10: of all keys, a program has its own."""
    played = Played(tmp_path, "mine", "claude-code", [said("claude-code", "Fine.")])
    played.more = {"arguments": ("--permission-mode", "plan"), "env": ("OTHER_*",)}
    process = await at(memory, played)
    await process.start(line("a", a=f'{MINE}, llm_model="anthropic:opus"'), workdir=str(tmp_path))
    (start,) = played.starts
    assert start["argv"] == [
        *("-p", "--output-format", "stream-json", "--verbose", "--model=opus", "--permission-mode", "plan"),
    ]
    assert start["env"]["ANTHROPIC_API_KEY"] == "sk-ant-own"
    assert start["env"]["OTHER_TOKEN"] == "another"
    assert "OPENAI_API_KEY" not in start["env"]
    assert start["env"]["ONWARD_STEP"] == "a#1"
    assert start["cwd"] == str(tmp_path)


async def test_plain_text_is_an_answer_too(memory: World, tmp_path: Path) -> None:
    played = Played(tmp_path, "mine", "text", [{"print": ["One\n", "two.\nSET n = 3"]}, {"exit": 3}])
    process = await at(memory, played)
    run = await process.start(line("a", a=MINE))
    assert (run.context["last_response"], run.context["n"]) == ("One\ntwo.", 3)
    run = await process.start(line("a", a=MINE), "failing")
    assert run.status is RunStatus.FAILED
    assert "exit code 3" in run.detail


async def test_strange_output_is_left_out_and_told(memory: World, tmp_path: Path) -> None:
    strange = ["warning: old\n", "[1]\n", "\n", {"type": "novelty"}, '{"type": "te']
    rest = ['xt", "text": "Fi\\u0000ne."}\n', {"type": "result"}, "half a li"]
    process = await at(memory, Played(tmp_path, script=[{"print": [*strange, *rest]}]))
    run = await process.start(line("a", a=MINE))
    assert run.context["last_response"] == "Fi\N{REPLACEMENT CHARACTER}ne."
    assert any("3 lines that are not events" in text for text in await logged(process))


async def test_a_huge_line_is_dropped_and_the_turn_continues(memory: World, tmp_path: Path) -> None:
    huge = {"type": "tool_result", "text": "x" * (9 << 20)}
    process = await at(memory, Played(tmp_path, script=[{"print": [huge, *answering("Fine.")["print"]]}]))
    assert (await process.start(line("a", a=MINE))).status is RunStatus.COMPLETED
    assert any("1 that are too long" in text for text in await logged(process))


@pytest.mark.parametrize(
    ("play", "why"),
    [
        ({"print": [{"type": "text", "text": "Half"}], "dies": True}, "ended by signal 9"),
        ({"print": [{"type": "text", "text": "Half"}], "exit": 0}, "without a result, with exit code 0"),
        (
            {"print": [{"type": "text", "text": "Half"}], "exit": 7, "stderr": "boom"},
            "exit code 7: boom",
        ),
    ],
)
async def test_a_program_that_dies_in_the_middle_fails_the_step_and_is_not_repeated_unasked(
    memory: World, tmp_path: Path, play: dict[str, Any], why: str
) -> None:
    played = Played(tmp_path, script=[play, answering("Whole.")])
    process = await at(memory, played)
    run = await process.start(line("a", a=MINE))
    assert run.status is RunStatus.FAILED
    assert why in run.detail
    assert len(played.starts) == 1
    run = await process.resume()
    assert run.status is RunStatus.COMPLETED
    assert "was cut off" in played.prompts[1]
    assert "Half" in played.prompts[1], "it is told what was said before"


async def test_a_program_that_fails_before_it_has_worked_is_tried_again(
    memory: World, tmp_path: Path
) -> None:
    overloaded = {"print": [{"type": "error", "message": "529 overloaded"}], "exit": 1}
    played = Played(tmp_path, script=[overloaded, overloaded, answering("Fine.")])
    run = await (await at(memory, played)).start(line("a", a=MINE))
    assert run.status is RunStatus.COMPLETED
    assert len(played.starts) == 3
    assert run.executions["a"] == 1


async def test_a_program_that_always_fails_is_started_five_times_in_all(
    memory: World, tmp_path: Path
) -> None:
    overloaded = {"print": [{"type": "error", "message": "529 overloaded"}], "exit": 1}
    played = Played(tmp_path, script=[overloaded] * 20)
    process = await at(memory, played)
    assert (await process.start(line("a", a=f"{MINE}, max_retries=0"))).status is RunStatus.FAILED
    assert len(played.starts) == 5
    assert (await process.resume()).status is RunStatus.FAILED
    assert len(played.starts) == 6


@pytest.mark.parametrize("count", [2**64 - 1, 10**300, 10**10 + 1])
async def test_tokens_that_no_turn_can_have_used_are_a_note_on_the_call(
    memory: World, tmp_path: Path, count: int
) -> None:
    counted = {"type": "usage", "input": count, "output": 3}
    played = Played(tmp_path, script=[{"print": [counted, {"type": "result", "text": "Fine."}]}])
    process = await at(memory, played)
    assert (await process.start(line("a", a=MINE))).status is RunStatus.COMPLETED
    (answer,) = await calls(process)
    assert (answer.usage, answer.cost_micro, answer.is_cost_unknown) == (None, None, True)
    assert "impossible number of tokens" in answer.note
    assert await process.is_sound()


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("auth", "provider_auth"), ("credit", "provider_credit"), ("request", "provider_request")],
)
async def test_a_program_that_must_be_set_up_stops_the_run_and_keeps_it_resumable(
    memory: World, tmp_path: Path, kind: str, reason: str
) -> None:
    played = Played(
        tmp_path, script=[{"print": [{"type": "error", "kind": kind, "message": "no"}]}, answering("Fine.")]
    )
    process = await at(memory, played)
    run = await process.start(line("a", a=MINE))
    assert (run.status, run.reason) == (RunStatus.FAILED, reason)
    assert (await process.resume()).status is RunStatus.COMPLETED


async def test_a_rate_limit_holds_the_run_until_the_program_can_be_asked(
    memory: World, tmp_path: Path
) -> None:
    limited = {"print": [{"type": "error", "kind": "rate_limit", "message": "Later.", "retry_after_s": 600}]}
    played = Played(tmp_path, script=[limited, answering("Fine.")])
    process = await at(memory, played)
    began_us = process.clock.now_us()
    run = await process.start(line("a", a=MINE))
    assert run.status is RunStatus.COMPLETED
    assert process.clock.now_us() - began_us >= 600_000_000
    assert "AttemptHeld" in await process.kinds()


async def test_a_program_that_is_not_there_is_named_with_the_way_to_install_it(
    memory: World, tmp_path: Path
) -> None:
    played = Played(tmp_path, "claude-code", "claude-code", [])
    played.command = ("claude-is-not-here",)
    process = await at(memory, played)
    with pytest.raises(InvalidInput, match="npm install -g @anthropic-ai/claude-code"):
        await process.start(line("a", a='agent_program="claude-code"'))


@pytest.mark.parametrize(
    ("attrs", "why"),
    [
        ('agent_program="nobody"', "unknown program 'nobody'; write one of mine"),
        ('agent_program="command: ./agent --flag"', "a pipeline can only name programs"),
        (f'{MINE}, allowed_tools="shell"', "brings its own tools"),
        (f'{MINE}, llm_model="--flag"', "is not a valid name"),
        ("", "no model provider is set up"),
    ],
)
async def test_a_node_that_no_program_can_work_on_is_refused_before_the_run_begins(
    memory: World, tmp_path: Path, attrs: str, why: str
) -> None:
    process = await at(memory, Played(tmp_path, script=[answering("Fine.")]))
    with pytest.raises(InvalidInput, match=why):
        await process.start(line("a", a=attrs))


async def test_a_limit_on_calls_stops_the_next_turn(memory: World, tmp_path: Path) -> None:
    played = Played(tmp_path, script=[answering("Fine.")])
    process = await at(memory, played)
    await process.store.limits.change("run/run", {"calls": 1})
    run = await process.start(line("a", "b", a=MINE, b=MINE))
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "limit")
    assert len(played.starts) == 1
    await process.store.limits.change("run/run", {"calls": 2})
    assert (await process.resume()).status is RunStatus.COMPLETED


@pytest.mark.parametrize("reports_cost", [True, False])
async def test_under_a_limit_on_cost_a_program_must_say_what_it_costs(
    memory: World, tmp_path: Path, reports_cost: bool
) -> None:
    played = Played(tmp_path, script=[answering("Fine.")], more={"reports_cost": reports_cost})
    process = await at(memory, played)
    await process.store.limits.change("run/run", {"cost": 12_500})
    run = await process.start(line("a", "b", a=MINE, b=MINE))
    assert run.reason == ("limit" if reports_cost else "step_failed")
    assert len(played.starts) == reports_cost, "what it reported counts, so the second turn does not begin"


async def test_a_time_limit_ends_everything_that_a_program_started(memory: World, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    played = Played(tmp_path, script=[{"child": str(pid), "hangs": True}])
    process = await at(memory, played, clock=ManualClock(autojump=False))
    running = asyncio.create_task(process.start(line("a", a=f"{MINE}, timeout=30s")))
    await until(lambda: running.done() or (pid.exists() and pid.read_text().strip() != ""))
    process.clock.advance(31)
    run = await running
    assert run.status is RunStatus.FAILED
    assert "30 s" in run.detail
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


async def test_a_key_that_a_program_prints_is_stored_nowhere(memory: World, tmp_path: Path) -> None:
    redactor = Redactor()
    redactor.add("OWN_KEY", "sk-very-secret-123456")
    events = [{"type": "text", "text": "my key is sk-very-sec"}, {"type": "text", "text": "ret-123456."}]
    events += [{"type": "result", "text": "it is sk-very-secret-123456"}]
    process = await at(memory, Played(tmp_path, script=[{"print": events}]), redactor=redactor)
    run = await process.start(line("a", a=MINE))
    assert "secret" not in run.context["last_response"]
    assert "secret" not in str(await parts(process))


async def test_a_turn_in_doubt_takes_what_a_person_says_it_answered(memory: World, tmp_path: Path) -> None:
    """A node with repeatable=false: whether a turn that was cut off has done its work, a person decides."""
    played = Played(tmp_path, script=[{"hangs": True}])
    first = await at(memory, played)
    running = asyncio.create_task(first.start(line("a", a=f"{MINE}, repeatable=false")))
    await until(lambda: len(played.starts) == 1)
    await first.die()
    running.cancel()
    with pytest.raises((asyncio.CancelledError, Died)):
        await running
    second = await at(memory, played)
    (started,) = [event for event in await second.events() if isinstance(event, CallStarted)]
    assert not started.repeatable
    with pytest.raises(Refused, match="must not be repeated"):
        await second.resume()
    run = await second.resume(action="continue", answers={"m1": "It is done.\nSET n = 4"})
    assert (run.status, run.context["n"]) == (RunStatus.COMPLETED, 4)
    assert len(played.starts) == 1


async def test_a_turn_in_doubt_is_continued_by_another_that_is_told_of_it(
    memory: World, tmp_path: Path
) -> None:
    """S1-11: --continue without a word about what came of it."""
    hanging = {"print": [{"type": "text", "text": "I have begun."}], "hangs": True}
    played = Played(tmp_path, script=[hanging, answering("Done.")])
    first = await at(memory, played)
    running = asyncio.create_task(first.start(line("a", a=f"{MINE}, repeatable=false")))
    while await parts(first) != [("text", "I have begun.")]:  # noqa: ASYNC110 - the store tells nobody
        await asyncio.sleep(0)
    await first.die()
    running.cancel()
    with pytest.raises((asyncio.CancelledError, Died)):
        await running
    second = await at(memory, played)
    run = await second.resume(action="continue")
    assert (run.status, run.context["last_response"]) == (RunStatus.COMPLETED, "Done.")
    assert len(played.starts) == 2
    assert "do it" in played.prompts[1]
    assert "I have begun." in played.prompts[1]


async def test_an_answered_turn_is_never_asked_again_wherever_the_process_dies(
    memory: World, tmp_path: Path
) -> None:
    """S2-2: the stand-in's own ledger counts the starts."""
    deaths = 0
    for nth in range(1, 30):
        run_id, played = f"run-{nth}", Played(tmp_path / str(nth), script=[answering("Fine.")])
        first = await at(memory, played, wrap=partial(FaultyStore, fault=Fault.DIE_AFTER, at=nth))
        try:
            await first.start(line("a", a=MINE), run_id)
        except Died:
            pass
        else:
            break
        await first.die()
        second = await at(memory, played)
        try:
            answered = [one for one in await calls(second, run_id) if one.status is CallStatus.OK]
        except RunNotFound:
            continue
        before = len(played.starts)
        run = (await second.load(run_id)).run
        if run.status is not RunStatus.COMPLETED:
            run = await second.resume(run_id)
        assert run.status is RunStatus.COMPLETED
        assert len(played.starts) == before + (not answered)
        assert await second.is_sound(run_id)
        deaths += 1
    assert deaths > 3
