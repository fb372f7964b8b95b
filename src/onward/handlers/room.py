"""What a step has while it runs: its artifacts, perhaps a directory, and a place for what it prints.

What a step stores or removes among the artifacts becomes durable with its outcome, in the same commit, and
later steps see it. An attempt that dies or fails stores nothing. A continued step also sees what the previous
attempt left.

`AttemptOutput` takes what an attempt prints, while it prints it, and where its handler raised an error.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
from blake3 import blake3

from onward.errors import ArtifactNotFound, InvalidInput, StoreCorrupt, kind_of
from onward.model import events as ev
from onward.model.context import check_value, plain_text
from onward.model.result import LeftFile, Result
from onward.pipeline.graph import Node
from onward.redact.redactor import NOTHING_SECRET, Redactor

Read = Callable[[str], Awaitable[bytes | None]]


class ArtifactInfo(NamedTuple):
    """An artifact. Its content is in the database; if `is_file_backed`, also in the run's directory."""

    id: str
    name: str
    size_bytes: int
    stored_at_us: int
    is_file_backed: bool


async def _nothing(hash: str) -> bytes | None:
    return None


class Artifacts:
    """Named content: bytes, a text, or any JSON value; it comes back as it was stored."""

    def __init__(
        self,
        known: Mapping[str, ev.Artifact] | None = None,
        *,
        step: str = "",
        now_us: Callable[[], int] = lambda: 0,
        read: Read = _nothing,
        has_files: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
        redactor: Redactor = NOTHING_SECRET,
    ) -> None:
        self._known, self._step, self._now_us, self._read = known or {}, step, now_us, read
        self._has_files, self._loop, self._redactor = has_files, loop, redactor
        self.changes: dict[str, ev.Artifact | None] = {}
        self.contents: dict[str, bytes] = {}

    def store(self, id: str, name: str, data: bytes | str | Any) -> ArtifactInfo:
        """Store `data` under `id`, without secrets; an existing artifact is replaced."""
        _check_id(id)
        if not self._redactor.is_empty:
            id, name = self._redactor.redact(id), self._redactor.redact_value(name)
            data = redacted_data(self._redactor, data)
        form, content = _encoded(id, data)
        return self._put(id, name, form, content)

    def _put(self, id: str, name: str, form: ev.ArtifactForm, content: bytes) -> ArtifactInfo:
        self._check_room(id, len(content))
        kept = ev.Artifact(
            name=plain_text(name, f"the name of artifact {id!r}"),
            size=len(content),
            hash=blake3(content).hexdigest(),
            stored_at_us=self._now_us(),
            step=self._step,
            form=form,
        )
        self.changes[id] = kept
        self.contents[kept.hash] = content
        self._forget()
        return self._info(id, kept)

    def _check_room(self, id: str, size: int) -> None:
        if size > ev.ARTIFACT_BYTES_MAX:
            raise InvalidInput(
                f"artifact {id!r} has {size:,} bytes, and at most {ev.ARTIFACT_BYTES_MAX:,} can be stored; "
                "put it elsewhere and store its location."
            )
        others = sum(kept.size for other, kept in self.changes.items() if kept is not None and other != id)
        if size + others > ev.STEP_BYTES_MAX:
            raise InvalidInput(
                f"with artifact {id!r} the step stores more than {ev.STEP_BYTES_MAX:,} bytes; "
                "store less, or in several steps."
            )
        if not self.has(id) and len(self._present()) >= ev.ARTIFACTS_MAX:
            raise InvalidInput(
                f"the run has {ev.ARTIFACTS_MAX:,} artifacts, the most it can have; remove some, "
                "or combine several into one."
            )

    async def retrieve(self, id: str) -> Any:
        """The content of an artifact, as it was stored: bytes, a text, or a JSON value."""
        kept = self._get(id)
        content = self.contents.get(kept.hash)
        if content is None:
            content = await self._read(kept.hash)
        if content is None:
            raise StoreCorrupt(f"the content of artifact {id!r} ({kept.hash}) is missing or damaged.")
        return decoded(kept.form, content)

    def fetch(self, id: str) -> Any:
        """`retrieve` for a handler that is not async, which runs in its own thread."""
        if _is_in_event_loop():
            raise InvalidInput(
                f"fetch({id!r}) would block the event loop; write `await step.artifacts.retrieve({id!r})`."
            )
        if self._loop is None:
            return asyncio.run(self.retrieve(id))
        # The store must be used in the event loop that opened it.
        return asyncio.run_coroutine_threadsafe(self.retrieve(id), self._loop).result()

    def has(self, id: str) -> bool:
        """Whether there is an artifact of this id."""
        found = self.changes[id] if id in self.changes else self._known.get(id)
        return found is not None

    def list(self) -> list[ArtifactInfo]:
        """Every artifact, in the order of the ids."""
        return [self._info(id, kept) for id, kept in sorted(self._present().items())]

    def remove(self, id: str) -> None:
        """Remove an artifact."""
        self._get(id)
        if id in self._known:
            self.changes[id] = None
        else:
            del self.changes[id]
        self._forget()

    def clear(self) -> None:
        """Remove all artifacts."""
        self.changes = dict.fromkeys(self._known)
        self.contents = {}

    def _present(self) -> dict[str, ev.Artifact]:
        merged = {**self._known, **self.changes}
        return {id: kept for id, kept in merged.items() if kept is not None}

    def _get(self, id: str) -> ev.Artifact:
        found = self.changes[id] if id in self.changes else self._known.get(id)
        if found is None:
            raise ArtifactNotFound(id, list(self._present()))
        return found

    def _forget(self) -> None:
        """Drop content that no change refers to any more."""
        used = {kept.hash for kept in self.changes.values() if kept is not None}
        self.contents = {hash: content for hash, content in self.contents.items() if hash in used}

    def _info(self, id: str, kept: ev.Artifact) -> ArtifactInfo:
        return ArtifactInfo(id, kept.name, kept.size, kept.stored_at_us, self._has_files)


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def decoded(form: ev.ArtifactForm, content: bytes) -> Any:
    """Stored content in its original form."""
    match form:
        case "bytes":
            return content
        case "text":
            return content.decode()
        case "json":
            return msgspec.json.decode(content)


