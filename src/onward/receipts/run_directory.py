"""The directory of a run: whose it is, the files in it, and what the steps of the run left there.

A run's directory has the run's id for a name, and its manifest says whose it is. Other databases may use the
same folder. If the directory of another database or program has that name, the run's directory is
`<run>.of-<database>`. What is not ours is never written to, moved or removed.

The files of a run are values here: the content of each, by the dialect's names. `status.json` also comes in:
with it a program outside says what came of its step. A step may have changed its directories, so looking at
them is bounded and follows no link.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict

import msgspec

from onward.entry import exists
from onward.errors import InvalidInput
from onward.model.events import AttemptFailed, StepFinished, StepStatus
from onward.model.ids import Identity
from onward.model.result import NOT_LEFT, LeftFile, Result
from onward.model.run import Run
from onward.model.values import rfc3339
from onward.receipts.folder import MANIFEST, STATUS, Folder, Path, attempt_path

OF, ASIDE = ".of-", ".before-"
MANIFEST_BYTES_MAX = 1024 * 1024


class ManifestClaim(TypedDict, total=False):
    """What a manifest says about whose it is; one from before databases had an identity names none."""

    run_id: str
    start_time: str
    database: str


def said_by(content: bytes | None) -> ManifestClaim | None:
    """A manifest, as far as it matters here; None if it is none."""
    try:
        return msgspec.json.decode(content or b"", type=ManifestClaim)
    except msgspec.DecodeError:
        return None


def run_of(name: str) -> str:
    """The run that a directory is named after."""
    return name.partition(ASIDE)[0].partition(OF)[0]


@dataclass(frozen=True, slots=True)
class Homes(Folder):
    """A folder in which every path begins with a run's id, and leads to what is `identity`'s."""

    identity: Identity

    def _named(self, parts: Path) -> Path:
        return (self.home(parts[0]), *parts[1:]) if parts else parts

    @property
    def plain(self) -> Folder:
        """The same folder with all that is in it, by the names as they are. It holds nothing open."""
        return Folder(self.root)

    def home(self, run_id: str) -> str:
        """The name of the run's directory, whether it is there yet or not."""
        if OF in run_id:
            return run_id  # a name that was found here before
        held = None if self.held is None else self.held.again((run_id,))
        if held is not None:
            return os.path.basename(held.path)  # found to be ours before, and still the same directory
        other = self._other(run_id)
        if os.path.lexists(os.path.join(self.root, other)):
            return other
        return run_id if self._is_free(run_id) or self.is_ours(run_id) else other

    def _other(self, run_id: str) -> str:
        return f"{run_id}{OF}{self.identity.short}"

    def _is_free(self, name: str) -> bool:
        """Whether nothing is there, or only what a process left that died while it made the directory."""
        try:
            return all(found.startswith(".") for found in self.plain.names((name,)))
        except OSError:
            return True  # what is in the way is reported when the directory is used

    def is_ours(self, name: str) -> bool:
        """Whether a directory is one of this database's runs; if it does not say, by its age."""
        mark = name.partition(ASIDE)[0].partition(OF)[2]
        if mark:
            return mark == self.identity.short
        said = self.said(name)
        if said is None or said.get("run_id") != run_of(name):
            return False
        if "database" in said:
            return said["database"] == self.identity.name
        return said.get("start_time", "~") <= rfc3339(self.identity.unmarked_until_us)

    def said(self, name: str) -> ManifestClaim | None:
        """What the manifest in a directory says."""
        try:
            return said_by(self.plain.read((name,), MANIFEST, limit=MANIFEST_BYTES_MAX))
        except OSError:
            return None

    def move_in(self, run_id: str, manifest: bytes, is_of: Callable[[ManifestClaim], bool]) -> None:
        """Have the run's directory, with its manifest, and nothing in it that is another run's."""
        if self._is_made(run_id):
            self._hold(run_id, run_id)
            if self.write_new((run_id,), MANIFEST, manifest):
                return
            self.let_go((run_id,))
        name, folder = self.home(run_id), self.plain
        there = folder.read((name,), MANIFEST, limit=MANIFEST_BYTES_MAX)
        said = said_by(there)
        if said is not None and is_of(said):
            folder.write((name,), MANIFEST, manifest)
            self._hold(run_id, name)
            return
        if said is not None and said.get("database") != self.identity.name:
            name = self._other(run_id)  # its owner is unknown, or another database was faster
        elif said is not None or (name != run_id and not self._is_free(name)):
            folder.put_aside(name)  # ours, from a run of this id that was forgotten
        if not folder.write_new((name,), MANIFEST, manifest):
            name = self._other(run_id)
            folder.write((name,), MANIFEST, manifest)
        self._hold(run_id, name)

    def _is_made(self, run_id: str) -> bool:
        """Make the directory of a new run, for which nothing is there; else there is more to look at."""
        top = self._open((), make=True)
        if exists(top.descriptor, self._other(run_id)):
            return False
        try:
            os.mkdir(run_id, 0o700, dir_fd=top.descriptor)
        except FileExistsError:
            return False
        return True

    def _hold(self, run_id: str, name: str) -> None:
        """The directory is ours, and stays it while it is held: that is not looked up for every file."""
        if self.held is not None:
            self.held.keep((run_id,), self._open(()).within(name))


