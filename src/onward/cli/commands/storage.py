"""`onward export`, `import` and `gc`: whole runs out of the database, into it, and old ones deleted.

An export is one file, for backups and for another database.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, BinaryIO

import zstandard
from cyclopts import Parameter

from onward.cli.operations import collector_of, opened, place_of
from onward.cli.options import COMMON, Common, Out, duration, number
from onward.cli.output import FAILED, FINE, Output, count
from onward.cli.print.run import id_words
from onward.clock import SystemClock
from onward.errors import InvalidInput, Refused
from onward.model.ids import called
from onward.model.values import GIBIBYTES, KEPT, WAIT
from onward.operations.here.database import export_runs, import_runs, spool_of
from onward.operations.here.directories import collect_runs
from onward.operations.here.requests import CollectRuns, ExportRuns, ImportRuns

if TYPE_CHECKING:
    from onward.cli.replies import ExportWritten
    from onward.operations.here.replies import Exported, RunsCollected

STANDARD = "-"


async def export(
    *runs: Annotated[str, Parameter(help="Runs: ids, display ids, or beginnings of either.")],
    all: Annotated[bool, Parameter(help="Every run of the database.")] = False,
    to: Annotated[
        str,
        Parameter(
            name="--out",
            allow_leading_hyphen=True,
            help="The file, compressed if its name ends in .zst; - means standard output.",
        ),
    ] = STANDARD,
    parents: Annotated[
        bool,
        Parameter(
            name="--with-parents",
            negative="--no-with-parents",
            help="Include the parents of forks (the default); without its parent, a fork is refused.",
        ),
    ] = True,
    overwrite: Annotated[bool, Parameter(help="Let --out replace a file that exists.")] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Write whole runs to one file: logs, pipelines, large values, artifacts, effects, messages.

    The file is a snapshot; the runs in the database stay, and continue.
    """
    if runs and all:
        raise InvalidInput("--all exports every run; give --all or name runs, not both.")
    if not runs and not all:
        raise InvalidInput("name the runs to export, or give --all for every run.")
    request = ExportRuns(runs=runs, with_parents=parents)
    async with opened(place_of(common)) as store:
        carried = await export_runs(store, request, _target(to, out, overwrite=overwrite))
    _tell_exported(carried, to, out)
    return FAILED if out.is_gone else FINE


@contextmanager
def _target(path: str, out: Output, *, overwrite: bool) -> Iterator[Callable[[bytes], object]]:
    """Where the bytes go. A file gets its name when it is whole and on the disk."""
    if path == STANDARD:
        yield out.raw
        return
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        raise InvalidInput(f"--out {path} is not a file; name a file, or - for the output.")
    if not overwrite and os.path.lexists(path):
        raise _exists(path)
    part = f"{path}.{os.getpid()}.part"
    try:
        # Whoever may not read the database may not read its copy either.
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            yield from _written(file, is_packed=path.endswith(".zst"))
            file.flush()
            os.fsync(file.fileno())
        _name(part, path, overwrite=overwrite)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}; name another file.") from error
    finally:
        if os.path.lexists(part):
            os.unlink(part)


def _name(part: str, path: str, *, overwrite: bool) -> None:
    """Give the whole file its name. Without `overwrite`, not one that another process took meanwhile."""
    if not overwrite:
        try:
            os.link(part, path)
        except FileExistsError:
            raise _exists(path) from None
        except OSError:  # a file system without links, where only a look can tell
            if os.path.lexists(path):
                raise _exists(path) from None
        else:
            return
    os.replace(part, path)


def _exists(path: str) -> Refused:
    return Refused(
        "file_exists", f"{path} exists already; name another file, or replace this one with --overwrite."
    )


def _written(file: BinaryIO, *, is_packed: bool) -> Iterator[Callable[[bytes], object]]:
    if not is_packed:
        yield file.write
        return
    with zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(file, closefd=False) as packed:
        yield packed.write


