"""`onward gc`: forgetting runs that are over."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.numbers import duration, number
from onward.cli.opening import store_with_homes
from onward.cli.options import COMMON, Common, Out
from onward.cli.print.output import Output
from onward.cli.print.text import count
from onward.clock import SystemClock
from onward.engine.control.retention import COLLECTABLE, FINAL, Collected, Collector, Policy
from onward.errors import InvalidInput
from onward.model.ids import display_id
from onward.model.run import RunStatus
from onward.model.values.bounds import KEPT, WAIT
from onward.wiring import kept_trees

OLDER_THAN_S = 30 * 86_400.0


async def gc(
    *,
    older_than: Annotated[
        float | None,
        duration(
            WAIT, help="Only runs that nothing has happened to for so long (30d without --keep; 0d: any age)."
        ),
    ] = None,
    keep: Annotated[
        int | None, number(KEPT, help="Keep the newest so many of them, whatever their age.")
    ] = None,
    status: Annotated[
        str | None,
        Parameter(help="Which runs: completed, cancelled (both by default), failed; with commas between."),
    ] = None,
    keep_files: Annotated[
        bool, Parameter(help="Leave the directories of the runs, with receipts and work trees, as they are.")
    ] = False,
    dry_run: Annotated[bool, Parameter(help="Say what would go, and change nothing.")] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Delete old runs that are over: logs, directories, and content that no other run refers to.

    A run stays as long as another one needs it: a fork that came off it, or an unfinished run that manages
    it, is managed by it, or is linked to it by a restart; and as long as its work tree holds work that is not
    merged. Safe beside workers; killed, it can be run again.
    """
    if older_than is None:
        older_than = OLDER_THAN_S if keep is None else 0.0
    policy = Policy(_statuses(status), older_than, keep or 0)
    async with store_with_homes(common) as (store, homes):
        collector = Collector(store, SystemClock(), None if keep_files else homes, out.note, kept_trees())
        done = await (collector.preview(policy) if dry_run else collector.collect(policy))
    _tell(done, dry_run, out)
    return FINE


def _statuses(named: str | None) -> tuple[RunStatus, ...]:
    if named is None:
        return FINAL
    known = {status.value: status for status in COLLECTABLE}
    words = [word.strip() for word in named.split(",")]
    for word in words:
        if word not in known:
            raise InvalidInput(
                f"--status {word!r} cannot be collected, only {', '.join(known)}; "
                "`onward cancel` a run that is not over first."
            )
    return tuple(dict.fromkeys(known[word] for word in words))


def _tell(done: Collected, dry_run: bool, out: Output) -> None:
    runs = f"{count(len(done.runs), 'run')} with {count(done.events, 'event')}"
    if dry_run:
        for run_id in done.runs:
            out.say(f"run {display_id(run_id)} (id {run_id})")
        out.say(f"{runs} would be deleted, and what only they refer to")
    else:
        what = f"{count(done.swept.blobs, 'blob')} ({done.swept.bytes:,} bytes)"
        out.say(f"deleted {runs}, {what}, {_directories(done.directories)}")
    if done.needed:
        out.say(f"{count(done.needed, 'run')} old enough, and kept because others need them")
    for one in done.unmerged:
        out.note(
            f"run {display_id(one.run)} stays: its work tree {one.directory} {one.why}; commit and merge "
            f"that, or give it up: git worktree remove --force {one.directory}."
        )
    if out.is_json:
        out.value(
            {
                "dry_run": dry_run,
                "runs": done.runs,
                "events": done.events,
                "needed": done.needed,
                "unmerged": [
                    {"run": one.run, "directory": one.directory, "why": one.why} for one in done.unmerged
                ],
                "blobs": done.swept.blobs,
                "blob_bytes": done.swept.bytes,
                "directories": done.directories,
            }
        )


def _directories(number: int) -> str:
    return f"{number:,} run {'directory' if number == 1 else 'directories'}"
