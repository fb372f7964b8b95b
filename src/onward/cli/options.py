"""The flags that commands share, with their help; flags for numbers, and times as people type them.

A number that is not within its bounds gets one clear sentence. A time is an instant, or a delay from now.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, cast

from cyclopts import CoercionError, Group, Parameter

from onward.cli.output import Output
from onward.errors import InvalidInput
from onward.model.limits import SCOPE_KINDS, VISITS, check_scope, kind_of, read_amount
from onward.model.values import INSTANT_US_MAX, Seconds, Whole, read_rfc3339, shown
from onward.operations.requests import LimitRaise

if TYPE_CHECKING:
    from cyclopts import Token


_EVERYWHERE = Group("Everywhere", sort_key=9)


@Parameter(name="*", group=_EVERYWHERE)
@dataclass(frozen=True, slots=True)
class Common:
    """What every command takes."""

    db: Annotated[
        str | None,
        Parameter(help="The database: a path or a postgresql:// address (ONWARD_DB; .onward/onward.db)."),
    ] = None
    json: Annotated[bool, Parameter(help="Print JSON with stable field names.")] = False
    app: Annotated[
        str | None,
        Parameter(
            help="The app with your handlers: module:name, shop.py:name or shop.py (ONWARD_APP; onward.toml)."
        ),
    ] = None

    server: Annotated[
        str | None,
        Parameter(
            help="Use this server instead of a database, such as http://127.0.0.1:8765 (ONWARD_SERVER).",
            metavar="URL",
        ),
    ] = None
    profile: Annotated[
        str | None,
        Parameter(help="Use the server with this name in ~/.config/onward/profiles.toml.", metavar="NAME"),
    ] = None
    runs: Annotated[
        str | None,
        Parameter(help="The directory for run files (ONWARD_RUNS; default: next to the database)."),
    ] = None
    files: Annotated[
        str | None,
        Parameter(
            help="Which of these files to write: full, lazy (nothing until `onward files`) or off "
            "(ONWARD_FILES; full for agents and tools)."
        ),
    ] = None

    def command(self, *words: str) -> str:
        """A command to type next, with the same database or server, and app."""
        places = ("db", self.db), ("server", self.server), ("profile", self.profile)
        flags = (*places, ("app", self.app), ("runs", self.runs), ("files", self.files))
        told = [word for name, value in flags if value for word in (f"--{name}", shlex.quote(value))]
        return " ".join(("onward", *words, *told))


COMMON = Common()

Out = Annotated[Output, Parameter(parse=False)]
RunName = Annotated[str, Parameter(help="A run: its id, its display id, or the beginning of either.")]
PipelineWord = Annotated[
    str,
    Parameter(
        name="FILE|NAME",
        help="The pipeline: a DOT file; a flow, as FILE.py:NAME (docs/flows.md); or a registered NAME or "
        "NAME@VERSION (docs/pipelines.md). An existing file takes precedence.",
    ),
]
StepName = Annotated[
    str, Parameter(help="A step: its id, such as test#2, or the name of its node.", show_default=False)
]
Settings = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set",
        help="A context value: KEY=VALUE sets text, KEY:=JSON any JSON value. Repeatable.",
        show_default=False,
    ),
]
Tags = Annotated[
    tuple[str, ...],
    Parameter(name="--tag", help="A tag to find the run with. Repeatable.", show_default=False),
]
Answers = Annotated[
    str | None,
    Parameter(
        help="How to answer gates: prompt asks in this terminal, auto takes the approving choice, wait "
        "leaves the run waiting; or the name of an interviewer that the app registers. Default: prompt "
        "on a terminal, otherwise wait."
    ),
]
Simulate = Annotated[
    str | None,
    Parameter(
        help="Execute nothing: agents, tools and your handlers succeed, or return the results in SCRIPT.json "
        "(docs/simulation.md; write --simulate=NAME if the file is not called *.json).",
        metavar="[SCRIPT.json]",
    ),
]
RealTools = Annotated[
    bool, Parameter(help="With --simulate: execute tools and your handlers, and simulate only agents.")
]
OutDirectory = Annotated[
    str | None, Parameter(name="--out", help="Write them here instead of the run's own directory.")
]
Verbose = Annotated[
    bool,
    Parameter(
        name=("--verbose", "-v"),
        help="Print the output of commands as it arrives, each line after the name of its step.",
    ),
]
Wait = Annotated[bool, Parameter(help="Wait until the process that holds the run releases it.")]


WorkingDirectory = Annotated[
    str | None,
    Parameter(
        name="--cwd",
        help="The working directory of the run's commands from now on (docs/environment.md).",
        metavar="DIR",
    ),
]


AcceptChanges = Annotated[bool, Parameter(help="Continue with the changed pipeline file.")]
Original = Annotated[bool, Parameter(help="Continue with the source stored in the run.")]


@Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Continue:
    """How to continue a run, whatever is decided about its stopped step."""

    accept_changes: AcceptChanges = False
    original: Original = False
    wait: Wait = False
    queue: Annotated[
        bool, Parameter(help="Only store the decision and queue the run; a worker executes it.")
    ] = False
    answers: Answers = None
    cwd: WorkingDirectory = None
    verbose: Verbose = False


CONTINUE = Continue()
LogFormat = Annotated[
    Literal["text", "json"] | None,
    Parameter(
        help="text for people, or json: one object per line on standard error, with run and step "
        "(ONWARD_LOG; text)."
    ),
]
RunId = Annotated[
    str | None, Parameter(help="The id of the new run: 1 to 64 of a-z, 0-9 and -. Default: a generated id.")
]
Chat = Annotated[
    str | None,
    Parameter(
        help="The chat for the run's models, whose limits apply (docs/messages.md). Default: a chat only for "
        "this run.",
    ),
]
Project = Annotated[
    str | None,
    Parameter(
        help="The project of the run: its limits apply, and its usage includes the run (docs/limits.md)."
    ),
]
Workspace = Annotated[
    str | None,
    Parameter(help="A directory in the git repository that the steps change (docs/workspace.md)."),
]
WorkspaceMode = Annotated[
    Literal["worktree", "in_place"] | None,
    Parameter(help="Change files in the run's own work tree (the default), or in place."),
]
KeepWorkspace = Annotated[bool, Parameter(negative="", help="Keep the run's work tree when the run ends.")]


@dataclass(frozen=True)
class NumberReader:
    """How the text of a flag becomes a number. `read` raises ValueError, which says what was expected."""

    read: Callable[[str], int | float]

    def __call__(self, kind: type, tokens: Sequence[Token]) -> int | float:
        (token,) = tokens
        try:
            return self.read(token.value)
        except ValueError as error:
            said = f"{shown(token.value)} is not {error}."
            raise CoercionError(msg=said, token=token, target_type=kind) from None


def number(bounds: Whole | Seconds, *, help: str, metavar: str | None = None) -> Parameter:
    """A flag for a number within `bounds`."""
    return Parameter(help=help, metavar=metavar, converter=NumberReader(bounds.read))


def duration(bounds: Seconds, *, help: str) -> Parameter:
    """A flag for a duration with its unit, such as 10s or 500ms, of at least what `bounds` says."""
    return Parameter(
        help=help, metavar="DURATION", converter=NumberReader(lambda text: _seconds(text, bounds))
    )


def _seconds(text: str, bounds: Seconds) -> float:
    from onward.pipeline.source import Duration

    seconds = Duration.parse(text.strip()).seconds
    if seconds < bounds.least:
        raise ValueError(f"a duration of at least {bounds.least:g}s")
    return seconds


def read_time(text: str, what: str, *, now_us: int) -> int:
    """`2030-01-31T09:00:00Z` or `+10m`, as microseconds since 1970; `what` names it in an error."""
    from onward.pipeline.source import Duration

    try:
        if not text.startswith("+"):
            return read_rfc3339(text)
        at_us = now_us + int(Duration.parse(text[1:]).seconds * 1_000_000)
        if at_us <= INSTANT_US_MAX:
            return at_us
    except ValueError:
        pass
    raise InvalidInput(
        f"{what} {shown(text)} is neither a time with its zone, such as 2030-01-31T09:00:00Z, nor a delay, "
        "such as +10m."
    )


Raises = Annotated[
    tuple[str, ...],
    Parameter(
        name="--raise",
        negative="",
        help="Raise a limit of the run first, such as run.calls=1000, run.visits=50 or day.tokens=200000. "
        "Repeatable.",
        metavar="SCOPE.KEY=VALUE",
    ),
]


def raise_of(text: str) -> LimitRaise:
    """The limit to raise that `day.tokens=200000` names."""
    name, equals, value = text.rpartition("=")
    scope, dot, measure = name.rpartition(".")
    if not equals or not dot or kind_of(scope) not in SCOPE_KINDS:
        raise InvalidInput(
            f"--raise {text[:60]!r} names no limit; write SCOPE.KEY=VALUE, such as day.tokens=200000 or "
            f"run.visits=50, with one of {', '.join(SCOPE_KINDS)}."
        )
    kind, _, id = check_scope(scope).partition("/")
    amount = read_amount("calls" if measure == VISITS else measure, value)
    return LimitRaise(
        kind=cast('Literal["chat", "day", "project", "run"]', kind),
        id=id,
        measure=cast('Literal["tokens", "cost", "calls", "visits"]', measure),
        value=amount,
    )
