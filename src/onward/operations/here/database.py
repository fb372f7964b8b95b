"""A database as a whole, from this machine: whether it is sound, and whole runs out of it and into it.

`check_installation` says whether this installation and its database can be trusted with runs. Exports and
imports are streams of bytes.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, BinaryIO

from onward.carry.exporter import Exporter, with_parents
from onward.carry.format import GIB, Spool, UnpackLimits
from onward.carry.importer import CheckedExport, Importer
from onward.clock import Clock
from onward.model.ids import called
from onward.model.row import RunRow
from onward.model.run import RunStatus
from onward.operations.here.requests import ExportRuns, ImportRuns
from onward.operations.requests import ALL
from onward.read.lookup import find_run
from onward.store.owner import exposed_files
from onward.store.port.runs import Measured, RunQuery, Runs
from onward.store.port.store import Store
from onward.version import VERSION

if TYPE_CHECKING:
    from onward.operations.here.replies import Check, Exported, Imported

WHY_CHARACTERS_MAX = 200
PIPELINES_AT_ONCE = 100


async def check_installation(
    store: Store, runs: str | None, programs: Mapping[str, tuple[bool, str]] | None = None
) -> list[Check]:
    """What is installed, the programs that settings describe, the database and what is in it, and its files.

    `runs` is the directory of the runs; of each program it is said whether it is there, and where or why not.
    """
    found = await store.measures.measure()
    return [
        *_packages(),
        *(_check("program", ok, f"{name}: {says}") for name, (ok, says) in (programs or {}).items()),
        *(_check(*one) for one in await store.check()),
        _queue(found),
        *_notifications(found),
        *await _pipelines(store),
        *_files(runs),
    ]


def _check(subject: str, ok: bool, says: str) -> Check:
    return {"subject": subject, "ok": ok, "says": says}


def _packages() -> Iterator[Check]:
    yield _check("onward", True, VERSION)
    machine = f"{platform.system()} {platform.machine()}"
    yield _check("python", True, f"{platform.python_version()} on {machine}")
    for package in ("apsw", "psycopg", "msgspec"):
        yield _check(package, True, _version(package))


def _queue(found: Measured) -> Check:
    """Whether every due run can be claimed; if not, the first that cannot."""
    if not found.stuck:
        return _check("queue", True, f"{_count(found.due, 'run')} due")
    first = found.stuck[0]
    said = f"{_count(len(found.stuck), 'due run')} could not be claimed; see `onward stats`"
    why = " ".join(first.why.split())[:WHY_CHARACTERS_MAX]
    return _check("queue", False, f"{said}. Run {called(first.run)}: {why}")


def _notifications(found: Measured) -> Iterator[Check]:
    """Whether every notification arrives; nothing is said where there are none on their way."""
    waiting, failed, _ = found.undelivered
    if failed:
        said = f"{_count(failed, 'notification')} could not be delivered; see `onward notifications --failed`"
        yield _check("notify", False, said)
    elif waiting:
        yield _check("notify", True, f"{_count(waiting, 'notification')} on the way")


async def _pipelines(store: Store) -> list[Check]:
    """Whether every registered pipeline has the source that new runs get; nothing if there are none."""
    count, lacking, after = 0, list[str](), ""
    while page := await store.pipelines.list(after=after, limit=PIPELINES_AT_ONCE):
        count, after = count + len(page), page[-1].name
        enabled = [await store.pipelines.versions(one.name, upto=one.enabled, limit=1) for one in page]
        hashes = {version.name: version.hash for found in enabled for version in found}
        there = await store.blobs.find_many(hashes.values())
        lacking += [name for name, hash in hashes.items() if hash not in there]
    if lacking:
        said = f"the source of {lacking[0]} is missing or damaged; add it again with `onward pipelines add`"
        more = f", and {_count(len(lacking) - 1, 'more pipeline')}" if len(lacking) > 1 else ""
        return [_check("pipelines", False, f"{said}{more}")]
    return [_check("pipelines", True, f"{_count(count, 'pipeline')} registered")] if count else []


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _files(runs: str | None) -> Iterator[Check]:
    """Whether others can read what steps leave; also through the directory around it, if that is ours."""
    if runs is None or not os.path.isdir(runs):
        return
    above = os.path.dirname(os.path.abspath(runs))
    told = exposed_files([runs, above] if os.path.basename(above) == ".onward" else [runs])
    yield _check("files", not told, told or f"{runs} can be used by this user only")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


Target = AbstractContextManager[Callable[[bytes], object]]
# In these statuses another process may continue the run while its copy goes elsewhere.
AT_WORK = (RunStatus.RUNNING, RunStatus.QUEUED, RunStatus.WAITING)


async def export_runs(store: Store, request: ExportRuns, target: Target) -> Exported:
    """Write the runs as they stand at one moment. `target` is opened when all of them were found."""
    chosen = await with_parents(
        store.runs, await _rows_named(store.runs, request.runs), may_add=request.with_parents
    )
    with target as write:
        carried = await Exporter(store, write).export(chosen)
    return {
        "runs": carried.runs,
        "events": carried.events,
        "blobs": carried.blobs,
        "effects": carried.effects,
        "messages": carried.messages,
        "bytes": carried.bytes,
        "at_work": [
            {"display_id": row.display_id, "status": row.status.value}
            for row in chosen
            if row.status in AT_WORK
        ],
    }


async def _rows_named(runs: Runs, names: Sequence[str]) -> list[RunRow]:
    if names:
        return [(await find_run(runs, name)).row for name in names]
    return [listed.row for listed in reversed(await runs.list(RunQuery(limit=ALL)))]


def spool_of(source: BinaryIO, request: ImportRuns) -> Spool:
    """A copy of what comes in, so that what is checked is what is written."""
    limits = None if request.unpacked_max is None else UnpackLimits(free=request.unpacked_max * GIB, ratio=0)
    return Spool(source, request.name, limits)


async def import_runs(
    request: ImportRuns, spool: Spool, store: AbstractAsyncContextManager[Store], clock: Clock
) -> Imported:
    """Take in each run whole. The store is opened after all checks, so that a bad file makes no database."""
    with closing(spool):
        checked = CheckedExport(spool, is_paused=request.paused)
        async with store as opened:
            brought = await Importer(opened, clock, checked).bring()
    return {
        "imported": [one.run for one in brought if one.is_new],
        "runs": [
            {"run": one.run, "imported": one.is_new, "status": one.status, "says": one.says}
            for one in brought
        ],
    }
