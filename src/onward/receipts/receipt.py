"""Receipts and handoffs as values: two closed schemas, each with a version.

A receipt says how a step ended; a handoff says what a finished step passes on. The JSON Schemas in
`schemas/` are generated from these classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, TypeVar

import msgspec
from blake3 import blake3
from msgspec import Meta

from onward.errors import InvalidInput

SCHEMA_VERSION: Literal[1] = 1
CALLING_VERSION: Literal[2] = 2
"""Of the receipts of steps that made recorded calls."""
BYTES_MAX = 16 * 1024 * 1024
SUMMARY_CHARACTERS_MAX = 2_000

Status = Literal["succeeded", "failed", "interrupted", "timed_out", "skipped"]
Mode = Literal["stub", "sdk", "cli", "control"]
Verification = Literal["VERIFIED", "UNVERIFIED", "BLOCKED"]
Name = Annotated[str, Meta(min_length=1)]
Instant = Annotated[str, Meta(pattern=r"^\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")]
Count = Annotated[int, Meta(ge=0)]
Ordinal = Annotated[int, Meta(ge=1)]
Hash = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]


class ClosedSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every field must be present, and no other."""


class Tokens(ClosedSchema, frozen=True, kw_only=True):
    """What a model was sent and answered."""

    prompt: Count
    completion: Count
    total: Count


class Tried(ClosedSchema, frozen=True, kw_only=True):
    """One try of an attempt. `lost`: its process died. After `failed` the step was retried, or ended."""

    attempt: Ordinal
    number: Ordinal
    started_at: Instant
    ended_at: Instant | None
    status: Literal["succeeded", "failed", "interrupted", "timed_out", "skipped", "lost"]
    reason: str


class Routing(ClosedSchema, frozen=True, kw_only=True):
    """Where the run goes from a finished step, and why; `to` is null where no edge leads out of it."""

    to: str | None
    reason: str
    edge: int | None
    preferred_label: str
    suggested_next_ids: tuple[str, ...]


class Evidence(ClosedSchema, frozen=True, kw_only=True):
    """An artifact that the step stored: its path in the run's directory, and the BLAKE3 of its content."""

    id: Name
    name: str
    path: Name
    size_bytes: Count
    hash: Hash


class Receipt(ClosedSchema, frozen=True, kw_only=True):
    """How one step ended. `sequence` is the number of the event in the run's log that records it."""

    schema_version: Literal[1]
    run_id: Name
    flow_key: str
    step_id: Name
    node: Name
    branch: str
    visit: Ordinal
    agent_key: Name
    engine: Name
    mode: Mode
    provider: str | None
    model: str | None
    status: Status
    started_at: Instant
    completed_at: Instant
    duration_ms: Count
    sequence: Ordinal
    previous: str | None
    attempts: tuple[Tried, ...]
    error: str | None
    tokens: Tokens | None
    transcript_path: str | None
    handoff_envelope_path: str | None
    routing: Routing | None
    artifacts: tuple[Evidence, ...]
    log: tuple[str, ...]
    workspace_root: str | None
    recorded_in: Name

    @property
    def is_finished(self) -> bool:
        """Whether the step has its final outcome; if not, it may run again."""
        return self.handoff_envelope_path is not None


class Used(ClosedSchema, frozen=True, kw_only=True):
    """The tokens of all calls: `cached` and `cache_write` are part of `input`, `reasoning` of `output`."""

    input: Count
    output: Count
    cached: Count
    cache_write: Count
    reasoning: Count


class Made(ClosedSchema, frozen=True, kw_only=True):
    """The recorded calls: the answered ones by what they did, and the tries that failed or were lost."""

    models: Count
    programs: Count
    tools: Count
    functions: Count
    failed: Count
    lost: Count


class Commits(ClosedSchema, frozen=True, kw_only=True):
    """The commits with all files of the workspace before the step and after it."""

    before: Name
    after: Name


class CallingReceipt(Receipt, frozen=True, kw_only=True):
    """The receipt of a step that made recorded calls: version 2, which adds what they came to.

    Other steps still have receipts of version 1, so that those of older runs are what their logs stand for.
    """

    schema_version: Literal[2]  # type: ignore[assignment]
    usage: Used | None
    cost_micro: Count | None
    calls: Made
    models: tuple[str, ...]
    workspace: Commits | None


class Concern(ClosedSchema, frozen=True, kw_only=True):
    """Something that the next step, or a person, should know."""

    severity: Literal["low", "medium", "high"]
    text: Name


class Handoff(ClosedSchema, frozen=True, kw_only=True):
    """What a finished step passes on. `receipt_hash` is the BLAKE3 of the receipt that belongs to it."""

    schema_version: Literal[1]
    run_id: Name
    flow_key: str
    step_id: Name
    agent_key: Name
    sequence: Ordinal
    timestamp: Instant
    status: Status
    verification: Verification
    summary: Annotated[str, Meta(max_length=SUMMARY_CHARACTERS_MAX)]
    routing_signal: Routing
    artifacts: tuple[Evidence, ...]
    context_changes: tuple[str, ...]
    decisions_made: tuple[str, ...]
    concerns: tuple[Concern, ...]
    error: str | None
    duration_ms: Count
    receipt_path: Name
    receipt_hash: Hash


Page = TypeVar("Page", Receipt, Handoff)


class _Version(msgspec.Struct, frozen=True):
    schema_version: int


def written(page: Receipt | Handoff) -> bytes:
    """A page as its file holds it."""
    return msgspec.json.format(msgspec.json.encode(page), indent=2) + b"\n"


def hash_of(content: bytes) -> str:
    """How a handoff names its receipt."""
    return blake3(content).hexdigest()


def read_receipt(content: bytes, path: str) -> Receipt:
    """A receipt, if the file is one; InvalidInput names the file and what is wrong with it."""
    return _read(content, path, Receipt, {CALLING_VERSION: CallingReceipt})


def read_handoff(content: bytes, path: str) -> Handoff:
    """A handoff, if the file is one; InvalidInput names the file and what is wrong with it."""
    return _read(content, path, Handoff)


def _read(content: bytes, path: str, kind: type[Page], later: Mapping[int, type[Page]] | None = None) -> Page:
    what, kinds = kind.__name__.lower(), {SCHEMA_VERSION: kind, **(later or {})}
    if len(content) > BYTES_MAX:
        raise InvalidInput(f"{path} is not a valid {what}: it has more than {BYTES_MAX:,} bytes.")
    version: int = SCHEMA_VERSION
    try:
        version = msgspec.json.decode(content, type=_Version).schema_version
        if version not in kinds:
            known = " and ".join(map(str, kinds))
            raise InvalidInput(
                f"{path} is a {what} of version {version}; this version of Onward reads version {known}."
            )
        page = msgspec.json.decode(content, type=kinds[version])
        for at in _instants(page):
            datetime.fromisoformat(at)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not a valid {what} of version {version}: {error}.") from None
    return page


def _instants(page: Receipt | Handoff) -> list[str]:
    if isinstance(page, Handoff):
        return [page.timestamp]
    tried = [at for one in page.attempts for at in (one.started_at, one.ended_at) if at is not None]
    return [page.started_at, page.completed_at, *tried]
