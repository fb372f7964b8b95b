"""How an attempt ends: with a result, or cut off, with what it left as far as that can be seen.

A handler hands back a `Result`: a value, never an exception, never a suspension. An effect that runs at
most once has a stored result of its own (`EffectResult`), which later attempts get instead of running it
again. What is found after a crash is `Left`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import Any

import msgspec

from onward.errors import EffectFailed, InvalidInput, StoreCorrupt
from onward.model.context import plain_text
from onward.model.events import Artifact, LastOutput, StepStatus
from onward.model.run import Frozen

LOG_LINES_MAX, LOG_LINE_MAX = 100, 1_000
EXCERPT_MAX = 8_192
REASON_MAX = 10_000
"""How many characters are kept of why something failed: an error may have a whole page in its text."""
LOG_FULL = "… the lines after this one were left out"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one attempt. `retryable`: whether a retry may succeed.

    `response` is an agent's text. `is_decided`: the handler itself has decided the outcome; otherwise a
    `status.json` that was written during the attempt decides. What the step did to the run's artifacts, and
    the end of what a failed attempt printed, are filled in by the engine. The next attempt asks every
    repeatable call again, unless a failure `keeps_calls`: an error or a time limit does. With `stop`, a
    failure stops the run for this reason, whatever edges there are.
    """

    status: StepStatus = StepStatus.SUCCESS
    context_updates: Mapping[str, Any] = field(default_factory=dict)
    preferred_label: str = ""
    suggested_next_ids: tuple[str, ...] = ()
    notes: str = ""
    failure_reason: str = ""
    retryable: bool = True
    log: tuple[str, ...] = ()
    response: str = ""
    is_decided: bool = True
    artifacts: Mapping[str, Artifact | None] = field(default_factory=dict)
    contents: Mapping[str, bytes] = field(default_factory=dict)
    output: LastOutput | None = None
    keeps_calls: bool = False
    stop: str = ""

    def __post_init__(self) -> None:
        """What a handler says is stored and must be readable for ever, so a wrong type is refused here."""
        if type(self.status) is not StepStatus:
            object.__setattr__(self, "status", _status(self.status))
        for name in ("preferred_label", "notes", "failure_reason", "response"):
            text = getattr(self, name)
            if type(text) is not str or not text.isascii():
                object.__setattr__(self, name, plain_text(text, f"{name} of a result"))
        if self.suggested_next_ids != ():
            ids = tuple(plain_text(one, "a suggested id of a result") for one in self.suggested_next_ids)
            object.__setattr__(self, "suggested_next_ids", ids)
        if self.log != ():
            # They are shortened when they are recorded: before that, secrets are looked for in the whole.
            lines = tuple(
                plain_text(line, "a line for the log") for line in islice(self.log, LOG_LINES_MAX + 1)
            )
            object.__setattr__(self, "log", lines)

    def with_log(self, lines: Iterable[str]) -> Result:
        """The same, and what the handler wrote down on the way before its result."""
        return replace(self, log=(*lines, *self.log))

    @classmethod
    def success(cls, notes: str = "", **context_updates: Any) -> Result:
        """The step succeeded."""
        return cls(notes=notes, context_updates=context_updates)

    @classmethod
    def fail(cls, reason: str, *, retryable: bool = True) -> Result:
        """The step failed; with `retryable=False` trying again is pointless."""
        return cls(status=StepStatus.FAIL, failure_reason=reason, retryable=retryable)

    @classmethod
    def retry(cls, reason: str) -> Result:
        """Not yet: try again."""
        return cls(status=StepStatus.RETRY, failure_reason=reason)


def log_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """Lines for the log as they are stored: a few, none of them long. What is left out is said."""
    kept = [log_line(line) for line in islice(lines, LOG_LINES_MAX + 1)]
    return tuple(kept if len(kept) <= LOG_LINES_MAX else [*kept[:LOG_LINES_MAX], LOG_FULL])


def log_line(line: object) -> str:
    """One line for the log, shortened if need be."""
    text = plain_text(line, "a line for the log")
    if len(text) <= LOG_LINE_MAX:
        return text
    size = f"… ({len(text):,} characters)"
    return text[: LOG_LINE_MAX - len(size)] + size


