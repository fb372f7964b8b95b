"""A directory that others can write to as well: its files' names, and writing them through no link.

Every try of every attempt has a path, and none of them twice. `<node>/<visit>/` is the first attempt's,
`<node>/<visit>/attempt-2/` the second's. An attempt that was cut off and begun again is another try: `try-2`.
In a branch all that is below a directory of the branch's name. No name can lead elsewhere: whatever is not a
plain character in it is written as `%` and its code.

A step has one receipt and one handoff, named after the step and the agent that executed it:
`<flow>/receipts/<step>-<agent>.json` below the run's directory, and `<flow>/handoffs/` beside it. A step is
`node`, from its second visit on `node.2`; in a branch the branch comes before it: `fan-1.lint+node.2`. No two
steps share a name.

A step's program has its own directory here, so it can put anything in the way: a link to elsewhere, a file
where a directory should be, a pipe. Every path is therefore walked one name at a time, from the top or from
a directory that is held open, and a name that is not what it should be is an error, never a way out.

Directories are held open so that the way to them is walked once and not for every file. A descriptor always
leads to the directory that was checked when it was opened. It is used only while the path leads to that same
directory: one that was removed, moved or exchanged for something else is walked to again, and refused if a
link is on the way.

Only what asks for it is synced to the disk: all that is written can be written again from the log. `Unsynced`
knows the files that have their names, and that the disk may not have yet.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import shutil
import stat
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from blake3 import blake3

from onward.entry import (
    Directory,
    NotPlain,
    appended,
    closing,
    content_of,
    created,
    directory_at,
    exists,
    fill,
    in_the_way,
    move_aside,
    readable,
)
from onward.model.ids import branch_of

ARTIFACTS, WORKSPACE, MANIFEST, CHECKPOINT = "artifacts", "workspace", "manifest.json", "checkpoint.json"
PROMPT, RESPONSE, STATUS = "prompt.md", "response.md", "status.json"
OUTPUT_ENDING = ".log"
"""Of the files `stdout.log` and `stderr.log`."""

NAME_CHARACTERS_MAX = 150
_NOT_IN_STEPS = re.compile(r"[^A-Za-z0-9_.]")
_NOT_IN_ARTIFACTS = re.compile(r"[^A-Za-z0-9_.\-]")

Path = tuple[str, ...]


@lru_cache(maxsize=1024)  # many runs have the same steps
def attempt_path(step: str, attempt: int, tries: int = 1) -> Path:
    """The directories below the run's own that lead to one try of one attempt."""
    node, _, visit = step.rpartition("/")[2].rpartition("#")
    branch = branch_of(step)
    parts = [step_name(part) for part in branch.split("/")] if branch else []
    parts += [step_name(node or visit), step_name(visit)]
    if not branch and parts[0] in (ARTIFACTS, WORKSPACE):
        parts[0] += "-"  # a node of this name must not meet what is the run's
    if attempt > 1:
        parts.append(f"attempt-{attempt}")
    if tries > 1:
        parts.append(f"try-{tries}")
    return tuple(parts)


def step_name(text: str) -> str:
    """A part of a step's id as a file name: `fan#1.lint` becomes `fan-1.lint`, and no two become the same."""
    return _shortened(_NOT_IN_STEPS.sub(_escaped, text), text)


def artifact_name(id: str) -> str:
    """An artifact's id as a file name."""
    return _shortened(_NOT_IN_ARTIFACTS.sub(_escaped, id), id)