def _tell_exported(carried: Exported, path: str, out: Output) -> None:
    say = out.note if path == STANDARD else out.say
    for run in carried["at_work"]:
        out.note(
            f"run {run['display_id']} is {run['status']} and continues here as well; "
            "before you resume its copy, `onward cancel` one of the two."
        )
    what = f"{count(len(carried['runs']), 'run')} with {count(carried['events'], 'event')}"
    more = f"{count(carried['blobs'], 'blob')} and {count(carried['effects'], 'effect')}"
    more += f" and {count(carried['messages'], 'message')}" if carried["messages"] else ""
    say(f"exported {what}, {more} to {'the output' if path == STANDARD else path}")
    if out.is_json and path != STANDARD:
        written: ExportWritten = {
            "file": path,
            "runs": carried["runs"],
            "events": carried["events"],
            "blobs": carried["blobs"],
            "effects": carried["effects"],
            "messages": carried["messages"],
            "bytes": carried["bytes"],
        }
        out.value(written)


async def import_(
    file: Annotated[
        str,
        Parameter(
            help="A file written by `onward export`; - means standard input.", allow_leading_hyphen=True
        ),
    ],
    /,
    *,
    paused: Annotated[
        bool,
        Parameter(help="Pause runs that would otherwise continue by themselves, until they are resumed."),
    ] = False,
    unpacked_max: Annotated[
        int | None,
        number(
            GIBIBYTES,
            help="Unpack at most this many GiB (default: 1, or 1,000 times the file size if that is more).",
            metavar="GIB",
        ),
    ] = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Import the runs of a file, each completely, once the whole file has been checked.

    A run that exists here is skipped and never changed. A run that was running is imported as stopped
    or queued.
    """
    request = ImportRuns(
        name="the input" if file == STANDARD else file, paused=paused, unpacked_max=unpacked_max
    )
    place = opened(place_of(common), makes=True)
    with _source(file) as source:
        spool = spool_of(source, request)
    done = await import_runs(request, spool, place, SystemClock())
    for one in done["runs"]:
        out.say(f"run {called(one['run'])}{id_words(one['run'])}: {one['says']}")
    new = len(done["imported"])
    out.say(f"{count(new, 'run')} imported, {len(done['runs']) - new} skipped")
    if out.is_json:
        out.value(done)
    return FINE


@contextmanager
def _source(path: str) -> Iterator[BinaryIO]:
    if path == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}.") from error


async def gc(
    *,
    older_than: Annotated[
        float | None,
        duration(
            WAIT,
            help="Only runs that have been idle this long (default: 30d, unless --keep is given; 0d "
            "means any age).",
        ),
    ] = None,
    keep: Annotated[
        int | None, number(KEPT, help="Keep this many of the newest runs, whatever their age.")
    ] = None,
    status: Annotated[
        str | None,
        Parameter(help="Which runs: completed, cancelled (both by default), failed; separated by commas."),
    ] = None,
    keep_files: Annotated[
        bool, Parameter(help="Keep the directories of the runs, with their receipts and work trees.")
    ] = False,
    dry_run: Annotated[bool, Parameter(help="Print what would be deleted, and change nothing.")] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Delete old runs that have ended: logs, directories, and content that no other run refers to.

    A run is kept while another run needs it (a fork of it, or an unfinished run that manages it, is managed
    by it, or is linked to it by a restart) and while its work tree has unmerged work. Safe while workers run;
    if it is killed, run it again.
    """
    named = {} if status is None else {"statuses": tuple(word.strip() for word in status.split(","))}
    request = CollectRuns(**named, older_than_s=older_than, keep=keep, dry_run=dry_run)
    async with collector_of(common, out.note, keep_files=keep_files) as collector:
        done = await collect_runs(collector, request)
    _tell_collected(done, out)
    return FINE


def _tell_collected(done: RunsCollected, out: Output) -> None:
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