def redacted_data(redactor: Redactor, data: object) -> object:
    """What is to be stored, without secrets."""
    if isinstance(data, bytes | bytearray | memoryview):
        return redactor.redact_bytes(bytes(data))
    return redactor.redact_value(data)


def _encoded(id: str, data: object) -> tuple[ev.ArtifactForm, bytes]:
    match data:
        case bytes() | bytearray() | memoryview():
            return "bytes", bytes(data)
        case str():
            check_value(data, f"artifact {id!r}")
            return "text", data.encode()
        case _:
            check_value(data, f"artifact {id!r}")
            return "json", msgspec.json.encode(data)


def _check_id(id: object) -> None:
    if not isinstance(id, str) or not 1 <= len(id) <= ev.ARTIFACT_ID_MAX or not id.isprintable():
        raise InvalidInput(
            f"{id!r} cannot be the id of an artifact; use 1 to {ev.ARTIFACT_ID_MAX} printable characters."
        )


FILES_SHOWN = 20
RESPONSE_CHARACTERS_SHOWN = 4_000


class PreviousAttempt(msgspec.Struct, frozen=True):
    """The previous attempt: its directory, if it had one, its answer so far, and its files.

    `artifacts` are the paths of the files in its `artifacts/`, by name: they are not artifacts of the run,
    since the attempt never finished. `response` is its `response.md` or its transcript.
    """

    directory: str | None = None
    response: str = ""
    files: tuple[LeftFile, ...] = ()
    artifacts: Mapping[str, str] = msgspec.field(default_factory=dict)

    def summary(self) -> str:
        """The text for an agent's session that continues. Of a long response, it has the end."""
        lines = [
            "An earlier attempt of this step was cut off. Continue from what it left; do not start over."
        ]
        if self.directory is None:
            lines.append("It left no known files.")
        else:
            lines += [f"Its directory: {self.directory}", *(_line(file) for file in self.files[:FILES_SHOWN])]
            if len(self.files) > FILES_SHOWN:
                lines.append(f"- and {len(self.files) - FILES_SHOWN:,} more")
        if self.response:
            shown = self.response[-RESPONSE_CHARACTERS_SHOWN:]
            more = len(self.response) - len(shown)
            lines.append(f"Its answer so far{f' (without the first {more:,} characters)' if more else ''}:")
            lines.append(shown)
        return "\n".join(lines)