def _escaped(match: re.Match[str]) -> str:
    if match[0] == "#":
        return "-" if match.re is _NOT_IN_STEPS else "%23"
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def _shortened(name: str, text: str) -> str:
    """Never empty, hidden, `.` or `..`, and short enough for every file system."""
    if not name or name[0] == ".":
        name = f"%2E{name[1:]}" if name else "%"
    if len(name) <= NAME_CHARACTERS_MAX:
        return name
    mark = blake3(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{name[: NAME_CHARACTERS_MAX - 33]}~{mark}"


RECEIPTS, HANDOFFS = "receipts", "handoffs"
ENDING, DRAFT_ENDING = ".json", ".draft.json"
CHARACTERS_MAX = 200
_LIKE_A_VISIT = re.compile(r"\.(?=[0-9]+\Z)")
_TAKEN = (ARTIFACTS, CHECKPOINT, MANIFEST)


@lru_cache(maxsize=256)
def flow_name(pipeline: str) -> str:
    """A pipeline's name as a directory in the run's own."""
    name = step_name(pipeline)
    return f"{name}-" if name in _TAKEN else name


@lru_cache(maxsize=1024)  # a step has a receipt and a handoff, and many runs have the same steps
def step_file(step: str, agent: str) -> str:
    """The name of a step's receipt, and of its handoff."""
    node, _, visit = step.rpartition("/")[2].rpartition("#")
    last = _LIKE_A_VISIT.sub("%2E", step_name(node)) + ("" if visit == "1" else f".{step_name(visit)}")
    branch = branch_of(step)
    parts = [*map(step_name, branch.split("/")), last] if branch else [last]
    who = artifact_name(agent)
    if who.endswith(".draft"):
        who = f"{who.removesuffix('.draft')}%2Edraft"
    name = f"{'+'.join(parts)}-{who}"
    if len(name) > CHARACTERS_MAX:
        mark = blake3(f"{step}\0{agent}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        name = f"{name[: CHARACTERS_MAX - 33]}~{mark}"
    return f"{name}{ENDING}"


def is_finished_file(name: str) -> bool:
    """Whether a file can be a receipt or handoff: drafts and files on their way there are none."""
    return name.endswith(ENDING) and not name.endswith(DRAFT_ENDING) and not name.startswith(".")


SYNC_FILE_RANGE_WRITE = 2


class Unsynced:
    """Collects such files, to be synced where no other run has to wait for it."""

    def __init__(self) -> None:
        self._files: list[int] = []

    def __len__(self) -> int:
        return len(self._files)

    def add(self, file: int) -> None:
        """Take over the descriptor of a file."""
        self._files.append(file)

    def take(self) -> list[int]:
        """The descriptors, which are the caller's from now on."""
        files, self._files = self._files, []
        return files

    def close(self) -> None:
        """Close the files without syncing them."""
        for file in self.take():
            os.close(file)


def sync_files(files: Sequence[int]) -> Mapping[int, OSError]:
    """Sync and close all of them; answers what went wrong with which.

    All writes begin before the first is waited for. The file system then puts the whole batch into one
    commit of its journal, and syncing a file takes a quarter of the time that it takes alone. After an error
    the disk may have a file or not; asking again would not tell.
    """
    for file in files:
        _begin_write(file, 0, 0, SYNC_FILE_RANGE_WRITE)
    failures: dict[int, OSError] = {}
    for file in files:
        try:
            try:
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            failures[file] = error
    return failures


def _nothing(file: int, offset: int, size: int, flags: int) -> int:
    """Where writes cannot be begun ahead, each sync begins its own."""
    return 0


def _begin_write_of(libc: ctypes.CDLL) -> ctypes._NamedFuncPointer:
    function = libc.sync_file_range
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


_begin_write = _begin_write_of(ctypes.CDLL(None)) if sys.platform == "linux" else _nothing


HELD_MAX = 1_024
SHARE_MAX = 4  # one in so many of the descriptors that this process may have: the others are for the work


class HeldDirectories:
    """Open directories, by the parts that lead to them. Those of the run that is longest unused go first.

    A directory that is dropped while a thread works in it is closed when the thread is done.
    """

    def __init__(self, limit: int = HELD_MAX) -> None:
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._limit = limit if allowed == resource.RLIM_INFINITY else min(limit, allowed // SHARE_MAX)
        self._held: OrderedDict[Path, dict[Path, Directory]] = OrderedDict()
        self._count = 0
        self._lock = threading.Lock()  # a handler's thread may ask for its directory

    def __len__(self) -> int:
        return self._count

    def again(self, parts: Path) -> Directory | None:
        """The directory that was kept, if it is still where it was."""
        top = parts[:1]
        with self._lock:
            found = self._held.get(top, {}).get(parts)
            if found is None:
                return None
            self._held.move_to_end(top)
        if found.is_there():
            return found
        self.let_go(parts)
        return None

    def keep(self, parts: Path, directory: Directory) -> None:
        """Hold it open."""
        top = parts[:1]
        with self._lock:
            below = self._held.setdefault(top, {})
            self._held.move_to_end(top)
            self._count += parts not in below
            below[parts] = directory
            while self._count > self._limit:
                oldest, below = next(iter(self._held.items()))
                self._drop(oldest, next(iter(below)))

    def let_go(self, parts: Path, *, below: bool = False) -> None:
        """Hold a directory no longer, and with `below` those in it."""
        top = parts[:1]
        with self._lock:
            if below and not parts:
                self._held.clear()
                self._count = 0
            inside = self._held.get(top, {})
            gone = [one for one in inside if one[: len(parts)] == parts] if below else [parts]
            for one in gone:
                if one in inside:
                    self._drop(top, one)

    def _drop(self, top: Path, parts: Path) -> None:
        self._count -= 1
        below = self._held[top]
        del below[parts]
        if not below:
            del self._held[top]


DEPTH_MAX = 16


@dataclass(frozen=True, slots=True)
class Folder:
    """The directory `root`, which is made when it is first needed.

    With `held`, directories that are written to stay open until `let_go`.
    """

    root: str
    held: HeldDirectories | None = field(default=None, kw_only=True, compare=False)

    def path(self, *parts: str) -> str:
        """The path of a place in here, for messages and for programs."""
        return os.path.join(self.root, *self._named(parts))

    def _named(self, parts: Path) -> Path:
        """The names on disk that these parts stand for. Only the first can be another."""
        return parts

    def let_go(self, parts: Path, *, below: bool = False) -> None:
        """Nothing more is written to this directory for now, nor to those `below` it."""
        if self.held is not None:
            self.held.let_go(parts, below=below)

    def make(self, parts: Path = ()) -> None:
        """Have these directories."""
        self._open(parts, make=True, keep=True)

    def make_new(self, parts: Path) -> str:
        """Have a last directory that is empty, and say its path; what has the name is moved aside first."""
        directory = self._made_new(parts)
        if self.held is not None:
            self.held.keep(parts, directory)
        return directory.path

    def write_in_new(self, parts: Path, name: str, content: bytes) -> None:
        """The same, with this file in it. The directory is not held open."""
        directory = self._made_new(parts)  # which is closed when no name is left for it
        os.close(_put(directory.descriptor, name, content))

    def _made_new(self, parts: Path) -> Directory:
        above, name = self._open(parts[:-1], make=True), parts[-1]
        try:
            os.mkdir(name, 0o700, dir_fd=above.descriptor)
        except FileExistsError:
            move_aside(above.descriptor, name)
            os.mkdir(name, 0o700, dir_fd=above.descriptor)
        return above.within(name)

    def put_aside(self, name: str, parts: Path = ()) -> None:
        """Free the name, whatever has it."""
        with contextlib.suppress(FileNotFoundError):
            opened = self._open(parts)
            os.stat(name, dir_fd=opened.descriptor, follow_symlinks=False)
            move_aside(opened.descriptor, name)

    def write(
        self,
        parts: Path,
        name: str,
        content: bytes,
        *,
        only_new: bool = False,
        synced: bool = False,
        unsynced: Unsynced | None = None,
    ) -> bool:
        """Put a file there whole or not at all; with `only_new`, one that is there stays as it is.

        With `synced` it is on the disk when this returns, under its name. With `unsynced` it is handed over
        there, to be synced later: it has its name before its content is on the disk.
        """
        opened = self._open(parts, make=True, keep=True)
        directory = opened.descriptor
        if only_new and exists(directory, name):
            return False
        file = _put(directory, name, content, synced=synced)
        if unsynced is None:
            os.close(file)
        else:
            unsynced.add(file)
        return True

    def write_new(self, parts: Path, name: str, content: bytes) -> bool:
        """Put a file there whole, unless one of this name is there: of several who try, one does."""
        opened = self._open(parts, make=True)
        directory, part = opened.descriptor, f".{name}.{os.getpid()}.part"
        try:
            with closing(created(directory, part)) as file:
                fill(file, content)
            os.link(part, name, src_dir_fd=directory, dst_dir_fd=directory)
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part, dir_fd=directory)
        return True

    def append(self, parts: Path, name: str) -> int:
        """A descriptor of a plain file in a directory that is there, to be written at its end."""
        opened = self._open(parts)
        try:
            return appended(opened.descriptor, name)
        except NotPlain:
            raise in_the_way(self.path(*parts, name), "a plain file") from None

    def read(self, parts: Path, name: str, *, limit: int) -> bytes | None:
        """A plain file's content, one byte more than `limit` at most; None if there is none."""
        try:
            opened = self._open(parts)
            return content_of(opened.descriptor, name, limit)
        except NotPlain:
            raise in_the_way(self.path(*parts, name), "a plain file") from None
        except FileNotFoundError:
            return None

    def open_plain(self, parts: Path, name: str) -> int | None:
        """A descriptor of a plain file, to be read; None if there is none."""
        try:
            opened = self._open(parts)
            return readable(opened.descriptor, name)
        except NotPlain:
            raise in_the_way(self.path(*parts, name), "a plain file") from None
        except FileNotFoundError:
            return None

    def remove(self, parts: Path, name: str) -> None:
        """Have no file there."""
        with contextlib.suppress(FileNotFoundError):
            opened = self._open(parts)
            os.unlink(name, dir_fd=opened.descriptor)

    def remove_all(self, name: str) -> bool:
        """Have nothing of this name, and say if there was. A link goes; what it names stays."""
        try:
            opened = self._open(())
            root = opened.descriptor
            if stat.S_ISDIR(os.stat(name, dir_fd=root, follow_symlinks=False).st_mode):
                shutil.rmtree(name, dir_fd=root)  # which follows no link either
            else:
                os.unlink(name, dir_fd=root)
        except FileNotFoundError:
            return False
        return True

    def names(self, parts: Path) -> list[str]:
        """What is in a directory; nothing if it is not there."""
        try:
            opened = self._open(parts)
            return sorted(os.listdir(opened.descriptor))
        except FileNotFoundError:
            return []

    def files(self, parts: Path) -> Iterator[Path]:
        """Every plain file below, by the names that lead to it. Anything else found there is an error."""
        try:
            opened = self._open(parts)
            found = sorted(os.listdir(opened.descriptor))
            kinds = [os.stat(name, dir_fd=opened.descriptor, follow_symlinks=False).st_mode for name in found]
        except FileNotFoundError:
            return
        for name, mode in zip(found, kinds, strict=True):
            if stat.S_ISDIR(mode) and len(parts) < DEPTH_MAX:
                yield from self.files((*parts, name))
            elif stat.S_ISREG(mode):
                yield (*parts, name)
            else:
                raise in_the_way(self.path(*parts, name), "a plain file")

    def _open(self, parts: Path, *, make: bool = False, keep: bool = False) -> Directory:
        """The directory that `parts` lead to, none of them a link. It is open for as long as it is used."""
        here, depth = self._nearest(parts)
        if here is None:
            here = self._top(make)
        elif depth == len(parts):
            return here
        for name in parts[depth:] if depth else self._named(parts):
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=here.descriptor)
            here = here.within(name)
        if keep and self.held is not None:
            self.held.keep(parts, here)
        return here

    def _nearest(self, parts: Path) -> tuple[Directory | None, int]:
        """The last directory on the way that is held open, and how deep it is."""
        if self.held is not None:
            for depth in range(len(parts), -1, -1):
                found = self.held.again(parts[:depth])
                if found is not None:
                    return found, depth
        return None, 0

    def _top(self, make: bool) -> Directory:
        if make:
            with contextlib.suppress(FileExistsError):  # what is no directory is named below
                os.makedirs(self.root, mode=0o700)
        top = directory_at(self.root)
        if self.held is not None:
            self.held.keep((), top)
        return top


def _put(directory: int, name: str, content: bytes, *, synced: bool = False) -> int:
    """Write a file there under another name and give it its own when it is whole; returns its descriptor."""
    part = f".{name}.{os.getpid()}.part"
    file = created(directory, part)
    try:
        fill(file, content)
        if synced:
            os.fsync(file)
        os.replace(part, name, src_dir_fd=directory, dst_dir_fd=directory)
        if synced:
            os.fsync(directory)
    except BaseException:
        os.close(file)
        with contextlib.suppress(OSError):
            os.unlink(part, dir_fd=directory)
        raise
    return file