Told = tuple[str, tuple[str, ...]]


def manifest(run: Run, *, start_time: str, database: str) -> bytes:
    """Which run this is, and in which database."""
    return _json(
        {
            "name": run.pipeline,
            "goal": run.context.get("graph.goal", ""),
            "start_time": start_time,
            "run_id": run.id,
            "pipeline_hash": run.pipeline_hash,
            "database": database,
        }
    )


def is_of(said: ManifestClaim | None, run: Run, *, start_time: str, database: str) -> bool:
    """Whether a manifest is this run's: ids may be chosen, and runs may be copied."""
    return said is not None and (
        said.get("run_id"),
        said.get("start_time"),
        said.get("database", database),
    ) == (run.id, start_time, database)


def checkpoint(run: Run, finished: Sequence[Told], *, timestamp: str) -> bytes:
    """How far the run is; `finished` are the nodes of its finished steps, each with its lines of the log.

    A copy: resuming reads the log and never this.
    """
    return _json(
        {
            "timestamp": timestamp,
            "current_node": finished[-1][0] if finished else None,
            "completed_nodes": [node for node, _ in finished],
            "node_retries": run.retries.plain(),
            "context": run.context.plain(),
            "logs": [line for _, lines in finished for line in lines],
        }
    )


class _Checkpoint(msgspec.Struct, frozen=True):
    completed_nodes: list[str] = []


def completed_nodes(content: bytes) -> list[str]:
    """The nodes of the finished steps that a checkpoint tells of; none if it is no checkpoint."""
    try:
        return msgspec.json.decode(content, type=_Checkpoint).completed_nodes
    except msgspec.DecodeError:
        return []


def told(event: StepFinished) -> Told:
    """The node of a finished step, and what is said of it: what it wrote down itself, then its outcome."""
    outcome = event.outcome
    said = outcome.failure_reason or outcome.notes
    ending = f"{event.step}: {outcome.status.value}" + (f": {said}" if said else "")
    return event.node, (*(f"{event.step}: {line}" for line in event.log), ending)


def finished_status(event: StepFinished, after: Mapping[str, Any]) -> bytes:
    """`status.json` of a step that has its outcome; `after` are context values as the step set them."""
    outcome = event.outcome
    updates = {**event.context, **{key: after[key] for key in event.grown if key in after}}
    return _status(
        outcome.status.value,
        outcome.failure_reason,
        preferred_label=outcome.preferred_label,
        suggested_next_ids=list(outcome.suggested_next_ids),
        context_updates=updates,
        notes=outcome.notes,
    )


def failed_status(event: AttemptFailed) -> bytes:
    """`status.json` of an attempt that failed."""
    return _status(
        event.status.value,
        event.reason,
        preferred_label="",
        suggested_next_ids=[],
        context_updates={},
        notes="",
    )


