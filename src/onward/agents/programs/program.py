"""The programs that may work as agents: settings, command lines, and what their failures mean.

Three programs are known by name; `[programs.NAME]` describes others. All of this is pure, except that
`list_programs` looks where the programs are, for `onward models` and `onward doctor`.

The prompt of a turn goes to standard input, never onto the command line, where others could see it and a
flag could hide in it. A value that is not ours is joined to its flag with `=` for the same reason.

Why a program failed is told by the words it says and the code it exits with.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from onward.agents.lists import ProgramShown
from onward.agents.model import Failure, FailureKind, ModelFailed
from onward.agents.programs import output as pieces
from onward.agents.refusal import ADVICE, hide, plain
from onward.clock import Clock
from onward.errors import InvalidInput
from onward.model.values import shown

FILE = "onward.toml"
LINES, TEXT = "lines", "text"
SETTINGS = {"command", "format", "arguments", "env", "reports_cost"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_VARIABLE = re.compile(r"[^\s=,$\[\]]+")


class Program(msgspec.Struct, frozen=True):
    """A program that works as an agent.

    `command` is what is executed, without a shell; `arguments` follow ours. It gets the variables that `keys`
    and `env` name besides those that every command gets. `provider` is whose models it asks.
    """

    name: str
    format: str
    command: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    provider: str = ""
    reports_cost: bool = False
    install: str = ""
    log_in: str = ""

    @property
    def variables(self) -> tuple[str, ...]:
        """The names and patterns of the variables that it gets besides the usual ones."""
        return (*self.keys, *self.env)


KNOWN_PROGRAMS: Mapping[str, Program] = {
    known.name: known
    for known in (
        Program(
            "claude-code",
            "claude-code",
            ("claude",),
            keys=("ANTHROPIC_API_KEY",),
            provider="anthropic",
            reports_cost=True,
            install="npm install -g @anthropic-ai/claude-code",
            log_in="start `claude` and type /login, or set ANTHROPIC_API_KEY",
        ),
        Program(
            "codex",
            "codex",
            ("codex",),
            keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
            provider="openai",
            install="npm install -g @openai/codex",
            log_in="run `codex login`, or set CODEX_API_KEY",
        ),
        Program(
            "gemini",
            "gemini",
            ("gemini",),
            keys=("GEMINI_API_KEY",),
            provider="google",
            install="npm install -g @google/gemini-cli",
            log_in="start `gemini` and log in, or set GEMINI_API_KEY",
        ),
    )
}
FORMATS = (*KNOWN_PROGRAMS, LINES, TEXT)


def read_programs(table: Mapping[str, Any], path: Callable[[str], str]) -> dict[str, Program]:
    """All programs, by name; InvalidInput if the settings describe one badly.

    `path` gives a path of the settings from the project's directory.
    """
    return {**KNOWN_PROGRAMS, **{name: _program(name, value, path) for name, value in table.items()}}


def _program(name: str, value: object, path: Callable[[str], str]) -> Program:
    where = f"[programs.{name}] in {FILE}"
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{where} has an invalid name; use letters, digits, `-`, `_` and `.`.")
    if not isinstance(value, dict):
        raise InvalidInput(f"programs.{name} in {FILE} is {shown(value)}; write a table [programs.{name}].")
    if unknown := sorted(value.keys() - SETTINGS):
        known = ", ".join(sorted(SETTINGS))
        raise InvalidInput(f"{where} sets {', '.join(unknown)}; known settings are {known}.")
    format = value.get("format", name if name in KNOWN_PROGRAMS else LINES)
    if format not in FORMATS:
        raise InvalidInput(f"format of {where} is {shown(format)}; write one of {', '.join(FORMATS)}.")
    like = KNOWN_PROGRAMS.get(format, Program(name, format, ()))
    command = _texts(value.get("command", list(like.command)), f"command of {where}")
    if not command or not command[0]:
        raise InvalidInput(f'{where} has no command; write one, as in command = ["./agent", "--quiet"].')
    reports_cost = value.get("reports_cost", like.reports_cost)
    if not isinstance(reports_cost, bool):
        raise InvalidInput(f"reports_cost of {where} is {shown(reports_cost)}; write true or false.")
    return replace(
        like,
        name=name,
        command=(_placed(command[0], path), *command[1:]),
        arguments=_texts(value.get("arguments", []), f"arguments of {where}"),
        env=_variables(_texts(value.get("env", []), f"env of {where}"), where),
        reports_cost=reports_cost,
        install="" if command != like.command else like.install,
    )


def _texts(value: object, where: str) -> tuple[str, ...]:
    is_list = isinstance(value, list) and all(isinstance(one, str) and "\0" not in one for one in value)
    if not is_list:
        raise InvalidInput(f'{where} is {shown(value)}; write a list of strings, as in ["--flag", "value"].')
    assert isinstance(value, list)
    return tuple(value)


def _variables(names: Sequence[str], where: str) -> tuple[str, ...]:
    for name in names:
        if not _VARIABLE.fullmatch(name):
            raise InvalidInput(
                f"env of {where} has {name!r}, which is not a variable name; write a name, or AWS_*."
            )
    return tuple(names)


def _placed(word: str, path: Callable[[str], str]) -> str:
    """A path is meant from the project's directory, a bare name is looked for in PATH."""
    return path(os.path.expanduser(word)) if os.sep in word else word


