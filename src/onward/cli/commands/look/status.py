"""`onward status`: the list of runs, or one of them. It must be quick, so it imports little."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.numbers import number
from onward.cli.opening.looking import lists_of
from onward.cli.options import COMMON, Common, Out, RunName
from onward.cli.print.gates import gate_lines
from onward.cli.print.output import Output
from onward.cli.print.render import (
    id_words,
    instant_us,
    next_command,
    run_table,
    status_words,
    unserved_lines,
)
from onward.cli.print.text import age, count, one_line
from onward.clock import SystemClock
from onward.errors import InvalidInput, NoDatabase
from onward.model.ids import called
from onward.model.run import RunStatus
from onward.model.values import LIMIT
from onward.operations.protocol import ListOperations
from onward.operations.replies.runs import LimitStop, RunList, RunListed
from onward.operations.requests import ALL, GetRun, ListRuns, RunGates

StatusName = Literal[
    "queued", "running", "waiting", "paused", "interrupted", "failed", "completed", "cancelled"
]


async def status(
    run: RunName | None = None,
    /,
    *,
    watch: Annotated[bool, Parameter(help="Keep it up to date until Ctrl-C.")] = False,
    statuses: Annotated[
        tuple[StatusName, ...],
        Parameter(name="--status", help="Only runs with this status. May be repeated.", show_default=False),
    ] = (),
    tags: Annotated[
        tuple[str, ...],
        Parameter(name="--tag", help="Only runs with this tag; repeated, with all.", show_default=False),
    ] = (),
    limit: Annotated[int, number(LIMIT, help="How many runs to list, newest first.")] = 50,
    every: Annotated[bool, Parameter(name="--all", help="List every run.")] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """List runs, newest first, or show the status of one."""
    if run is not None and (every or statuses):
        raise InvalidInput(
            f"{'--all' if every else '--status'} is for the list of runs; leave it off, or the run."
        )
    wanted = ListRuns(
        run=run,
        statuses=tuple(map(RunStatus, statuses)),
        tags=tags,
        limit=ALL if every else limit,
        completed=out.is_json and not watch,
        older=not (watch or out.is_json),
    )
    try:
        async with lists_of(common) as lists:
            await _tell(lists, wanted, watch, common, out)
    except NoDatabase as error:
        if run is not None:
            raise
        if out.is_json:
            out.value([])
        out.say(f"no runs: {error}")
    return FINE


async def _tell(lists: ListOperations, wanted: ListRuns, watch: bool, common: Common, out: Output) -> None:
    if watch:
        from onward.cli.commands.look.watch import watch_runs

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
    limit = await lists.run_limit(GetRun(run=run["id"])) if run["reason"] == "limit" else None
    for line in _one(run, limit, common):
        out.say(line)
    for gate in await lists.run_gates(RunGates(run=run["id"])) if run["status"] == "waiting" else ():
        for line in gate_lines(gate):
            out.say(f"  {line}")


def _one(run: RunListed, limit: LimitStop | None, common: Common) -> Iterator[str]:
    yield f"run {called(run['id'])}: {one_line(run['pipeline'])}{id_words(run['id'])}"
    detail = one_line(run["detail"], 1_000)
    yield f"  status   {status_words(run)}" + (f": {detail}" if detail else "")
    if run["waiting_for"]:
        yield f"  waiting  {one_line(run['waiting_for']['says'], 1_000)}"
    if run["holder"]:
        yield f"  held by  {run['holder']}"
    yield f"  steps    {run['steps_finished']} finished" + (f", next {run['next']}" if run["next"] else "")
    yield f"  changed  {age(instant_us(run['updated_at']), SystemClock().now_us())}"
    ahead = next_command({**run, "limit": limit}, common)
    if ahead:
        yield f"  continue {ahead}"


def _list(found: RunList, wanted: ListRuns) -> Iterator[str]:
    if not found["runs"]:
        kind = f" that are {' or '.join(wanted.statuses)}" if wanted.statuses else ""
        yield "no runs" + kind + (f" with the tags {', '.join(wanted.tags)}" if wanted.tags else "")
        return
    yield from run_table(found["runs"], SystemClock().now_us())
    yield from unserved_lines(found["runs"])
    if found["older"]:
        yield f"… and {count(found['older'], 'older run')}; --all lists every run"
