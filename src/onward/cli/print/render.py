"""Runs as a person reads them: a list, one run, and what to type next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from onward.cli.options import Common
from onward.cli.print.failed_output import failed_lines
from onward.cli.print.gates import question_lines
from onward.cli.print.leftovers import left_lines
from onward.cli.print.text import age, clean, count, local_time, one_line, table
from onward.config import load_settings
from onward.machine.lifecycle import REASONS, resume_flags
from onward.model.chat import chat_of_run
from onward.model.events import WORKTREE, LastOutput
from onward.model.ids import called
from onward.model.values import span
from onward.operations.replies.runs import LimitStop, RunListed, RunState
from onward.read.view import dead_end

SIMULATED = {
    "all": "simulated: nothing is executed",
    "agents": "simulated agents; everything else is executed",
}
FAILURES_SHOWN = 5
BUILT_IN = ("codergen", "tool", "stack.manager_loop")
"""The handlers of every process; a run that needs others needs the app that has them."""
HEADINGS = ("RUN", "PIPELINE", "STATUS", "STEPS", "NEXT", "CHANGED")


def run_table(runs: Sequence[RunListed], now_us: int) -> list[str]:
    """Runs as a table, in the order given."""
    return table(HEADINGS, [_table_row(run, now_us) for run in runs])


def _table_row(run: RunListed, now_us: int) -> Sequence[str]:
    return (
        called(run["id"]),
        run["pipeline"],
        status_words(run),
        str(run["steps_finished"]),
        run["next"] or "-",
        age(instant_us(run["updated_at"]), now_us),
    )


def id_words(run_id: str) -> str:
    """The id of a run after its name, if it is called otherwise."""
    return "" if called(run_id) == run_id else f" (id {run_id})"


def status_words(view: Mapping[str, Any]) -> str:
    """Status and reason, and whether it was dismissed."""
    words = f"{view['status']} ({view['reason']})" if view["reason"] else str(view["status"])
    return f"{words}, dismissed" if view["is_dismissed"] else words


def run_line(run: RunListed) -> str:
    """One run on one line, for output that is not updated in place; the same state gives the same line."""
    steps = count(run["steps_finished"], "step")
    ahead = f"next {run['next']}" if run["next"] else ""
    words = (called(run["id"]), run["pipeline"], status_words(run), steps, ahead)
    waiting = f"  waiting: {one_line(run['waiting_for']['says'], 1_000)}" if run["waiting_for"] else ""
    return "  ".join(one_line(word) for word in words if word) + waiting


def next_command(run: Mapping[str, Any], common: Common, *, answer: Sequence[str] = ()) -> str | None:
    """What to type to continue a run in this state, with the app that it needs.

    `answer` is what follows the run if it waits; without it, `onward answer` asks on a terminal.
    """
    command = _next_command(run, common, answer)
    is_served = common.app or all(kind in BUILT_IN for kind in run["handlers"])
    if command is None or is_served or load_settings().app is not None:
        return command
    return f"{command} --app PACKAGE.MODULE:APP"


def _next_command(run: Mapping[str, Any], common: Common, answer: Sequence[str]) -> str | None:
    name, reason = called(run["id"]), run["reason"]
    match run["status"]:
        case "waiting":
            return common.command("answer", name, *answer)
        case "paused" | "interrupted" | "failed" if flags := resume_flags(reason, run["step_in_doubt"]):
            return common.command("resume", name, flags)
        case "interrupted" if reason == "limit":
            return common.command("resume", name, *_raise(run["limit"]))
        case "queued" | "paused" | "interrupted":
            return common.command("resume", name)
        case "failed" if run["recoverable"]:
            return common.command("resume", name)
        case _:
            return None


def _raise(limit: LimitStop | None) -> tuple[str, ...]:
    """The flag that raises the limit that stopped a run, unless it leaves room by now."""
    return () if limit is None or limit["raise_to"] is None else ("--raise", limit["raise_to"])


def summary(run: RunState) -> str:
    """The state of a run, in one line."""
    name, detail = f"run {called(run['id'])}", one_line(_own_words(run), 1_000)
    match run["status"]:
        case "completed":
            ended_us = instant_us(run["ended_at"] or run["updated_at"])
            where = f"; {dead_end(run['ended_at_node'])}" if run["ended_at_node"] is not None else ""
            took = span((ended_us - instant_us(run["created_at"])) / 1_000_000)
            return f"{name} completed: {count(run['steps_finished'], 'step')} in {took}{where}"
        case "waiting":
            gates = ", ".join(gate["gate"] for gate in run["gates"] if gate["decided"] is None)
            return f"{name} waits for an answer at {gates}"
        case "cancelled":
            return f"{name} cancelled for good" + (f" ({detail})" if detail else "")
        case "running":
            return f"{name} is running"
        case status:
            because = f" ({run['reason']})" if run["reason"] else ""
            ahead = f"; next is {run['next']}" if run["next"] and not detail else ""
            return f"{name} {status}{because}{': ' if detail else ''}{detail}{ahead}"


def _own_words(run: RunListed) -> str:
    """The detail with which the run stopped; empty if it only repeats the reason."""
    reason = REASONS.get(run["reason"])
    return "" if reason is not None and run["detail"] == reason.says else run["detail"]


def run_page(view: Mapping[str, Any], common: Common, now_us: int) -> Iterator[str]:
    """Everything about a run that fits a page; `view` is what `show --json` prints."""
    yield f"run {called(view['id'])}: {one_line(view['pipeline'])}{id_words(view['id'])}"
    detail = one_line(view["detail"], 1_000)
    detail = "" if view["restarted_as"] else detail
    yield f"  status   {status_words(view)}" + (f": {detail}" if detail else "")
    if view["simulated"]:
        yield f"  mode     {SIMULATED[view['simulated']]}"
    if view["waiting_for"]:
        yield f"  waiting  {one_line(view['waiting_for']['says'], 1_000)}"
    if view["holder"]:
        yield f"  held by  {view['holder']}"
    yield f"  started  {when(view['created_at'], now_us)}"
    yield f"  changed  {when(view['updated_at'], now_us)}"
    if view["next"]:
        yield f"  next     {one_line(view['next'])}"
    if view["path"]:
        yield f"  file     {one_line(view['path'])} ({view['pipeline_hash'][:12]})"
    if view["pipeline_version"] is not None:
        registered = f"{one_line(view['pipeline'])}@{view['pipeline_version']}"
        yield f"  version  {registered} ({view['pipeline_hash'][:12]})"
    if view["workdir"]:
        yield f"  cwd      {one_line(view['workdir'], 1_000)}"
    if view["chat"] != chat_of_run(view["id"]):
        yield f"  chat     {one_line(view['chat'])}"
    if view["project"]:
        yield f"  project  {one_line(view['project'])}"
    if view["workspace"]:
        yield f"  work     {workspace_words(view['workspace'])}"
    yield from _lineage(view)
    ahead = next_command(view, common)
    if ahead:
        yield f"  continue {ahead}"
    yield from _steps(view["steps"])
    yield from _failures(view, common)
    if view["left"]:
        yield ""
        yield from left_lines(view["left"])
    yield from _log(view["steps"])
    yield from _gates(view)
    yield from _context(view["context"])


def unserved_lines(runs: Sequence[RunListed]) -> Iterator[str]:
    """What listed runs wait for that no live worker has, each once."""
    found = Counter(run["waiting_for"]["says"] for run in runs if run["waiting_for"])
    for says, number in found.items():
        yield f"{count(number, 'queued run')} waiting: {one_line(says, 1_000)}"


def workspace_words(workspace: Mapping[str, Any]) -> str:
    """Where a run's files are, and the git ref of their last recorded state."""
    where = one_line(workspace["repository"])
    if workspace["mode"] == WORKTREE:
        where += f", branch {workspace['branch']}"
    kept = f"files kept as {workspace['ref']}" if workspace["ref"] else "nothing changed yet"
    return f"{where}, {kept}"