TURN_VERSION = 1
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,199}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@+\[\]-]{0,199}")


class TurnRequest(msgspec.Struct, frozen=True):
    """One turn: what is said, in which session, to which model. `told` is what else our own format says."""

    prompt: str
    session: str = ""
    model: str = ""
    told: Mapping[str, Any] | None = None


def words_of(program: Program, asked: TurnRequest) -> list[str]:
    """The command line of a turn."""
    return [*program.command, *_FLAGS[program.format](program, asked)]


def input_of(program: Program, asked: TurnRequest) -> bytes:
    """What the program reads on its standard input."""
    if program.format != LINES:
        return asked.prompt.encode("utf-8", "replace")
    turn = {
        "version": TURN_VERSION,
        "prompt": asked.prompt,
        "session": asked.session or None,
        "model": asked.model or None,
        **(asked.told or {}),
    }
    return msgspec.json.encode(turn) + b"\n"


def reader_of(program: Program, clock: Clock) -> pieces.Reader | None:
    """What reads the output of one turn; None if it is plain text."""
    if program.format == TEXT:
        return None
    readers: Mapping[str, Callable[[], pieces.Reader]] = {
        "claude-code": pieces.ClaudeReader,
        "codex": pieces.CodexReader,
        "gemini": pieces.GeminiReader,
        LINES: lambda: pieces.LinesReader(clock),
    }
    return readers[program.format]()


def is_session(session: str) -> bool:
    """Whether a program's session can be named on a command line."""
    return _SESSION.fullmatch(session) is not None


def model_of(program: Program, node_id: str, *, model: str, provider: str) -> str:
    """The model that a node wants, as the program calls it; empty leaves the choice to the program."""
    named, colon, rest = model.partition(":")
    if colon and named in ("openai", "anthropic", "google") and not provider:
        provider, model = named, rest
    if provider and program.provider and provider != program.provider:
        raise InvalidInput(
            f"node {node_id!r} wants a model of {provider} from the program {program.name}, "
            f"which asks models of {program.provider}; correct llm_model, or leave it out."
        )
    if model and not _MODEL.fullmatch(model):
        raise InvalidInput(
            f"node {node_id!r} wants the model {model[:80]!r}, which is not a valid name; correct it."
        )
    return model


def _claude(program: Program, asked: TurnRequest) -> list[str]:
    words = ["-p", "--output-format", "stream-json", "--verbose"]
    words += [f"--model={asked.model}"] if asked.model else []
    words += program.arguments
    return [*words, f"--resume={asked.session}"] if asked.session else words


def _codex(program: Program, asked: TurnRequest) -> list[str]:
    words = ["exec", "--json"]
    words += [f"--model={asked.model}"] if asked.model else []
    words += program.arguments
    return [*words, "resume", asked.session, "-"] if asked.session else [*words, "-"]


def _gemini(program: Program, asked: TurnRequest) -> list[str]:
    words = ["--output-format", "stream-json"]
    words += [f"--model={asked.model}"] if asked.model else []
    words += program.arguments
    return [*words, f"--resume={asked.session}"] if asked.session else words


def _own(program: Program, asked: TurnRequest) -> list[str]:
    return list(program.arguments)


_FLAGS: Mapping[str, Callable[[Program, TurnRequest], list[str]]] = {
    "claude-code": _claude,
    "codex": _codex,
    "gemini": _gemini,
    LINES: _own,
    TEXT: _own,
}


SESSION_GONE = "session"
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
    trouble: pieces.TurnFailed,
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
    is_lost = trouble.kind == SESSION_GONE or (not trouble.kind and _LOST.search(trouble.message) is not None)
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


def _kind(program: Program, trouble: pieces.TurnFailed, exit_code: int | None) -> FailureKind:
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


def list_programs(programs: Mapping[str, Program], *, own: Collection[str], path: str) -> list[ProgramShown]:
    """All of them; `own` are those that the settings describe, `path` is where commands are looked for.

    Nothing is started: a program that is there may still be logged out.
    """
    return [_program_shown(program, program.name in own, path) for _, program in sorted(programs.items())]


def _program_shown(program: Program, is_own: bool, path: str) -> ProgramShown:
    command = program.command[0]
    found = shutil.which(command, path=path)
    install = f"; install it: {program.install}" if program.install else ""
    return {
        "name": program.name,
        "format": program.format,
        "command": command,
        "is_own": is_own,
        "found": found and os.path.abspath(found),
        "problem": None if found else f"{command!r} was not found, or is not executable{install}",
    }
