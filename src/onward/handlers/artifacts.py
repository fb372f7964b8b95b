"""The artifacts of a run, as a step sees and changes them.

What a step stores or removes becomes durable with its outcome, in the same commit, and later steps see it. An
attempt that dies or fails stores nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from blake3 import blake3

from onward.errors import ArtifactNotFound, InvalidInput, StoreCorrupt
from onward.model.context import check_value, plain_text
from onward.model.events import (
    ARTIFACT_BYTES_MAX,
    ARTIFACT_ID_MAX,
    ARTIFACTS_MAX,
    STEP_BYTES_MAX,
    Artifact,
    ArtifactForm,
)
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
        known: Mapping[str, Artifact] | None = None,
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
        self.changes: dict[str, Artifact | None] = {}
        self.contents: dict[str, bytes] = {}

    def store(self, id: str, name: str, data: bytes | str | Any) -> ArtifactInfo:
        """Store `data` under `id`, without secrets; an existing artifact is replaced."""
        _check_id(id)
        if not self._redactor.is_empty:
            id, name = self._redactor.redact(id), self._redactor.redact_value(name)
            data = redacted_data(self._redactor, data)
        form, content = _encoded(id, data)
        return self._put(id, name, form, content)

    def _put(self, id: str, name: str, form: ArtifactForm, content: bytes) -> ArtifactInfo:
        self._check_room(id, len(content))
        kept = Artifact(
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
        if size > ARTIFACT_BYTES_MAX:
            raise InvalidInput(
                f"artifact {id!r} has {size:,} bytes, and at most {ARTIFACT_BYTES_MAX:,} can be stored; "
                "put it elsewhere and store its location."
            )
        others = sum(kept.size for other, kept in self.changes.items() if kept is not None and other != id)
        if size + others > STEP_BYTES_MAX:
            raise InvalidInput(
                f"with artifact {id!r} the step stores more than {STEP_BYTES_MAX:,} bytes; "
                "store less, or in several steps."
            )
        if not self.has(id) and len(self._present()) >= ARTIFACTS_MAX:
            raise InvalidInput(
                f"the run has {ARTIFACTS_MAX:,} artifacts, the most it can have; remove some, "
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

    def _present(self) -> dict[str, Artifact]:
        merged = {**self._known, **self.changes}
        return {id: kept for id, kept in merged.items() if kept is not None}

    def _get(self, id: str) -> Artifact:
        found = self.changes[id] if id in self.changes else self._known.get(id)
        if found is None:
            raise ArtifactNotFound(id, list(self._present()))
        return found

    def _forget(self) -> None:
        """Drop content that no change refers to any more."""
        used = {kept.hash for kept in self.changes.values() if kept is not None}
        self.contents = {hash: content for hash, content in self.contents.items() if hash in used}

    def _info(self, id: str, kept: Artifact) -> ArtifactInfo:
        return ArtifactInfo(id, kept.name, kept.size, kept.stored_at_us, self._has_files)


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def decoded(form: ArtifactForm, content: bytes) -> Any:
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


def _encoded(id: str, data: object) -> tuple[ArtifactForm, bytes]:
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
    if not isinstance(id, str) or not 1 <= len(id) <= ARTIFACT_ID_MAX or not id.isprintable():
        raise InvalidInput(
            f"{id!r} cannot be the id of an artifact; use 1 to {ARTIFACT_ID_MAX} printable characters."
        )
