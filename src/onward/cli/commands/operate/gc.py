"""`onward gc`: forgetting runs that are over."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.numbers import duration, number
from onward.cli.opening.operating import collector_of
from onward.cli.options import COMMON, Common, Out
from onward.cli.print.output import Output
from onward.cli.print.render import id_words
from onward.cli.print.text import count
from onward.model.ids import called
from onward.model.values import KEPT, WAIT
from onward.operations.here.directories import collect_runs
from onward.operations.here.replies import RunsCollected
from onward.operations.here.requests import CollectRuns


async def gc(
    *,
    older_than: Annotated[
        float | None,
        duration(
            WAIT, help="Only runs that have been idle this long (30d unless --keep is given; 0d: any age)."
        ),
    ] = None,
    keep: Annotated[
        int | None, number(KEPT, help="Keep this many of them, the newest, whatever their age.")
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
    named = {} if status is None else {"statuses": tuple(word.strip() for word in status.split(","))}
    request = CollectRuns(**named, older_than_s=older_than, keep=keep, dry_run=dry_run)
    async with collector_of(common, out.note, keep_files=keep_files) as collector:
        done = await collect_runs(collector, request)
    _tell(done, out)
    return FINE


def _tell(done: RunsCollected, out: Output) -> None:
    runs = f"{count(len(done['runs']), 'run')} with {count(done['events'], 'event')}"
    if done["dry_run"]:
        for run_id in done["runs"]:
            out.say(f"run {called(run_id)}{id_words(run_id)}")
        out.say(f"{runs} would be deleted, and what only they refer to")
    else:
        what = f"{count(done['blobs'], 'blob')} ({done['blob_bytes']:,} bytes)"
        out.say(f"deleted {runs}, {what}, {_directories(done['directories'])}")
    if done["needed"]:
        out.say(f"{count(done['needed'], 'run')} old enough, and kept because others need them")
    for one in done["unmerged"]:
        out.note(
            f"run {called(one['run'])} stays: its work tree {one['directory']} {one['why']}; commit and "
            f"merge that, or give it up: git worktree remove --force {one['directory']}."
        )
    if out.is_json:
        out.value(done)


def _directories(number: int) -> str:
    return f"{number:,} run {'directory' if number == 1 else 'directories'}"
