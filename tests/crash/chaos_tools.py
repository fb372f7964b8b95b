"""The tools of agents in a storm: what they write down, what a person decides, and what must be true of it.

Every second run uses four tools, one after another: a function that may be repeated, a tool of an MCP server,
a function that must not be repeated and needs approval, and a command. Every one leaves its traces outside of
the database, and these are the judge.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from onward.agents.model import ToolCall
from onward.model.call import CallFinished, CallKind, CallStarted, CallStatus, call_key
from onward.model.events import AttemptFailed, Event
from onward.store.codec import unseal
from onward.store.port.store import Store
from onward.testing.script import ScriptedReply, ScriptRule
from tests.agents.tools.mcp_servers import PROGRAM
from tests.worker.ledger import Ledger

LOOK, ECHO, PAY, SHELL = "look", "files__echo", "pay", "shell"
BEGIN, END = "begin", "end"
STEP = "use#1"
NODE = (
    'use [type=codergen, prompt="Now use the tools for ${context.me}.", max_retries=4, '
    f'allowed_tools="{LOOK}, {ECHO}, {PAY}, {SHELL}"]'
)
SAID = {ECHO: "echo: {run_id}", PAY: "paid", SHELL: "[exit code 0, no output]"}
"""What the tools answer, and what a person says of one that did its work and was cut off."""
NOT_DONE = "{tool} was not done for {run_id}"
"""What a person says of a use that was cut off before it did anything; the model asks for it again."""


class Mark(NamedTuple):
    """A line of the uses: a function began or ended."""

    what: str
    tool: str
    key: str
    at_us: int
    pid: int


@dataclass(frozen=True)
class Traces:
    """What the tools of all runs did, as the world outside saw it."""

    directory: Path
    lives: Ledger
    """Of the commands."""

    @property
    def variables(self) -> Mapping[str, str]:
        """What workers must know."""
        return {"CHAOS_USES": str(self.directory / "uses"), "MCP_LOG": str(self.directory / "server")}

    def settings(self) -> str:
        """The onward.toml of the workers: the server, and that a person only decides about `pay`."""
        command = [sys.executable, "-S", PROGRAM, "slow", str(self.directory)]
        return (
            f'[mcp.files]\ncommand = {json.dumps(command)}\nenv = ["MCP_LOG"]\n'
            f"[tools.{ECHO}]\napproval = false\n[tools.{SHELL}]\napproval = false\n"
        )

    def marks(self) -> list[Mark]:
        file = self.directory / "uses"
        lines = file.read_text().splitlines() if file.exists() else []
        fields = (line.split(" ") for line in lines)
        return [Mark(what, tool, key, int(at_us), int(pid)) for what, tool, key, at_us, pid in fields]

    def heard(self) -> list[dict[str, Any]]:
        """What all processes of the server were told, with their ids."""
        file = self.directory / "server"
        lines = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def echoed(self) -> list[str]:
        """The runs for which the server was asked to do something, once for each time."""
        return [
            one["params"]["arguments"]["text"] for one in self.heard() if one.get("method") == "tools/call"
        ]

    def servers(self) -> list[int]:
        """The processes of the server that live."""
        return [one["pid"] for one in self.heard() if "pid" in one and self._is_server(one["pid"])]

    def _is_server(self, pid: int) -> bool:
        try:
            return str(self.directory).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    def has_begun(self, run_id: str, tool: str, key: str) -> bool:
        """Whether a use that was cut off had done anything."""
        if tool == ECHO:
            return run_id in self.echoed()
        if tool == SHELL:
            return f"{run_id}/{STEP}" in self.lives.lives()
        return any((mark.what, mark.key) == (BEGIN, key) for mark in self.marks())

    def kill_server(self, choose: Any) -> None:
        """End one process of the server, if there is one."""
        living = self.servers()
        if living:
            os.kill(choose(living), signal.SIGKILL)


def uses_tools(number: int) -> bool:
    """Whether this run does: those with long commands are among them."""
    return number % 2 == 1


def note(what: str, tool: str, key: str) -> None:
    """Write a mark, in one write."""
    line = f"{what} {tool} {key} {time.time_ns() // 1000} {os.getpid()}\n"
    descriptor = os.open(os.environ["CHAOS_USES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def rules(run_ids: Sequence[str], command: str) -> list[ScriptRule]:
    """What the model asks for: one tool after the other, and again what a person says was not done."""
    pay = _asks(_call(PAY, amount=7))
    shell = _asks(_call(SHELL, command=command))
    found = [
        ScriptRule(contains=SAID[ECHO].format(run_id="run-"), reply=pay),
        ScriptRule(contains=f"{PAY} was not done", reply=pay),
        ScriptRule(contains=SAID[PAY], reply=shell),
        ScriptRule(contains=f"{SHELL} was not done", reply=shell),
        ScriptRule(contains="the command was not started", reply=shell),  # its worker woke too late
    ]
    for run_id in run_ids:
        echo = _call(ECHO, text=run_id)
        found += [
            ScriptRule(contains=f"Now use the tools for {run_id}.", reply=_asks(_call(LOOK), echo)),
            ScriptRule(contains=NOT_DONE.format(tool=ECHO, run_id=run_id), reply=_asks(echo)),
        ]
    return found


def _asks(*calls: ToolCall) -> ScriptedReply:
    return ScriptedReply(tool_calls=calls)


def _call(tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"c-{tool}", tool, json.dumps(arguments))


def decided(run_id: str, events: Sequence[Event], calls: Sequence[str], traces: Traces) -> dict[str, Any]:
    """What a person who looked says of uses that are in doubt."""
    names = {event.call: event.name for event in events if isinstance(event, CallStarted)}
    generation = 0  # nothing is retried: a person says what was not done
    return {
        call: SAID[names[call]].format(run_id=run_id)
        if traces.has_begun(run_id, names[call], call_key(run_id, STEP, call, generation))
        else NOT_DONE.format(tool=names[call], run_id=run_id)
        for call in calls
    }


async def judge_tools(
    store: Store, run_ids: Sequence[str], traces: Traces, skew_us: int
) -> tuple[int, list[str]]:
    """How many uses of tools there were, and what is wrong with them, a sentence each."""
    marks, echoed, lives = traces.marks(), traces.echoed(), traces.lives.lives()
    problems = _overlapping(marks)
    for run_id in run_ids:
        records = await store.log.read(run_id, after=0, limit=2**31)
        events = [(unseal(record), record.at_us) for record in records]
        mine = [mark for mark in marks if mark.key.startswith(f"{run_id}/")]
        problems += _late(run_id, events, mine, skew_us)
        done = {
            LOOK: any((mark.what, mark.tool) == (END, LOOK) for mark in mine),
            PAY: sum((mark.what, mark.tool) == (BEGIN, PAY) for mark in mine),
            ECHO: echoed.count(run_id),
            SHELL: len(lives.get(f"{run_id}/{STEP}", ())),
        }
        problems += [
            f"{run_id}: {tool} was done {number} times" for tool, number in done.items() if number > 1
        ]
        # An attempt that failed for another reason is repeated, and the model then uses no tools.
        if not any(_gives_up(event) for event, _ in events):
            problems += [
                f"{run_id}: {tool} was never done, and answered {_answers(events, tool)}"
                for tool, number in done.items()
                if not number
            ]
    problems += [f"process {pid} of the MCP server was left" for pid in traces.servers()]
    commands = sum(len(found) for step, found in lives.items() if step.endswith(STEP))
    return sum(mark.what == BEGIN for mark in marks) + len(echoed) + commands, problems


def _gives_up(event: Event) -> bool:
    """Whether the model asks for no more tools: its step failed, or a server that was killed again and again
    failed a use, which it is told."""
    if isinstance(event, CallFinished) and event.name == ECHO:
        return isinstance(event.value, Mapping) and bool(event.value.get("is_error"))
    return isinstance(event, AttemptFailed) and event.step == STEP


def _answers(events: Sequence[tuple[Event, int]], tool: str) -> list[Any]:
    return [
        event.value or event.error
        for event, _ in events
        if isinstance(event, CallFinished) and event.name == tool
    ]


def _late(run_id: str, events: Sequence[tuple[Event, int]], marks: Sequence[Mark], skew_us: int) -> list[str]:
    """Uses of functions that began after their answer was stored."""
    stored = {
        call_key(run_id, event.step, event.call, 0): at_us
        for event, at_us in events
        if isinstance(event, CallFinished)
        and event.type == CallKind.TOOL.value
        and event.status is CallStatus.OK
    }
    return [
        f"{mark.key} was done again after its answer was stored"
        for mark in marks
        if mark.what == BEGIN and mark.key in stored and mark.at_us > stored[mark.key] + skew_us
    ]


def _overlapping(marks: Sequence[Mark]) -> list[str]:
    """Uses of functions that were under way in two processes at once; of one that never ended, its begin."""
    uses: dict[str, list[tuple[int, int, int]]] = {}
    for mark in marks:
        same = uses.setdefault(mark.key, [])
        if mark.what == BEGIN:
            same.append((mark.at_us, mark.at_us, mark.pid))
            continue
        last = max(place for place, use in enumerate(same) if use[2] == mark.pid)
        same[last] = (same[last][0], mark.at_us, mark.pid)
    return [
        f"{key}: two uses were under way at once for {(before[1] - after[0]) / 1e6:.3f} s: {before}, {after}"
        for key, same in uses.items()
        for before, after in combinations(sorted(same), 2)
        if before[2] != after[2] and before[1] > after[0]
    ]
