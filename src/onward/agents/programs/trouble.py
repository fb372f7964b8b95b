"""What it means that a program failed: by the words it says and the code it exits with. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from onward.agents.model.failure import Failure, FailureKind, ModelFailed
from onward.agents.programs.program import Program
from onward.agents.programs.reading.pieces import Trouble
from onward.agents.wire.refusal import ADVICE, hide, plain

SESSION = "session"
"""The kind of trouble that no failure of a model is: the session to continue is not there."""

_LOST = re.compile(
    r"no conversation found|--resume requires a valid session|no rollout found|no saved session found"
    r"|(?:session|thread|conversation)\b.{0,80}\bnot found|invalid session identifier|no previous sessions",
    re.IGNORECASE,
)
# The first that is found counts. Programs pass on what their providers say, so these are their words too.
_BY_WORDS: Sequence[tuple[FailureKind, re.Pattern[str]]] = tuple(
    (kind, re.compile(words, re.IGNORECASE))
    for kind, words in (
        (
            FailureKind.CREDIT,
            r"credit balance|insufficient_quota|current quota|quota exceeded\. check your plan|billing",
        ),
        (
            FailureKind.RATE_LIMIT,
            r"(?:usage|session|weekly|5-hour) limit|rate.?limit|\b429\b|too many requests"
            r"|resource_exhausted|quota",
        ),
        (
            FailureKind.AUTH,
            r"invalid api key|api key not valid|api_key_invalid|(?:missing|no) api key|/login|not logged in"
            r"|authenticat|oauth|unauthorized|\b401\b|auth method|(?:please|run) .{0,20}log ?in",
        ),
        (FailureKind.FORBIDDEN, r"\b403\b|permission_error|forbidden"),
        (
            FailureKind.TOO_LONG,
            r"prompt is too long|context (?:length|window|size|limit)|too many tokens",
        ),
        (
            FailureKind.TRANSIENT,
            r"overloaded|\b5(?:00|02|03|04|29)\b|timed? ?out|disconnected|connection|econn|network"
            r"|unavailable",
        ),
        (
            FailureKind.REQUEST,
            r"\b40[04]\b|invalid_request|not_found_error"
            r"|model\b.{0,80}(?:not (?:found|supported)|does not exist)"
            r"|(?:unknown|unrecognized|unexpected|invalid) (?:option|argument|command)|unknown arguments"
            r"|not inside a trusted directory",
        ),
    )
)
_BY_EXIT_CODE: Mapping[str, Mapping[int, FailureKind]] = {
    "gemini": {41: FailureKind.AUTH, 42: FailureKind.REQUEST, 52: FailureKind.REQUEST}
}
_KINDS = frozenset(kind.value for kind in FailureKind)
_EPOCH = re.compile(r"\|(\d{10})\b")
_AFTER = re.compile(
    r"(?:try again|retry|reset\w*)(?: your request)? (?:in|after) "
    r"((?:\d+(?:\.\d+)? ?(?:d|h|m|s)\w*,? ?(?:and )?)+)",
    re.IGNORECASE,
)
_PART = re.compile(r"(\d+(?:\.\d+)?) ?(d|h|ms|m|s)", re.IGNORECASE)
_SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class ProgramFailed(ModelFailed):
    """A turn failed. `is_session_lost`: the program no longer has the session; `has_worked`: it had begun."""

    def __init__(self, failure: Failure, *, is_session_lost: bool = False, has_worked: bool = False) -> None:
        super().__init__(failure)
        self.is_session_lost, self.has_worked = is_session_lost, has_worked


def failed(
    program: Program,
    trouble: Trouble,
    *,
    now_us: int,
    exit_code: int | None = None,
    has_worked: bool = False,
    model: str = "",
) -> ProgramFailed:
    """The failure that a program's trouble is."""
    kind = _kind(program, trouble, exit_code)
    said = plain(hide(trouble.message, ())).rstrip(". ")
    failure = Failure(
        kind=kind,
        message=f"{program.name} failed ({said}); {_advice(program, kind)}.",
        provider=program.name,
        model=model,
        retry_at_us=trouble.retry_at_us or _retry_at_us(trouble.message, now_us),
        may_have_cost=has_worked,
    )
    is_lost = trouble.kind == SESSION or (not trouble.kind and _LOST.search(trouble.message) is not None)
    return ProgramFailed(failure, is_session_lost=is_lost, has_worked=has_worked)


def missing(program: Program, why: str) -> str:
    """One sentence: the program cannot be started, and what to do."""
    install = f"install it with `{program.install}`" if program.install else "install it"
    return (
        f"the program {program.name} cannot be started, because {program.command[0]!r} {why}; "
        f"{install}, or set its command in [programs.{program.name}] of onward.toml."
    )


def not_started(program: Program, why: str, *, kind: FailureKind) -> ProgramFailed:
    """The failure of a program that did not run."""
    return ProgramFailed(Failure(kind=kind, message=why, provider=program.name, model=""))


def _kind(program: Program, trouble: Trouble, exit_code: int | None) -> FailureKind:
    if trouble.kind in _KINDS:
        return FailureKind(trouble.kind)
    by_code = _BY_EXIT_CODE.get(program.format, {}).get(exit_code or 0)
    if by_code is not None:
        return by_code
    return next((kind for kind, words in _BY_WORDS if words.search(trouble.message)), FailureKind.CUT)


def _advice(program: Program, kind: FailureKind) -> str:
    if kind is FailureKind.AUTH and program.log_in:
        return f"{program.log_in}, then resume the run"
    if kind is FailureKind.REQUEST:
        return f"check the model's name and the arguments of {program.name}, then resume the run"
    return ADVICE[kind]


def _retry_at_us(message: str, now_us: int) -> int | None:
    """When the program says that it can be asked again: as a time, or as a while."""
    if epoch := _EPOCH.search(message):
        return int(epoch[1]) * 1_000_000
    if after := _AFTER.search(message):
        seconds = sum(float(number) * _SECONDS[unit.lower()] for number, unit in _PART.findall(after[1]))
        return now_us + round(seconds * 1_000_000)
    return None
