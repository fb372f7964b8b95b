"""`onward status`, `stats` and `notifications`: runs, the database in numbers, what people were told.

`status` must be quick, so this imports little. With --watch its list is kept up to date. `stats` needs the
database alone. `notifications` lists notifications, sent and pending, and how sending went.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from onward.cli.operations import lists_of, notifications_of
from onward.cli.options import COMMON, Common, Out, RunName, number
from onward.cli.output import FINE, Output, age, count, one_line, table
from onward.cli.print.run import (
    gate_lines,
    id_words,
    instant_us,
    is_at_limit,
    next_command,
    run_line,
    run_table,
    standing,
    unserved_lines,
    when,
)
from onward.cli.signals import on_signals
from onward.clock import SystemClock
from onward.errors import InvalidInput, NoDatabase
from onward.model.ids import called
from onward.model.run import RunStatus
from onward.model.values import LIMIT, span
from onward.operations import requests

if TYPE_CHECKING:
    from onward.operations.protocol import ListOperations
    from onward.replies.database import NotificationShown, Stats
    from onward.replies.runs import RunList, RunListed

StatusName = Literal[
    "queued", "running", "waiting", "paused", "interrupted", "failed", "completed", "cancelled"
]


async def status(
    run: RunName | None = None,
    /,
    *,
    watch: Annotated[bool, Parameter(help="Refresh the output until Ctrl-C.")] = False,
    statuses: Annotated[
        tuple[StatusName, ...],
        Parameter(name="--status", help="Only runs with this status. Repeatable.", show_default=False),
    ] = (),
    tags: Annotated[
        tuple[str, ...],
        Parameter(
            name="--tag",
            help="Only runs with this tag. If repeated: only runs with all of these tags.",
            show_default=False,
        ),
    ] = (),
    limit: Annotated[int, number(LIMIT, help="How many runs to list, newest first.")] = 50,
    every: Annotated[bool, Parameter(name="--all", help="List every run.")] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """List runs, newest first, or show the status of one."""
    if run is not None and (every or statuses):
        raise InvalidInput(
            f"{'--all' if every else '--status'} applies to the list of runs; leave it out, or leave out the "
            "run."
        )
    wanted = requests.ListRuns(
        run=run,
        statuses=tuple(map(RunStatus, statuses)),
        tags=tags,
        limit=requests.ALL if every else limit,
        completed=out.is_json and not watch,
        older=not (watch or out.is_json),
    )
    try:
        async with lists_of(common) as lists:
            await _tell_status(lists, wanted, watch, common, out)
    except NoDatabase as error:
        if run is not None:
            raise
        if out.is_json:
            out.value([])
        out.say(f"no runs: {error}")
    return FINE


async def _tell_status(
    lists: ListOperations, wanted: requests.ListRuns, watch: bool, common: Common, out: Output
) -> None:
    if watch:
        await watch_runs(lists, wanted, out)
        return
    found = await lists.list_runs(wanted)
    runs = found["runs"]
    if out.is_json:
        out.value(runs if wanted.run is None else runs[0])
        return
    if wanted.run is None:
        for line in _list(found, wanted):
            out.say(line)
        return
    # Only for a run that a limit or a gate stopped is its log worth reading.
    (run,) = runs
    limit = await lists.run_limit(requests.GetRun(run=run["id"])) if is_at_limit(run["reason"]) else None
    gates = await lists.run_gates(requests.RunGates(run=run["id"])) if run["status"] == "waiting" else []
    for line in _one({**run, "limit": limit, "gates": gates}, common):
        out.say(line)
    for gate in gates:
        for line in gate_lines(gate):
            out.say(f"  {line}")


def _one(run: Mapping[str, Any], common: Common) -> Iterator[str]:
    yield f"run {called(run['id'])}: {one_line(run['pipeline'])}{id_words(run['id'])}"
    detail = one_line(run["detail"], 1_000)
    yield f"  status   {standing(run)}"
    if run["status"] != "completed" and not (detail and detail.casefold() in run["now"].casefold()):
        yield f"  now      {one_line(run['now'], 1_000)}"
    if run["waiting_for"]:
        yield f"  waiting  {one_line(run['waiting_for']['says'], 1_000)}"
    if run["holder"]:
        yield f"  held by  {run['holder']}"
    yield f"  steps    {run['steps_finished']} finished" + (f", next {run['next']}" if run["next"] else "")
    yield f"  changed  {age(instant_us(run['updated_at']), SystemClock().now_us())}"
    ahead = next_command(run, common)
    if ahead:
        yield f"  continue {ahead}"


def _list(found: RunList, wanted: requests.ListRuns) -> Iterator[str]:
    if not found["runs"]:
        kind = f" that are {' or '.join(wanted.statuses)}" if wanted.statuses else ""
        yield "no runs" + kind + (f" with the tags {', '.join(wanted.tags)}" if wanted.tags else "")
        return
    yield from run_table(found["runs"], SystemClock().now_us())
    yield from unserved_lines(found["runs"])
    if found["older"]:
        yield f"… and {count(found['older'], 'older run')}; --all lists every run"


POLL_S = 0.5


async def watch_runs(lists: ListOperations, wanted: requests.ListRuns, out: Output) -> None:
    """Until Ctrl-C; one run only until it has ended. A terminal is redrawn, a pipe gets what changed."""
    asked = asyncio.Event()
    with on_signals(asked.set):
        if out.is_live:
            await _redraw(lists, wanted, asked)
        else:
            await _tell_changes(lists, wanted, out, asked)


async def _redraw(lists: ListOperations, wanted: requests.ListRuns, asked: asyncio.Event) -> None:
    from rich.live import Live
    from rich.text import Text

    clock = SystemClock()
    with Live(auto_refresh=False) as live:
        while not asked.is_set():
            found = (await lists.list_runs(wanted))["runs"]
            # What does not fit a screen cannot be redrawn; the newest are on top.
            rows = [*run_table(found, clock.now_us()), *unserved_lines(found)]
            rows = rows[: max(live.console.height - 1, 2)]
            live.update(Text("\n".join(rows), no_wrap=True, overflow="ellipsis"), refresh=True)
            if _has_ended(wanted, found):
                return
            await clock.wait_s(POLL_S, asked)


async def _tell_changes(
    lists: ListOperations, wanted: requests.ListRuns, out: Output, asked: asyncio.Event
) -> None:
    told: dict[str, str] = {}
    while not asked.is_set() and not out.is_gone:
        found = (await lists.list_runs(wanted))["runs"]
        for run in reversed(found):
            line = run_line(run)
            if told.get(run["id"]) == line:
                continue
            told[run["id"]] = line
            if out.is_json:  # only of what changed is the log worth reading
                (told_of,) = (await lists.list_runs(requests.ListRuns(run=run["id"], completed=True)))["runs"]
                out.value(told_of)
            else:
                out.say(line)
        if _has_ended(wanted, found):
            return
        await SystemClock().wait_s(POLL_S, asked)


def _has_ended(wanted: requests.ListRuns, found: Sequence[RunListed]) -> bool:
    return wanted.run is not None and found[0]["ended_at"] is not None


UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


async def stats(*, common: Common = COMMON, out: Out) -> int:
    """Summarize the database: runs by status and reason, the queue, held runs, stalled runs.

    The numbers are exact and from one snapshot; counting stays cheap, however many runs have ended.
    """
    async with lists_of(common) as lists:
        found = await lists.get_stats(requests.GetStats())
    if out.is_json:
        out.value(found)
        return FINE
    for line in _stats_lines(found):
        out.say(line)
    return FINE


def _stats_lines(found: Stats) -> Iterator[str]:
    runs, queue = found["runs"], found["queue"]
    yield f"{count(runs['total'], 'run')}, {runs['recoverable']:,} recoverable"
    rows = [
        (
            one["status"],
            one_line(one["reason"]) or "–",
            f"{one['runs']:,}",
            "yes" if one["recoverable"] else "",
        )
        for one in runs["by_reason"]
    ]
    if rows:
        yield from (f"  {line}" for line in table(("STATUS", "REASON", "RUNS", "RECOVERABLE"), rows))
    age = f", the oldest for {span(queue['age_s'])}" if queue["due"] else ""
    yield f"queue     {queue['due']:,} due{age}; {queue['later']:,} later"
    if queue["stuck"]:
        yield f"stuck     {count(len(queue['stuck']), 'due run')} could not be claimed"
        yield from (
            f"  run {called(one['run'])}, {count(one['failures'], 'time')}: {one_line(one['why'])}"
            for one in queue["stuck"]
        )
    for one in queue["unserved"]:
        yield f"waiting   {count(one['runs'], 'due run')}: {one_line(one['says'], 1_000)}"
    yield f"held      {runs['held']:,}, of them {runs['stalled']:,} stalled"
    notify = found["notifications"]
    if notify["waiting"] or notify["failed"]:
        yield f"notify    {notify['waiting']:,} waiting, {notify['failed']:,} failed"
    for window, ended in found["ended"].items():
        told = ", ".join(f"{number:,} {status}" for status, number in ended.items())
        yield f"last {window:<5}{told}"
    yield f"database  {size(found['database_bytes'])}"
    if found["workers"]:
        workers = [(one["worker"], f"{one['runs']:,}", f"{one['stalled']:,}") for one in found["workers"]]
        yield from table(("WORKER", "RUNS", "STALLED"), workers)


def size(number: int) -> str:
    """Bytes for people."""
    amount, unit = float(number), 0
    while amount >= 1024 and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{number:,} B" if unit == 0 else f"{amount:.1f} {UNITS[unit]}"


async def notifications(
    run: RunName | None = None,
    /,
    *,
    failed: Annotated[bool, Parameter(help="Only notifications that failed for good.")] = False,
    waiting: Annotated[bool, Parameter(help="Only pending notifications.")] = False,
    limit: Annotated[int, number(LIMIT, help="How many to list, newest first.")] = 50,
    retry: Annotated[
        str | None, Parameter(help="Deliver this notification again, even if it was delivered.", metavar="ID")
    ] = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """List the notifications of one run or of all, newest first, with their tries and errors.

    Workers and foreground runs deliver them; [notify] in onward.toml configures this (docs/notifications.md).
    """
    if failed and waiting:
        raise InvalidInput("--failed and --waiting contradict each other; give one of them.")
    if retry is not None:
        return await _retry_notification(retry, common, out)
    state: Literal["failed", "waiting"] | None = "failed" if failed else "waiting" if waiting else None
    async with notifications_of(common) as told:
        page = await told.list_notifications(requests.ListNotifications(run=run, state=state, limit=limit))
    found = page["notifications"]
    if out.is_json:
        out.value(page)
    elif not found:
        out.say("no notifications")
    else:
        for line in table(
            ("ID", "RUN", "EVENT", "STATE", "TRIES", "AT", "WHY"), [*map(_notification_row, found)]
        ):
            out.say(line)
        if page["cursor"] is not None:
            out.say(f"these are the newest {len(found):,}; --limit shows more")
    return FINE


async def _retry_notification(id: str, common: Common, out: Output) -> int:
    async with notifications_of(common) as told:
        page = await told.retry_notification(requests.RetryNotification(id=id))
    found = page["notifications"]
    who = "" if len(found) == 1 else f" for {count(len(found), 'subscriber')}"
    out.say(f"notification {id} is due{who}; the next worker or run with [notify] delivers it")
    if out.is_json:
        out.value(page)
    return FINE


def _notification_row(one: NotificationShown) -> tuple[str, ...]:
    why = one_line(one["error"]) if one["state"] != "delivered" else ""
    at = when(one["created_at"], SystemClock().now_us())
    return one["id"], called(one["run"]), one["event"], one["state"], str(one["tries"]), at, why
