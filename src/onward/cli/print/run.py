"""Runs as a person reads them: a list, one run, its questions, what steps left, and what to type next.

A question says what is asked, what it is about, and what can be answered. What a step in doubt left is for
the person who decides about it. The last lines of an attempt that failed stand below the line that says so.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from onward.cli.kept_apps import has_kept_app
from onward.cli.options import Common
from onward.cli.output import age, clean, count, local_time, one_line, table
from onward.config import load_settings
from onward.machine.reasons import is_at_limit as is_at_limit
from onward.machine.reasons import reason_of, resume_flags
from onward.model.chat import chat_of_run
from onward.model.events import WORKTREE, LastOutput
from onward.model.ids import called, is_in_step
from onward.model.values import read_rfc3339, span
from onward.pipeline.edges import accelerator, has_accelerator, without_accelerator
from onward.pipeline.flow_source import is_flow_kind
from onward.read.view import dead_end

if TYPE_CHECKING:
    from onward.replies.runs import LimitStop, RunListed, RunState

SIMULATED = {
    "all": "simulated: nothing is executed",
    "agents": "simulated agents; everything else is executed",
}
FAILURES_SHOWN = 5
FLOW_STEPS_SHOWN = 30
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
    if has_kept_app(load_settings(db=common.db), run["id"]):
        return command
    is_flow = all(kind in BUILT_IN or is_flow_kind(kind) for kind in run["handlers"])
    return f"{command} --app {'FILE.py' if is_flow else 'PACKAGE.MODULE:APP'}"


def _next_command(run: Mapping[str, Any], common: Common, answer: Sequence[str]) -> str | None:
    name, reason = called(run["id"]), run["reason"]
    match run["status"]:
        case "waiting" if asleep_until(run):
            return common.command("resume", name)
        case "waiting" | "interrupted" if command := _of_awaited(run, common):
            return command
        case "waiting":
            return common.command("answer", name, *answer)
        case "paused" | "interrupted" | "failed" if flags := resume_flags(reason, run["step_in_doubt"]):
            return common.command("resume", name, flags)
        case "interrupted" if is_at_limit(reason):
            return common.command("resume", name, *_raise(run["limit"]))
        case "queued" | "paused" | "interrupted":
            return common.command("resume", name)
        case "failed" if run["recoverable"]:
            return common.command("resume", name)
        case _:
            return None


def _of_awaited(run: Mapping[str, Any], common: Common) -> str | None:
    """What to type about the first of the runs that it waits for; None if it asks something itself.

    A run in a list does not say what it waits for.
    """
    awaits = run.get("awaits", ())
    if any(gate["decided"] is None for gate in run["gates"]):
        return None
    for child in awaits:
        match child["status"]:
            case "waiting":
                return common.command("answer", called(child["id"]))
            case "paused" | "interrupted":
                return common.command("resume", called(child["id"]))
    return common.command("resume", called(run["id"])) if awaits else None


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
        case "waiting" if until := asleep_until(run):
            return f"{name} waits until {until}; a worker continues it then, or you do"
        case "waiting":
            gates = ", ".join(gate["gate"] for gate in run["gates"] if gate["decided"] is None)
            return f"{name} waits for an answer at {gates}" if gates else f"{name} waits {detail}"
        case "cancelled":
            return f"{name} cancelled for good" + (f" ({detail})" if detail else "")
        case "running":
            return f"{name} is running"
        case status:
            because = f" ({run['reason']})" if run["reason"] else ""
            ahead = f"; next is {run['next']}" if run["next"] and not detail else ""
            return f"{name} {status}{because}{': ' if detail else ''}{detail}{ahead}"


def asleep_until(run: Mapping[str, Any]) -> str | None:
    """When a run continues that waits for a time and for no answer, in local time; None for any other run.

    `run` needs its `gates`: a row of a list does not say what it waits for.
    """
    is_asleep = run["status"] == "waiting" and run["wake_at"] is not None
    if not is_asleep or any(gate["decided"] is None for gate in run["gates"]):
        return None
    return when(run["wake_at"])


def standing(run: Mapping[str, Any]) -> str:
    """The status with its reason and detail, as the page of a run says it."""
    if until := asleep_until(run):
        return f"{status_words(run)} until {until}"
    detail = "" if run.get("restarted_as") else one_line(run["detail"], 1_000)
    return status_words(run) + (f": {detail}" if detail else "")


def _own_words(run: RunListed) -> str:
    """The detail with which the run stopped; empty if it only repeats the reason."""
    return "" if run["detail"] == reason_of(run["reason"]).says else run["detail"]


def is_holder_dead(run: RunListed) -> bool:
    """Whether the run stopped because the process that executed it is gone."""
    return reason_of(run["reason"]).holder_died


def run_page(view: Mapping[str, Any], common: Common, now_us: int) -> Iterator[str]:
    """Everything about a run that fits a page; `view` is what `show --json` prints."""
    yield f"run {called(view['id'])}: {one_line(view['pipeline'])}{id_words(view['id'])}"
    yield f"  status   {standing(view)}"
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
    yield from _steps_of_flows(view, common)
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


def when(at: str, now_us: int | None = None) -> str:
    """An RFC 3339 instant in local time, as people are shown every time; with `now_us`, how long ago too."""
    at_us = instant_us(at)
    return local_time(at_us) if now_us is None else f"{local_time(at_us)} ({age(at_us, now_us)})"


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
        yield f"  steering {one_line(text)} (no agent step has received it yet)"
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


def _steps_of_flows(view: Mapping[str, Any], common: Common) -> Iterator[str]:
    """The steps inside flows, which are calls; of very many, the last ones."""
    if not any(is_flow_kind(kind) for kind in view["handlers"]):
        return
    calls = [row for row in view["timeline"] if row["kind"] == "call"]
    if not calls:
        return
    yield ""
    rows = [
        (row["key"].partition(":")[2].rpartition(".")[0], row["state"], one_line(row["label"], 60))
        for row in calls[-FLOW_STEPS_SHOWN:]
    ]
    yield from table(("STEP OF THE FLOW", "STATE", "CALLED"), rows)
    if len(calls) > FLOW_STEPS_SHOWN:
        yield f"and {len(calls) - FLOW_STEPS_SHOWN:,} before: {common.command('calls', called(view['id']))}"


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
        yield ""
        yield "CONTEXT"
        for key in sorted(context):
            yield f"  {one_line(key)} = {value_words(context[key])}"


def value_words(value: Any) -> str:
    """A value of the context in one line: text as it is, anything else as JSON."""
    import json

    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


ABOUT_LINES = 20
DESCRIPTION_CHARACTERS = 500
COLORS = ("colors", "colours")


def gate_lines(gate: Mapping[str, Any], *, is_whole: bool = False) -> Iterator[str]:
    """A question, what it is about, its possible answers, and its deadline; `gate` is from `view_gate`.

    Unless `is_whole`, a long text that it is about is cut.
    """
    yield f"{gate['gate']}: {clean(gate['text'])}"
    yield from question_lines(gate, is_whole=is_whole)


def question_lines(gate: Mapping[str, Any], *, is_whole: bool = False) -> Iterator[str]:
    """The same without its text."""
    yield from _about(gate["about"], is_whole=is_whole)
    yield from _offers(gate)


def _about(text: str, *, is_whole: bool = False) -> Iterator[str]:
    lines = clean(text).strip().splitlines()
    shown = lines if is_whole else lines[:ABOUT_LINES]
    for line in shown:
        yield f"  | {line}".rstrip()
    if len(shown) < len(lines):
        yield f"  | … {count(len(lines) - len(shown), 'more line')}; `onward answer` shows all"


def _beside_its_key(choice: Mapping[str, Any]) -> str:
    """The label of a choice, which need not write the key that it is printed beside."""
    label = str(choice["label"])
    is_told = has_accelerator(label) and accelerator(label).upper() == choice["key"].upper()
    return without_accelerator(label) if is_told else label


def _offers(gate: Mapping[str, Any]) -> Iterator[str]:
    if gate["type"] == "freeform":
        yield "  answer in your own words"
    else:
        for choice in gate["choices"]:
            yield f"  {choice['key']:<3} {one_line(_beside_its_key(choice))}{_leads_to(gate, choice)}"
            yield from (f"      {line}" for line in _data(choice["data"]))
    if gate["deadline"]:
        then = f", then {_rule(gate)}" if "on_timeout" in gate else ""  # a list of gates has no rules
        yield f"  until {local_time(read_rfc3339(gate['deadline']))}{then}"


def _data(data: Mapping[str, Any]) -> Iterator[str]:
    """What a person may want to know of a choice before choosing it; the rest is for later steps."""
    if isinstance(data.get("description"), str):
        yield one_line(data["description"], DESCRIPTION_CHARACTERS)
    for name in COLORS:
        if isinstance(data.get(name), list | dict):
            yield f"{name}: {' '.join(_swatches(data[name]))}"


def _swatches(colors: Sequence[Any] | Mapping[str, Any]) -> Iterator[str]:
    """Each colour as it is written, with its name if it has one."""
    pairs = colors.items() if isinstance(colors, Mapping) else (("", color) for color in colors)
    for name, color in pairs:
        yield one_line(f"{name} {color}" if name else str(color))


def _leads_to(gate: Mapping[str, Any], choice: Mapping[str, Any]) -> str:
    """Where a choice leads; the answer to a question of a step goes to that step."""
    if choice["to"]:
        return f"  → {one_line(choice['to'])}"
    return "" if is_in_step(gate["gate"]) else "  → ends the run as rejected"


def _rule(gate: Mapping[str, Any]) -> str:
    match gate["on_timeout"]:
        case "default":
            default = next(choice for choice in gate["choices"] if choice["key"] == gate["default"])
            return f"it takes {one_line(default['label'])}"
        case "reject":
            return "it is rejected"
        case _:
            return "it stays open"


FILES_SHOWN = 10
EFFECTS = {"begun": "is running", "in_doubt": "started and never finished", "finished": "has finished"}


def left_lines(left: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A few lines for each step; `left` comes from `view_left`."""
    for one in left:
        where = f"{one_line(one['step'])} was cut off in attempt {one['attempt']}"
        yield f"{where}; what it left: {one['assessment']}"
        call = one["call"]
        if call["handler"]:
            command = f": {one_line(call['command'])}" if call["command"] else ""
            yield f"  open call  {one_line(call['handler'])}{command}"
        yield from _files("its files", one["directory"], one["files"], one["files_count"])
        yield from _files("changed in", one["place"], one["changed"], one["changed_count"])
        for effect in one["effects"]:
            about = f": {one_line(effect['about'])}" if effect["about"] else ""
            yield f"  effect     {one_line(effect['key'])} {EFFECTS[effect['state']]}{about}"
        for why in one["unseen"]:
            yield f"  not seen   {one_line(why)}"


def _files(what: str, where: str | None, files: Sequence[Mapping[str, Any]], total: int) -> Iterator[str]:
    if not files:
        return
    yield f"  {what:<10} {clean(where or '')}"
    for file in files[:FILES_SHOWN]:
        yield f"    {one_line(file['path'])}{_size(file)}"
    if total > FILES_SHOWN:
        yield f"    and {total - FILES_SHOWN:,} more"


def _size(file: Mapping[str, Any]) -> str:
    if file["bytes"] is not None:
        return f" ({count(file['bytes'], 'byte')})"
    return "" if file["path"].endswith("/") else " (removed)"


LINES_SHOWN = 10
TRACEBACK_LINES_SHOWN = 15
"""Enough for the line of a step that raised, and the line of the flow that called it."""
ALL = 1_000_000


def failed_lines(output: LastOutput | None, reason: str) -> Iterator[str]:
    """The end of the traceback or of what was printed, unless the reason, as it is shown, says the same."""
    if output is None:
        return
    lines = output.ending(TRACEBACK_LINES_SHOWN if output.traceback else LINES_SHOWN)
    if one_line(" ".join(lines), ALL) in one_line(reason):
        return
    for line in lines:
        yield f"    | {clean(line)}".rstrip()