def _line(file: LeftFile) -> str:
    path = file.path if file.path.isprintable() else repr(file.path)
    return f"- {path} ({file.bytes or 0:,} bytes)"


NOTHING_LEFT = PreviousAttempt()


AUTOMATIC = "the status was set automatically: the step reported none"


class Room:
    """A room without a directory. The engine has one with a directory."""

    is_full = False
    """Whether the step's files are written even if it does not ask for its directory."""

    _artifacts: Artifacts | None = None

    def _make_artifacts(self) -> Artifacts:
        return Artifacts()

    @property
    def directory(self) -> str | None:
        return None

    @property
    def left(self) -> PreviousAttempt:
        """What the previous attempt left on disk; looking for it takes a moment."""
        return NOTHING_LEFT

    @property
    def run_directory(self) -> str | None:
        return None

    @property
    def artifacts(self) -> Artifacts:
        if self._artifacts is None:
            self._artifacts = self._make_artifacts()
        return self._artifacts

    def keep_output(self, stream: str, data: bytes) -> None:
        """Keep what the attempt prints, where there is a place for it."""

    def end_output(self) -> None:
        """The attempt prints nothing more."""

    def is_used(self) -> bool:
        """Whether the step left something here that belongs to its result."""
        return self._artifacts is not None

    async def prepare(self, node: Node, prompt: str) -> None:
        """Prepare the files of a step that is about to start in a full room."""

    async def settle(self, node: Node, result: Result) -> Result:
        """The result together with what the step left here."""
        if not result.is_decided and node.auto_status:
            result = replace(result, notes="; ".join(filter(None, (AUTOMATIC, result.notes))))
        return self._with_artifacts(result)

    def _with_artifacts(self, result: Result) -> Result:
        found = self._artifacts
        if found is None or not found.changes:
            return result
        return replace(result, artifacts=dict(found.changes), contents=dict(found.contents))


Show = Callable[[str, str], None]
"""Shows a person one line of a stream."""
ShowLine = Callable[[str, str, str], None]
"""Shows a line that a step printed: the step, the stream, and the line."""
LINE_BYTES_MAX = 4 * ev.OUTPUT_LINE_CHARACTERS_MAX
_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(os.__file__)), "")


