"""`onward status`: the list of runs, or one of them. It must be quick, so it imports little."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from cyclopts import Parameter

from onward.cli.commands.look.listing import ALL, Wanted
from onward.cli.exits import FINE
from onward.cli.numbers import number
from onward.cli.opening import store_to_look_at
from onward.cli.options import COMMON, Common, Out, RunName
from onward.cli.print.output import Output
from onward.cli.print.render import gate_lines, next_command, run_table, status_words
from onward.cli.print.text import age, count, one_line
from onward.clock import SystemClock
from onward.errors import NoDatabase
from onward.model.run import RunStatus
from onward.model.values.bounds import LIMIT
from onward.read.lookup import completed_of
from onward.read.view import view_gate, view_row
from onward.store.port.runs import Listed
from onward.store.port.store import Store

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
        Parameter(
            name="--status", help="Only runs that stand like this. May be repeated.", show_default=False
        ),
    ] = (),
    limit: Annotated[int, number(LIMIT, help="How many runs to list, newest first.")] = 50,
    every: Annotated[bool, Parameter(name="--all", help="List every run.")] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """List runs, newest first, or say how one stands."""
    wanted = Wanted(run, statuses, ALL if every else limit)
    try:
        async with store_to_look_at(common) as store:
            await _tell(store, wanted, watch, common, out)
    except NoDatabase as error:
        if run is not None:
            raise
        if out.is_json:
            out.value([])
        out.say(f"no runs: {error}")
    return FINE


async def _tell(store: Store, wanted: Wanted, watch: bool, common: Common, out: Output) -> None:
    if watch:
        from onward.cli.commands.look.watch import watch_runs

        await watch_runs(store, wanted, out)
        return
    found = await wanted.find(store)
    if out.is_json:
        views = [view_row(one.row, one.holder, await completed_of(store.log, one.row.id)) for one in found]
        out.value(views if wanted.run is None else views[0])
        return
    lines = _one(found[0], common) if wanted.run is not None else await _list(store, found, wanted)
    for line in lines:
        out.say(line)
    if wanted.run is not None and found[0].row.status is RunStatus.WAITING:
        await _tell_questions(store, found[0].row.id, out)


async def _tell_questions(store: Store, run_id: str, out: Output) -> None:
    """What a waiting run waits for; only then is its log worth reading."""
    from onward.engine.log.journal import Journal

    run = (await Journal(store.log, SystemClock()).load(run_id)).run
    for gate in (gate for gate in run.gates.values() if gate.decided is None):
        for line in gate_lines(view_gate(gate)):
            out.say(f"  {line}")


def _one(listed: Listed, common: Common) -> Iterator[str]:
    row, view = listed.row, view_row(listed.row, listed.holder)
    yield f"run {row.display_id}: {one_line(row.pipeline)} (id {row.id})"
    detail = one_line(view["detail"], 1_000)
    yield f"  status   {status_words(view)}" + (f": {detail}" if detail else "")
    if view["holder"]:
        yield f"  held by  {view['holder']}"
    yield f"  steps    {row.steps_finished} finished" + (f", next {row.next_node}" if row.next_node else "")
    yield f"  changed  {age(row.updated_at_us, SystemClock().now_us())}"
    ahead = next_command(view["status"], view["reason"], view["recoverable"], row.id, common)
    if ahead:
        yield f"  go on    {ahead}"


async def _list(store: Store, found: Sequence[Listed], wanted: Wanted) -> Sequence[str]:
    if not found:
        which = f" that are {' or '.join(wanted.statuses)}" if wanted.statuses else ""
        return [f"no runs{which}"]
    lines = run_table(found, SystemClock().now_us())
    if len(found) == wanted.limit:
        total = sum((await store.runs.count()).values())
        if total > len(found) and not wanted.statuses:
            lines.append(f"… and {count(total - len(found), 'older run')}; --all lists every run")
    return lines
