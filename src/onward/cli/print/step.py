"""One step of a run as a person reads it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onward.cli.options import Common
from onward.cli.output import clean, count, local_time, one_line, table
from onward.cli.print.run import instant_us, when
from onward.model.ids import called
from onward.model.values import span

if TYPE_CHECKING:
    from onward.replies.steps import StepPage, TryPage

LINES_SHOWN = 10
VALUE_WIDTH = 100
VISITS_MAX = 10


def step_page(page: StepPage, common: Common, now_us: int) -> Iterator[str]:
    """Everything about a step; `page` is what `show RUN STEP --json` prints."""
    reason = f": {one_line(page['reason'], 1_000)}" if page["reason"] else ""
    yield f"step {one_line(page['step'])} of run {called(page['run'])} ({one_line(page['pipeline'])})"
    yield f"  status   {page['status']}{reason}"
    if page["handler"]:
        command = f": {one_line(page['command'], 1_000)}" if page["command"] else ""
        yield f"  handler  {one_line(page['handler'])}{command}"
    if page["started_at"]:
        yield f"  started  {when(page['started_at'], now_us)}"
    if page["duration_s"] is not None:
        yield f"  took     {_took(page['duration_s'], page['elapsed_s'])}"
    if page["next"]:
        yield f"  next     {one_line(page['next']['to'])} ({one_line(page['next']['reason'])})"
    if "answer" in page:
        yield f"  answer   {one_line(page['answer'])} (by {one_line(page.get('by', ''))})"
    if page.get("shortened_to"):
        yield f"  limited  a limit left at most {page['shortened_to']:,} tokens for an answer"
    directory = page["tries"][-1]["directory"] if page["tries"] else None
    if directory:
        yield f"  files    {clean(directory)}"
    if page["receipt"]:
        yield f"  receipt  {clean(page['receipt'])}"
    others = [visit for visit in page["visits"] if visit != page["step"]]
    if others:
        yield f"  visits   also {_visits(others)}"
    yield from _tries(page["tries"], is_running=page["status"] == "running")
    for heading, text in (
        ("QUESTION", page["question"]),
        ("PROMPT", page["prompt"]),
        ("RESPONSE", page["response"]),
        ("NOTES", page["notes"]),
    ):
        yield from _text(heading, text)
    yield from _output(page, common)
    yield from _lines("LOG", page["log"])
    yield from _changes(page)
    yield from _artifacts(page)


def _visits(others: Sequence[str]) -> str:
    """The other visits of the node; of many, the first and the last ones."""
    if len(others) > VISITS_MAX:
        half = VISITS_MAX // 2
        others = [*others[:half], f"… ({len(others) - VISITS_MAX} more)", *others[-half:]]
    return ", ".join(map(one_line, others))


def _took(duration_s: float, elapsed_s: float | None) -> str:
    """Both times, if a person would see a difference."""
    took = span(duration_s)
    return took if elapsed_s is None or span(elapsed_s) == took else f"{took}, {span(elapsed_s)} in all"


def _tries(tries: Sequence[TryPage], *, is_running: bool) -> Iterator[str]:
    if not tries:
        return
    yield ""
    has_several = any(one["number"] > 1 for one in tries)
    rows = [
        (
            f"{one['attempt']}, try {one['number']}" if has_several else str(one["attempt"]),
            "-" if one["started_at"] is None else local_time(instant_us(one["started_at"])),
            "-" if one["duration_s"] is None else span(one["duration_s"]),
            one["outcome"] or ("running" if is_running and one is tries[-1] else "lost"),
            one["reason"],
        )
        for one in tries
    ]
    yield from table(("ATTEMPT", "STARTED", "TOOK", "OUTCOME", ""), rows)


def _text(heading: str, text: str | None) -> Iterator[str]:
    yield from _lines(heading, (text or "").splitlines())


def _lines(heading: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield heading
        yield from (f"  {clean(line)}".rstrip() for line in lines)


def _output(page: StepPage, common: Common) -> Iterator[str]:
    """The end of what the last try printed, and its traceback."""
    last = page["tries"][-1] if page["tries"] else None
    output = None if last is None else last["output"]
    if last is None or output is None:
        return
    printed = [line["text"] for line in output["lines"][-LINES_SHOWN:]]
    more = common.command("logs", called(page["run"]), shlex.quote(one_line(page["step"])))
    which = f"OUTPUT of attempt {last['attempt']}, last lines"
    yield from _lines(f"{which} ({more} prints all)", printed)
    yield from _text("TRACEBACK", output["traceback"])


def _changes(page: StepPage) -> Iterator[str]:
    before, after = page["context_before"], page["context_after"]
    if after is None:
        return
    lines = [f"{one_line(key)}: {_value(before, key)} → {_value(after, key)}" for key in page["changed"]]
    same = len(before.keys() | after.keys()) - len(lines)
    yield from _lines(f"CONTEXT, what it changed ({same} other values)", lines or ["nothing"])


def _value(context: Mapping[str, Any], key: str) -> str:
    if key not in context:
        return "(not set)"
    return one_line(json.dumps(context[key], ensure_ascii=False), VALUE_WIDTH)


def _artifacts(page: StepPage) -> Iterator[str]:
    stored = [
        f"{one_line(one['id'])}: {one_line(one['name'])}, {count(one['size_bytes'], 'byte')}"
        for one in page["artifacts"]
    ]
    removed = [f"{one_line(id)}: removed" for id in page["artifacts_removed"]]
    yield from _lines("ARTIFACTS", [*stored, *removed])