def excerpt(text: str, most: int = EXCERPT_MAX) -> str:
    """The text, or the beginning of a long one and its length, as a gate shows it."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text):,} characters)"


def _status(status: object) -> StepStatus:
    try:
        return StepStatus(status)  # type: ignore[arg-type]
    except ValueError:
        known = ", ".join(StepStatus)
        raise InvalidInput(f"the status {status!r} of a result is not one of {known}.") from None


EFFECT_KEY_MAX = 500


class CommandResult(Frozen, frozen=True, kw_only=True, tag="command"):
    """A command ended, with an exit code or by a signal; `truncated`: only the end of its output was kept."""

    exit_code: int | None
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False

    @property
    def is_success(self) -> bool:
        return self.exit_code == 0


class FunctionResult(Frozen, frozen=True, kw_only=True, tag="function"):
    """A function returned `value`, or raised what `error` says."""

    value: Any = None
    error: str | None = None

    @property
    def is_success(self) -> bool:
        return self.error is None


class SettledResult(Frozen, frozen=True, kw_only=True, tag="settled"):
    """A person found out that it was done, and its result."""

    text: str

    @property
    def is_success(self) -> bool:
        return True


EffectResult = CommandResult | FunctionResult | SettledResult
_EFFECT_DECODER = msgspec.json.Decoder(EffectResult)


def pack_effect(result: EffectResult) -> bytes:
    """A result as it is stored."""
    return msgspec.json.encode(result)


def unpack_effect(key: str, stored: bytes) -> EffectResult:
    """A stored result."""
    try:
        result: EffectResult = _EFFECT_DECODER.decode(stored)
        return result
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"the result of effect {key!r} is damaged: {error}.") from None


def check_effect_key(key: str) -> str:
    """A key that can be stored and shown."""
    if not key or len(key) > EFFECT_KEY_MAX or not key.isprintable():
        raise InvalidInput(
            f"{key[:50]!r} cannot be an effect's key; use 1 to {EFFECT_KEY_MAX} printable characters."
        )
    return key


def as_command(key: str, result: EffectResult) -> CommandResult:
    """What a command's caller gets; a function's result is none."""
    match result:
        case CommandResult():
            return result
        case SettledResult(text=text):
            return CommandResult(exit_code=0, stdout=text)
        case _:
            raise InvalidInput(
                f"effect {key!r} was run by a Python function, not by a command; use another key."
            )


def as_value(key: str, result: EffectResult) -> Any:
    """What a function's caller gets: its value, or EffectFailed with what it raised."""
    match result:
        case FunctionResult(error=str() as error):
            raise EffectFailed(key, error)
        case FunctionResult():
            return result.value
        case SettledResult(text=text):
            return _json_or_text(text)
        case _:
            raise InvalidInput(
                f"effect {key!r} was run by a command, not by a Python function; use another key."
            )


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


NOT_LEFT = frozenset({"prompt.md", "stdout.log", "stderr.log"})
"""Files of an attempt that say nothing about what it did: its prompt, and what it printed."""


class Assessment(StrEnum):
    """Clean: everything was looked at, and nothing is there. Unknown: nothing was found in what was seen."""

    CLEAN = "clean"
    PARTIAL = "partial"
    UNKNOWN = "unknown"


class LeftFile(Frozen, frozen=True):
    """A file and its size, None if it was removed.

    A directory, whose name ends with a slash, is new, or something was removed from it.
    """

    path: str
    bytes: int | None


class LeftEffect(Frozen, frozen=True, kw_only=True):
    """An effect that the step began: `state` is begun, in_doubt or finished.

    `about` is the tool of an agent, and what it was used with, shortened.
    """

    key: str
    state: str
    begun_at_us: int
    about: str = ""


class Left(Frozen, frozen=True, kw_only=True):
    """One step: the call that was open, what is in its own directory, and what changed since it began.

    `unseen` says what could not be looked at and why. `place` is where changes were looked for.
    """

    step: str
    node: str
    attempt: int
    began_at_us: int | None = None
    handler: str = ""
    command: str = ""
    directory: str | None = None
    files: tuple[LeftFile, ...] = ()
    place: str | None = None
    changed: tuple[LeftFile, ...] = ()
    effects: tuple[LeftEffect, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def assessment(self) -> Assessment:
        """Partial if something was found; clean only if everything could be looked at."""
        if self.changed or self.effects or any(file.path not in NOT_LEFT for file in self.files):
            return Assessment.PARTIAL
        return Assessment.UNKNOWN if self.unseen else Assessment.CLEAN
