"""What can stand at the cursor of a command line; the completion scripts of shells ask for it.

The scripts are in `commands/about`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import msgspec

from onward.cli.output import WITH_VALUE
from onward.errors import OnwardError

if TYPE_CHECKING:
    from cyclopts import App


FILES, DIRECTORIES, RUNS, RUNS_OR_FILES, NOTHING = "files", "directories", "runs", "runs or files", "nothing"
PIPELINES_OR_FILES = "pipelines or files"
RUNS_MAX = PIPELINES_MAX = 200
DATABASE_S_MAX = 2.0
# By the name of an argument or flag: a new command with a FILE or a RUN is completed without more ado.
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("FILE", "--out", "--db", "--simulate"), FILES),
    **dict.fromkeys(("--cwd", "--workspace", "--runs"), DIRECTORIES),
    **dict.fromkeys(("RUN", "RUNS"), RUNS),
    "RUN|FILE": RUNS_OR_FILES,
    "FILE|NAME": PIPELINES_OR_FILES,
}
_STOPPED = ("paused", "interrupted", "failed")
_RESUMED = (*_STOPPED, "waiting", "queued")
_STATUSES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("resume", "retry", "skip", "abort"), _RESUMED),
    "dismiss": _STOPPED,
    **dict.fromkeys(("pause", "steer"), ("running", "queued", "waiting")),
    "cancel": ("running", *_RESUMED),
    "answer": ("waiting",),
}


class CursorPlace(msgspec.Struct, frozen=True):
    """Where the cursor is: in the value of a flag, or at an argument, of a command."""

    command: str
    argument: Any = None
    is_flag: bool = False


def complete(index: int, line: Sequence[str]) -> Iterator[str]:
    """What to add to word `index` of a line: `files`, `directories` or `nothing`, then words.

    A word is followed by a tab and what it means. `line` begins with the program.
    """
    words, current = _joined(line[1:index]), line[index] if index < len(line) else ""
    if "--" in words:
        yield FILES
        return
    flag, equals, value = current.partition("=")
    if equals and flag.startswith("--"):
        words, current = [*words, flag], value
    elif current == "=":
        current = ""
    if words and words[-1].endswith("=") and words[-1].startswith("--"):
        words[-1] = words[-1].removesuffix("=")
    place = _place(words)
    kind, offered = _offered(place, current, words)
    yield {RUNS: NOTHING, RUNS_OR_FILES: FILES, PIPELINES_OR_FILES: FILES}.get(kind, kind)
    for word, says in offered:
        if word.startswith(current):
            yield f"{word}\t{says}"


def _joined(words: Sequence[str]) -> list[str]:
    """The words; bash takes `--flag=value` apart."""
    joined: list[str] = []
    for word in words:
        if word == "=" and joined:
            joined[-1] += "="
        elif joined and joined[-1].startswith("--") and joined[-1].endswith("="):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _place(words: Sequence[str]) -> CursorPlace:
    reading = _Reading()
    for word in words:
        reading.take(word)
    return reading.place()


class _Reading:
    """A command line, read word by word up to the cursor."""

    def __init__(self) -> None:
        from onward.cli.main import COMMANDS, make_app

        self._known, self._app = {name for name, _, _ in COMMANDS}, make_app()
        self._command, self._positions = "", 0
        self._awaited: Any = None
        """The flag whose value comes next."""
        self._flags, self._arguments = _arguments(self._app, "version")  # those of every command

    def take(self, word: str) -> None:
        awaited, self._awaited = self._awaited, None
        if awaited is not None and (awaited.name != "--simulate" or word.endswith(".json")):
            return  # its value
        if word.startswith("-"):
            name, equals, _ = word.partition("=")
            found = self._flags.get(name)
            self._awaited = found if found is not None and not equals and _takes_value(found) else None
        elif self._command:
            self._positions += 1
        else:
            self._command = word
            if word in self._known:
                self._flags, self._arguments = _arguments(self._app, word)

    def place(self) -> CursorPlace:
        if self._awaited is not None:
            return CursorPlace(self._command, self._awaited, is_flag=True)
        if not self._command or self._command not in self._known:
            return CursorPlace(self._command)
        return CursorPlace(self._command, next(iter(self._arguments[self._positions :]), self._last()))

    def _last(self) -> Any:
        """The last argument, if it takes all that follow."""
        return next((one for one in self._arguments[-1:] if one.name == "RUNS"), None)


def _arguments(app: App, command: str) -> tuple[dict[str, Any], list[Any]]:
    every = app[command].assemble_argument_collection(default_parameter=app.default_parameter)
    shown = [one for one in every if one.parse and one.show]
    flags = {name: one for one in shown for name in one.names if name.startswith("-")}
    return flags, [one for one in shown if not one.name.startswith("-")]


def _takes_value(argument: Any) -> bool:
    return argument.name in WITH_VALUE or bool not in (argument.hint, *get_args(argument.hint))


def _offered(place: CursorPlace, current: str, words: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """What kind of thing goes there, and the words of it that can be listed."""
    from onward.cli.main import COMMANDS, make_app

    if place.argument is not None and (place.is_flag or not current.startswith("-")):
        kind = _KINDS.get(place.argument.name, NOTHING)
        if place.is_flag and place.command in ("files", "receipts") and place.argument.name == "--out":
            kind = DIRECTORIES
        if kind == PIPELINES_OR_FILES:
            return _pipelines(place.command, words)
        choices = [(choice, "") for choice in _choices(place.argument.hint)]
        return kind, _runs(place.command, current, words) if kind in (RUNS, RUNS_OR_FILES) else choices
    if not place.command and not current.startswith("-"):
        return NOTHING, [(name, help) for name, _, help in COMMANDS]
    if not current.startswith("-") or place.command not in ("", *(name for name, _, _ in COMMANDS)):
        return NOTHING, []
    flags, _ = _arguments(make_app(), place.command or "version")
    listed = {name: one.parameter.help or "" for name, one in flags.items() if name not in words}
    return NOTHING, [*listed.items(), ("--help", "Print the help.")]


def _choices(hint: Any) -> Iterator[str]:
    if get_origin(hint) is Literal:
        yield from get_args(hint)
        return
    for part in get_args(hint):
        yield from _choices(part)


def _runs(command: str, current: str, words: Sequence[str]) -> list[tuple[str, str]]:
    """The newest runs that the command can be about."""
    return _read(_listed(command, current, _value("--db", words), _value("--app", words)))


def _pipelines(command: str, words: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """The registered pipelines: beside files for a new run, alone for what is done about one."""
    if command != "pipelines":
        return FILES, _read(_registered(_value("--db", words), _value("--app", words)))
    if "add" in words:
        return FILES, []
    return NOTHING, _read(_registered(_value("--db", words), _value("--app", words)))


def _read(reading: Coroutine[Any, Any, list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """What is read from the database; nothing if it cannot be read, or takes too long."""
    import asyncio
    import sys

    with suppress(OnwardError, TimeoutError), redirect_stdout(sys.stderr):
        return asyncio.run(reading)
    return []


async def _registered(db: str | None, app: str | None) -> list[tuple[str, str]]:
    import asyncio

    from onward.cli.operations import pipelines_of
    from onward.cli.options import Common
    from onward.operations.requests import ListPipelines

    async with asyncio.timeout(DATABASE_S_MAX), pipelines_of(Common(db=db, app=app)) as asked:
        found = await asked.list_pipelines(ListPipelines(limit=PIPELINES_MAX))
    return [(one["name"], f"version {one['enabled']} of {one['newest']}") for one in found["pipelines"]]


async def _listed(command: str, current: str, db: str | None, app: str | None) -> list[tuple[str, str]]:
    import asyncio

    from onward.cli.operations import lists_of
    from onward.cli.options import Common
    from onward.model.run import RunStatus
    from onward.operations.requests import ListRuns

    statuses = tuple(map(RunStatus, _STATUSES.get(command, ())))
    async with asyncio.timeout(DATABASE_S_MAX), lists_of(Common(db=db, app=app)) as lists:
        runs = (await lists.list_runs(ListRuns(statuses=statuses, limit=RUNS_MAX)))["runs"]
    return [
        (_name(run["id"], run["display_id"], current), told)
        for run in runs
        if (told := f"{' '.join(run['pipeline'].split())}, {run['status']}")
    ]


def _name(run_id: str, display_id: str, current: str) -> str:
    """The name of a run that begins as typed: what it is called, its id, or its display id."""
    from onward.model.ids import called

    return next((name for name in (called(run_id), run_id) if name.startswith(current)), display_id)


def _value(flag: str, words: Sequence[str]) -> str | None:
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == flag:
            return after or None
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return None