def _status(outcome: str, failure_reason: str, **fields: Any) -> bytes:
    told = {"failure_reason": failure_reason} if failure_reason else {}
    return _json({"outcome": outcome, **fields, **told})


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


STATUS_BYTES_MAX = 1024 * 1024


class Reported(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The closed schema of the file."""

    outcome: Literal["success", "retry", "fail", "partial_success"]
    preferred_label: str = ""
    preferred_next_label: str = ""
    suggested_next_ids: tuple[str, ...] = ()
    context_updates: dict[str, Any] = {}
    notes: str = ""
    failure_reason: str = ""

    @property
    def label(self) -> str:
        return self.preferred_label or self.preferred_next_label


def read_status(content: bytes, path: str) -> Reported:
    """What the file says; InvalidInput names the file and what is wrong with it."""
    if len(content) > STATUS_BYTES_MAX:
        raise InvalidInput(f"{path} has more than {STATUS_BYTES_MAX:,} bytes; store large data as artifacts.")
    try:
        found = msgspec.json.decode(content, type=Reported)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        names = ", ".join(Reported.__struct_fields__)
        raise InvalidInput(f"{path} does not say how the step ended: {error}; use one of {names}.") from None
    if found.preferred_label and found.preferred_next_label not in ("", found.preferred_label):
        raise InvalidInput(
            f"{path} has two labels, preferred_label {found.preferred_label!r} and preferred_next_label "
            f"{found.preferred_next_label!r}, which mean the same; write one."
        )
    return found


def as_reported(result: Result, reported: Reported) -> Result:
    """The result of a step whose program wrote a status; what its handler knows beside that stays."""
    status = StepStatus(reported.outcome)
    reason = ""
    if status in (StepStatus.FAIL, StepStatus.RETRY):
        reason = reported.failure_reason or reported.notes or f"its status.json says {status.value}"
    return replace(
        result,
        status=status,
        preferred_label=reported.label or result.preferred_label,
        suggested_next_ids=reported.suggested_next_ids or result.suggested_next_ids,
        context_updates={**result.context_updates, **reported.context_updates},
        notes="; ".join(filter(None, (reported.notes, result.notes))),
        failure_reason=reason,
        is_decided=True,
    )


Entry = tuple[os.DirEntry[str], os.stat_result]
ENTRIES_MAX = 5_000
SKIPPED = frozenset({".git", ".onward"})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LATER = re.compile(r"(attempt|try)-[1-9][0-9]*(\.before-[0-9]+)?")
_TRY = re.compile(r"try-([1-9][0-9]*)")


class Seen(msgspec.Struct, frozen=True):
    """The files that were found, by their paths; `unseen` says where looking had to stop, and why."""

    files: tuple[LeftFile, ...] = ()
    unseen: tuple[str, ...] = ()


def changed_since(
    root: str, since_us: int, *, own: Collection[str] = (), entries_max: int = ENTRIES_MAX
) -> Seen:
    """What changed below `root` at `since_us` or later; `own` are paths that are not looked at.

    A file counts when its content, its name or its rights changed, whatever times it was given. A directory
    counts when nothing in it tells why it changed: something was removed from it, or it is new and empty.
    """
    walk = _Walk(root, entries_max, frozenset(own))
    found: list[LeftFile] = []
    for path, entries, is_judged in walk.directories():
        is_explained = False
        for entry, state in entries:
            if max(state.st_mtime_ns, state.st_ctime_ns) // 1000 < since_us:
                continue
            is_explained = True
            if not entry.is_dir(follow_symlinks=False):
                found.append(_file(path, entry.name, state.st_size))
        if is_judged and not is_explained and walk.changed_at_us(path) >= since_us:
            found.append(_file(path or ".", "", None))
    return Seen(tuple(sorted(found, key=lambda file: file.path)), tuple(walk.unseen))


def files_of_attempt(root: str, *, entries_max: int = ENTRIES_MAX) -> Seen:
    """Everything in the directory of one try of an attempt; that of later ones lies in it and is not its."""
    walk = _Walk(root, entries_max, frozenset())
    found = [
        _file(path, entry.name, state.st_size)
        for path, entries, _ in walk.directories(top_skipped=_LATER)
        for entry, state in entries
        if not entry.is_dir(follow_symlinks=False)
    ]
    return Seen(tuple(sorted(found, key=lambda file: file.path)), tuple(walk.unseen))


def files_named(root: str, names: Sequence[str]) -> tuple[LeftFile, ...]:
    """Files below `root` that the caller found, with their sizes."""
    found = []
    for name in names:
        try:
            size = os.lstat(os.path.join(root, name)).st_size
        except OSError:
            size = None
        found.append(_file("", name, size))
    return tuple(found)


def _file(path: str, name: str, size: int | None) -> LeftFile:
    """A name may be any bytes; what is told of it is text."""
    return LeftFile(os.fsencode(os.path.join(path, name)).decode(errors="replace"), size)


class _Walk:
    """A walk from the top, directory by directory, of so many entries at most."""

    def __init__(self, root: str, entries_max: int, own: Collection[str]) -> None:
        self._root, self._entries_max, self._own = root, entries_max, own
        self.unseen: list[str] = []

    def changed_at_us(self, path: str) -> int:
        """When something was last made in a directory, or removed from it."""
        try:
            return os.lstat(os.path.join(self._root, path)).st_mtime_ns // 1000
        except OSError:
            return 0  # it is gone, which its parent tells

    def directories(
        self, top_skipped: re.Pattern[str] | None = None
    ) -> Iterator[tuple[str, list[Entry], bool]]:
        """Each directory's path below the root, its entries, and whether a change of it is the step's."""
        ahead, left = [""], self._entries_max
        for path in ahead:
            entries: list[Entry] = []
            is_judged = True
            try:
                names = self._listed(path)
            except OSError as error:
                self.unseen.append(f"{os.path.join(self._root, path)}: {error.strerror or error}")
                continue
            for entry in names:
                full = os.path.join(self._root, path, entry.name)
                if full in self._own:
                    is_judged = False  # what we write there ourselves is no sign of the step
                    continue
                if entry.name in SKIPPED or (top_skipped and not path and top_skipped.fullmatch(entry.name)):
                    continue
                if left <= 0:
                    self.unseen.append(f"{self._root} has more than {self._entries_max:,} entries")
                    yield path, entries, False
                    return
                left -= 1
                try:
                    entries.append((entry, entry.stat(follow_symlinks=False)))
                except FileNotFoundError:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    ahead.append(os.path.join(path, entry.name))
            yield path, entries, is_judged

    def _listed(self, path: str) -> list[os.DirEntry[str]]:
        directory = os.path.join(self._root, path) if path else self._root
        os.close(os.open(directory, _DIRECTORY))  # it is one, and no link to one
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: entry.name)


def attempts_before(folder: Folder, run_id: str, step: str, attempt: int, tries: int) -> Iterator[Path]:
    """The directories of a step's earlier tries that are there, the newest first, below the run's own."""
    for number in range(attempt, 0, -1):
        newest = tries - 1 if number == attempt else _newest_try(folder, run_id, step, number)
        for again in range(newest, 0, -1):
            path = attempt_path(step, number, again)
            if path[-1] in folder.names((run_id, *path[:-1])):
                yield path


def last_with_something(folder: Folder, run_id: str, paths: Iterator[Path]) -> Path | None:
    """The newest directory in which a step left something of its own; else the newest there is."""
    newest: Path | None = None
    for path in paths:
        newest = newest or path
        found = files_of_attempt(folder.path(run_id, *path)).files
        if any(file.path != STATUS and file.path not in NOT_LEFT for file in found):
            return path
    return newest


def _newest_try(folder: Folder, run_id: str, step: str, attempt: int) -> int:
    names = folder.names((run_id, *attempt_path(step, attempt)))
    return max((int(found[1]) for name in names if (found := _TRY.fullmatch(name))), default=1)