def when(at: str, now_us: int) -> str:
    """An RFC 3339 instant in local time, and how long ago it was."""
    at_us = instant_us(at)
    return f"{local_time(at_us)} ({age(at_us, now_us)})"


def instant_us(at: str) -> int:
    """An RFC 3339 instant in microseconds."""
    from datetime import datetime

    return int(datetime.fromisoformat(at).timestamp() * 1_000_000)


def _lineage(view: Mapping[str, Any]) -> Iterator[str]:
    if view["parent"]:
        yield f"  parent   {called(view['parent']['run'])} at checkpoint {view['parent']['seq']}"
    if view["restart_of"]:
        yield f"  restart  of run {called(view['restart_of'])}"
    if view["restarted_as"]:
        yield f"  continues as run {called(view['restarted_as'])}"
    by = view["managed_by"]
    if by:
        yield f"  manager  {called(by['run'])} in step {one_line(by['step'])}"
    for step in view["steps"]:
        if step.get("child"):
            yield f"  child    {called(step['child'])} of step {one_line(step['step'])}"
    for text in view["steering"]:
        yield f"  steering {one_line(text)} (no agent step has taken it yet)"
    for fork in view["forks"]:
        yield f"  fork     {called(fork['id'])} from checkpoint {fork['seq']} ({fork['status']})"


def _steps(steps: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not steps:
        return
    yield ""
    rows = [
        (
            step["step"],
            step["status"],
            attempts_words(step["attempts"], len(step["tries"])),
            "-" if step["duration_s"] is None else span(step["duration_s"]),
            step.get("answer") or step["reason"],
        )
        for step in steps
    ]
    yield from table(("STEP", "OUTCOME", "ATTEMPTS", "TOOK", ""), rows)


def _failures(view: Mapping[str, Any], common: Common) -> Iterator[str]:
    """The end of what the last try of a failed step printed; of very many steps, the last ones."""
    ends = [(step["step"], step["tries"][-1]) for step in view["steps"] if step["tries"]]
    failed = [(step, last) for step, last in ends if last["output"] is not None]
    for step, last in failed[-FAILURES_SHOWN:]:
        lines = [*failed_lines(msgspec.convert(last["output"], LastOutput), last["reason"])]
        if lines:
            yield ""
            more = common.command("logs", called(view["id"]), shlex.quote(one_line(step)))
            yield f"{one_line(step)}, attempt {last['attempt']}, the last lines ({more} prints all):"
            yield from lines


def attempts_words(attempts: int, tries: int) -> str:
    """How many attempts; and how many tries they took, if some were cut off and started again."""
    return f"{attempts} ({tries} tries)" if tries > attempts else str(attempts)


def _log(steps: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    lines = [(step["step"], line) for step in steps for line in step["log"]]
    if lines:
        yield ""
        yield "LOG"
        for step, line in lines:
            yield f"  {one_line(step)}: {one_line(line)}"


def _gates(view: Mapping[str, Any]) -> Iterator[str]:
    for gate in view["gates"]:
        if gate["decided"] is None:
            yield ""
            yield f"{gate['gate']} asks: {clean(gate['text'])}"
            yield from question_lines(gate)


def _context(context: Mapping[str, Any]) -> Iterator[str]:
    if context:
        import json

        yield ""
        yield "CONTEXT"
        for key in sorted(context):
            value = context[key]
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield f"  {one_line(key)} = {one_line(shown)}"