class AttemptOutput:
    """Hears what the commands of one attempt print: the room keeps it, and `show` gets it line by line.

    The last lines, and the error that the handler raised, are kept for the event that ends the attempt.
    """

    def __init__(self, room: Room, show: Show | None = None, *, redactor: Redactor = NOTHING_SECRET) -> None:
        """What commands print was redacted by who started them; errors are redacted here."""
        self._room, self._show, self._redactor = room, show, redactor
        self._unfinished: dict[str, bytes] = {}  # most attempts print nothing
        self._lines: deque[ev.PrintedLine] | None = None
        self._error = self._traceback = ""

    @property
    def is_shown(self) -> bool:
        """Whether a person sees it as it comes."""
        return self._show is not None

    def hear(self, stream: str, data: bytes) -> None:
        """The attempt has printed this."""
        self._room.keep_output(stream, data)
        *lines, rest = (self._unfinished.get(stream, b"") + data).split(b"\n")
        self._unfinished[stream] = _bounded(rest)
        self._take(stream, lines if self._show is not None else lines[-ev.OUTPUT_LINES_MAX :])

    def raised(self, error: BaseException) -> None:
        """The handler has raised this."""
        self.raised_elsewhere(kind_of(error), traceback_of(error))

    def raised_elsewhere(self, error: str, where: str) -> None:
        """The handler has raised an error of this type in another process."""
        self._error, self._traceback = error, _shortened(self._redactor.redact(where))

    def close(self) -> None:
        """The attempt is over. A last line may lack its end."""
        if not self._unfinished:
            return  # it printed nothing, so the room has nothing to end
        for stream in (ev.STDOUT, ev.STDERR):
            rest = self._unfinished.pop(stream, b"")
            if rest:
                self._take(stream, [rest])
        self._room.end_output()

    def last(self) -> ev.LastOutput | None:
        """What is kept of it; None if there is nothing."""
        if not self._lines and not self._traceback:
            return None
        return ev.LastOutput(lines=tuple(self._lines or ()), error=self._error, traceback=self._traceback)

    def _take(self, stream: str, lines: list[bytes]) -> None:
        if self._lines is None:
            self._lines = deque(maxlen=ev.OUTPUT_LINES_MAX)
        for line in lines:
            text = _text(line)
            self._lines.append(ev.PrintedLine(text, stream))
            if self._show is not None:
                self._show(stream, text)


def _bounded(rest: bytes) -> bytes:
    """The line that has not ended; of a very long one the beginning. A progress bar begins after each CR."""
    return rest if len(rest) <= LINE_BYTES_MAX else rest.rpartition(b"\r")[2][:LINE_BYTES_MAX]


def _text(line: bytes) -> str:
    """A line as text that any store can hold."""
    seen = line.rstrip(b"\r").rpartition(b"\r")[2]
    text = seen.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return (
        text
        if len(text) <= ev.OUTPUT_LINE_CHARACTERS_MAX
        else f"{text[: ev.OUTPUT_LINE_CHARACTERS_MAX - 1]}…"
    )


def traceback_of(error: BaseException) -> str:
    """The traceback from the handler's own code on.

    Empty for an error of Onward that no code outside Onward led to: its message says it all. Empty also for
    one that does not let itself be looked at.
    """
    try:
        return _traceback_of(error)
    except BaseException:  # of the error's own methods, which must not decide anything
        return ""


def _traceback_of(error: BaseException) -> str:
    told = traceback.TracebackException.from_exception(error)
    is_ours = _is_ours(error)
    if not _trim(told, error) and is_ours:
        return ""
    text = "".join(told.format()).rstrip().replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "backslashreplace").decode()


def _is_ours(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] == "onward"


def _trim(told: traceback.TracebackException, error: BaseException) -> bool:
    """Drop the frames that led to the handler's code, also of what caused the error; whether it has any.

    Of an error of Onward the frames after that code are dropped too.
    """
    for before, cause in ((told.__cause__, error.__cause__), (told.__context__, error.__context__)):
        if before is not None and cause is not None:
            _trim(before, cause)
    frames = [*told.stack]
    own = [at for at, frame in enumerate(frames) if not _is_around(frame.filename)]
    if own:
        last = own[-1] + 1 if _is_ours(error) else None
        told.stack = traceback.StackSummary.from_list(frames[own[0] : last])
    elif _is_ours(error):
        told.stack = traceback.StackSummary()
    return bool(own)


def _shortened(text: str) -> str:
    """The end of a long traceback."""
    left_out = len(text) - ev.TRACEBACK_CHARACTERS_MAX
    return text if left_out <= 0 else f"… ({left_out:,} characters before)\n{text[left_out:]}"


def _is_around(filename: str) -> bool:
    """Whether a frame is of Onward or of the standard library, which lead to the handler."""
    return filename.startswith((_OURS, "<frozen ")) or (
        filename.startswith(_LIBRARY) and "site-packages" not in filename
    )
