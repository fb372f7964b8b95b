"""The words of a command line, where a command prints, and how it ends.

Words are looked at before they are parsed; values are given as text (`--set`, the value of
`--simulate`). What is wrong is said in one sentence for a person, one object for a program, and an exit
code.

Stored text cannot control the terminal, and numbers are for people. If the reader of a command goes
away, the work continues. `main` needs this for every command line, so it imports little.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from datetime import datetime
from itertools import chain
from typing import Any, TextIO

import msgspec
from cyclopts import CycloptsError
from cyclopts.exceptions import (
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from onward import errors
from onward.config import is_debugging
from onward.model.values import DAY_S, HOUR_S, MINUTE_S
from onward.redact.redactor import NOTHING_SECRET, Redactor

HERE = ("--db", "--app", "--runs", "--files")
"""What names a database here, and the commands that a message suggests then need too."""
WITH_VALUE = (*HERE, "--server", "--profile")
ALONE = ("--json",)
GENERATED = 26
"""How many characters an id has that Onward gave."""
_COMMAND = re.compile(r"`(onward [^`]+)`")
_ID = re.compile(r"(?<![\w./-])[0-9a-z][0-9a-z-]{0,63}(?![\w/-])")


def is_everywhere(word: str) -> bool:
    """Whether a word is a flag of every command."""
    return word.partition("=")[0] in (*WITH_VALUE, *ALONE)


def with_command_first(words: Sequence[str]) -> list[str]:
    """The same command line with the flags before the command moved behind it.

    `onward --db X status` is `onward status --db X`. Other flags stay, and are refused where they are.
    """
    at = 0
    while at < len(words) and is_everywhere(words[at]):
        at += 2 if words[at] in WITH_VALUE else 1
    before, command = words[:at], words[at:]
    if not before:
        return [*words]
    if not command:
        raise errors.InvalidInput(
            f"there is no command after {' '.join(before)}; write one, such as `status`."
        )
    for flag in (word.partition("=")[0] for word in before if word.startswith("-")):
        if flag in WITH_VALUE and any(word.partition("=")[0] == flag for word in command):
            raise errors.InvalidInput(f"{flag} is given twice; give it once.")
    return [*command, *before]


def with_show(words: Sequence[str]) -> list[str]:
    """The same command line; `onward chats site-7` is `onward chats show site-7`."""
    is_chat = len(words) > 1 and words[0] == "chats" and not words[1].startswith("-")
    return [words[0], "show", *words[1:]] if is_chat and words[1] not in ("list", "show") else [*words]


def as_typed(text: str, words: Sequence[str]) -> str:
    """The same text with the display ids of runs that the command line names by theirs.

    An id that is part of a path stays: the path would be another one.
    """
    from onward.model.ids import display_id

    def named(found: re.Match[str]) -> str:
        run_id = found[0]
        if run_id in words:
            return run_id
        short = display_id(run_id)
        is_meant = short in words or (len(run_id) == GENERATED and any(map(short.startswith, typed)))
        return short if is_meant else run_id

    typed = tuple(word for word in words if word and not word.startswith("-"))
    return _ID.sub(named, text)


def with_flags(text: str, words: Sequence[str]) -> str:
    """The same text, with the flags of the command line in the commands that it says to type."""
    given = _given(words)
    if not given:
        return text

    def told(found: re.Match[str]) -> str:
        command, dashes, others = found[1].partition(" -- ")
        return f"`{command} {given}{dashes}{others}`"

    return _COMMAND.sub(told, text)


def _given(words: Sequence[str]) -> str:
    """The flags that name the database and the app, as they were given."""
    found: list[str] = []
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in HERE:
            found += [flag, shlex.quote(value if equals else "".join(words[at + 1 : at + 2]))]
    return " ".join(found)


def context_of(settings: Iterable[str], flag: str = "--set") -> dict[str, Any]:
    """The values that `--set` gives: `KEY=VALUE` is text, `KEY:=JSON` any JSON value."""
    return dict(_setting(setting, flag) for setting in settings)


def values_of_file(path: str | None) -> dict[str, Any]:
    """The context values in the JSON object of a file, for `--set-file`."""
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read())
    except OSError as error:
        raise errors.InvalidInput(f"--set-file {path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise errors.InvalidInput(f"--set-file {path} is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise errors.InvalidInput(f'--set-file {path} is not a JSON object; write {{"KEY": VALUE, …}}.')
    return found


def _setting(setting: str, flag: str) -> tuple[str, Any]:
    key, equals, value = setting.partition("=")
    is_json = key.endswith(":")
    key = key.removesuffix(":")
    if not equals or not key:
        raise errors.InvalidInput(f"{flag} {setting!r} is invalid; write KEY=VALUE for text or KEY:=JSON.")
    if not is_json:
        return key, value
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidInput(f"{flag} {key}:= needs JSON: {error}.") from None


def one_of(flags: Mapping[str, bool]) -> str | None:
    """The one flag that is given, or None; refuses several, because they contradict each other."""
    given = [name for name, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise errors.InvalidInput(
            f"{' and '.join(f'--{name}' for name in given)} contradict each other; give one of them."
        )
    return given[0] if given else None


def with_script_joined(tokens: list[str]) -> list[str]:
    """Arguments in which `--simulate` always has its value: `--simulate SCRIPT.json` or nothing.

    Only a name that ends in .json is a script, so that `run --simulate FILE.dot` runs the file.
    """
    joined: list[str] = []
    for token in tokens:
        if joined and joined[-1] == "--simulate=" and token.endswith(".json") and not token.startswith("-"):
            joined[-1] += token
        else:
            joined.append("--simulate=" if token == "--simulate" else token)
    return joined


OFFERED_MAX = 2


def sentence(error: CycloptsError, commands: Collection[str]) -> str:
    """What was typed and is not known, and the name that it nearly is, if there is one."""
    if isinstance(error, UnknownCommandError) and error.unused_tokens:
        typed = error.unused_tokens[0]
        return f'Unknown command "{typed}".{_hint(typed, (*commands, HELP))}'
    if isinstance(error, UnknownOptionError):
        typed = (error.token.keyword or error.token.value).partition("=")[0]
        names = chain.from_iterable(one.names for one in error.argument_collection if one.parse)
        return f"Unknown option: {typed}.{_hint(typed, (*names, HELP))}"
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        return _missing(error, error.argument)
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"Unexpected argument: {shlex.join(error.unused_tokens)}."
    if isinstance(error, RepeatArgumentError):
        return f"{error.token.keyword} is given twice; give it once."
    return str(error)


def _missing(error: MissingArgumentError, argument: Any) -> str:
    name = error.keyword or argument.name
    command = " ".join(("onward", *(error.command_chain or ())))
    is_given = any(token.keyword for token in argument.tokens) or error.keyword is not None
    return f"{name} needs a value." if is_given else f"`{command}` needs {name}."


HELP = "--help"
_ELSEWHERE = {
    **dict.fromkeys(("list", "ls", "ps", "runs"), "status"),
    **dict.fromkeys(("server", "ui", "dashboard", "up"), "serve"),
    **dict.fromkeys(("start", "exec", "execute"), "run"),
    **dict.fromkeys(("approve", "reject"), "answer"),
    **dict.fromkeys(("fork",), "replay"),
    **dict.fromkeys(("check", "lint"), "validate"),
    **dict.fromkeys(("help",), HELP),
    **dict.fromkeys(("--input", "--inputs", "--param", "--params", "--var", "--arg"), "--set"),
}
"""What other tools call it. `stop` and `delete` have several meanings here, so nothing is suggested."""


def _hint(typed: str, names: Collection[str]) -> str:
    from onward.pipeline.vocabulary import is_near

    if (ours := _ELSEWHERE.get(typed.lower(), "")) in names:
        return f" Did you mean {ours}?"
    word = typed.lower().lstrip("-")
    near = sorted({n for n in names if is_near(word, n.lstrip("-")) or _is_slip(word, n.lstrip("-"))})
    longer = sorted(name for name in names if len(word) >= 3 and name.lstrip("-").startswith(word))
    found = near[:OFFERED_MAX] or (longer if len(longer) == 1 else [])
    return f" Did you mean {' or '.join(found)}?" if found else ""


def _is_slip(word: str, name: str) -> bool:
    """Whether one letter is another, or stands there twice.

    There are few commands, so this says enough even of a short one.
    """
    if len(word) == len(name) + 1 >= 4:
        return any(word == f"{name[:at]}{letter}{name[at:]}" for at, letter in enumerate(name))
    return len(word) == len(name) >= 3 and sum(a != b for a, b in zip(word, name, strict=True)) == 1


FINE = 0
FAILED = 1
USAGE = 2
UNFINISHED = 75
"""Not finished, and resumable."""
INTERRUPTED = 130
"""Ctrl-C in a command that executes no run."""

_OF_STATUS = {"completed": FINE, "failed": FAILED, "cancelled": FAILED}
_USAGE_ERRORS = (
    errors.InvalidInput,
    errors.InvalidPipeline,
    errors.ConditionError,
    errors.StylesheetError,
    errors.UnknownHandler,
)


def exit_of(status: str) -> int:
    """The exit code of a command that executed a run until it had this status."""
    return _OF_STATUS.get(status, UNFINISHED)


def exit_of_error(error: errors.OnwardError) -> int:
    """The exit code of a command that ended with this error."""
    return USAGE if isinstance(error, _USAGE_ERRORS) else FAILED


_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor, screen
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|\x9c|$)"  # titles, links, the clipboard
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]",
    re.DOTALL,
)
# Control characters except tab and line feed, and the marks that reorder text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text without anything that would control a terminal."""
    if text.isprintable():
        return text
    text = _CONTROLS.sub("", _SEQUENCES.sub("", text.replace("\r\n", "\n")))
    return _SURROGATES.sub("\ufffd", text)


def visible(text: str) -> str:
    """The text with every character shown that would control a terminal, so that nothing in it is hidden.

    Colours are left out, because commands print them and they hide nothing; what a carriage return would
    overwrite stays, on a line of its own.
    """
    if text.isprintable():
        return text
    text = _COLOURS.sub("", text.replace("\r\n", "\n")).replace("\r", "\n")
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub(_escaped, text))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def one_line(text: str, width: int = 200) -> str:
    """The text on one line, cut to `width` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def age(at_us: int, now_us: int) -> str:
    """How long ago something was."""
    seconds = (now_us - at_us) / 1_000_000
    for unit_s, unit in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min")):
        if seconds >= unit_s:
            return f"{seconds // unit_s:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


def local_time(at_us: int) -> str:
    """An instant by this machine's wall clock."""
    return datetime.fromtimestamp(at_us / 1_000_000).strftime("%Y-%m-%d %H:%M:%S")


def count(number: int, noun: str) -> str:
    """A number with its noun, in the plural if needed."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows below their headings, with aligned columns."""
    cells = [[*headings], *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


# JSON allows these; a terminal may obey them.
_LOUD = re.compile("[\x7f-\x9f]")
_NOT_ASCII = re.compile("[^\x00-\x7f]")
_READER_LEFT = (errno.EPIPE, errno.EIO, errno.ESHUTDOWN)


class Output:
    """Standard output and error of one command.

    With `is_json`, standard output holds JSON alone and everything for people goes to standard error.
    A reader that went away (`| head`, a closed terminal) silences the output and stops nothing.
    """

    def __init__(self, *, is_json: bool = False, words: Sequence[str] = ()) -> None:
        self.is_json = is_json
        self.words = words
        """The command line, for errors that speak of it."""
        self.is_gone = False
        self.redactor: Redactor = NOTHING_SECRET
        """Knows what must not be printed."""
        self._stdout = sys.stdout
        self._trouble = ""
        self.voice: Callable[[int, str], None] | None = None
        """If set, gets the lines for people, with the log level of each."""

    @property
    def is_terminal(self) -> bool:
        """Whether both input and output are a terminal."""
        return _is_tty(sys.stdin) and _is_tty(sys.stdout)

    @property
    def is_live(self) -> bool:
        """Whether the output may be updated in place."""
        return not self.is_json and _is_tty(sys.stdout)

    def say(self, text: str = "", *, end: str = "\n") -> None:
        """Print a result of the command for a person."""
        if self.voice is not None:
            self.voice(logging.INFO, self._shown(text))
            return
        self._write(sys.stderr if self.is_json else sys.stdout, self._shown(text) + end)

    def note(self, text: str) -> None:
        """Print a remark for a person, on standard error."""
        if self.voice is not None:
            self.voice(logging.WARNING, self._shown(text))
            return
        self._write(sys.stderr, self._shown(text) + "\n")

    def _shown(self, text: str) -> str:
        return clean(self.redactor.redact(text))

    def value(self, value: Any) -> None:
        """Print a JSON value on one line."""
        if not self.redactor.is_empty:
            value = self.redactor.redact_value(msgspec.to_builtins(value))
        text = msgspec.json.encode(value).decode()
        self._write(self._stdout, _LOUD.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")

    def raw(self, content: bytes) -> None:
        """Print bytes as they are, for a file or a program; not for a terminal."""
        buffer = getattr(self._stdout, "buffer", None)
        try:
            if buffer is None:
                self._stdout.write(content.decode(errors="replace"))
            else:
                buffer.write(content)
                buffer.flush()
        except OSError as error:
            self.lose(self._stdout, error)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """With JSON, everything else that is printed inside, such as by handlers, goes to standard error."""
        with redirect_stdout(sys.stderr) if self.is_json else nullcontext():
            yield

    def close(self, code: int) -> int:
        """The exit code; a failure to write output counts unless the reader went away."""
        if self._trouble:
            self.note(f"onward: the output could not be written: {self._trouble}.")
            return code or FAILED
        return code

    def _write(self, stream: TextIO | None, text: str) -> None:
        if stream is None or stream.closed:
            return
        try:
            stream.write(text)
            stream.flush()
        except UnicodeEncodeError:
            # The terminal has another character set: escape as JSON does, so that JSON stays valid.
            self._write(stream, _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text))
        except OSError as error:
            self.lose(stream, error)

    def lose(self, stream: TextIO, error: OSError) -> None:
        """Discard what is still buffered, so that the interpreter does not complain when it exits."""
        if stream is self._stdout or stream is sys.stdout:
            self.is_gone = True
            if error.errno not in _READER_LEFT:
                self._trouble = error.strerror or str(error)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _is_tty(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def tell_error(out: Output, error: errors.OnwardError) -> int:
    """Print an error that Onward raised."""
    prefix = "" if isinstance(error, errors.InvalidPipeline) else "onward: "
    said = with_flags(as_typed(str(error), out.words), out.words)
    out.note(f"{prefix}{said}")
    if isinstance(error, errors.Refused) and error.details.get("left"):
        _tell_left(out, error.details["left"])
    _tell_json(out, {"code": error.code, "message": said, **dict(error.facts)})
    _tell_where(out, error)
    return exit_of_error(error)


def tell_usage(out: Output, message: str, command: str = "") -> int:
    """Print what is wrong with a command line, and whose help says more."""
    message = " ".join(message.split())
    out.note(f"onward: {message} See `{' '.join(filter(None, ('onward', command)))} --help`.")
    _tell_json(out, {"code": "usage", "message": message})
    return USAGE


def tell_defect(out: Output, error: BaseException) -> int:
    """Print an unexpected error: a defect of Onward or of a handler."""
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    out.note(f"onward: this is a bug in Onward, please report it: {message} (ONWARD_DEBUG=1 shows where)")
    _tell_json(out, {"code": "defect", "message": message})
    _tell_where(out, error)
    return FAILED


def _tell_left(out: Output, left: Sequence[Mapping[str, Any]]) -> None:
    """Print what the steps in doubt left, below the refusal that asks for a decision."""
    from onward.cli.print.run import left_lines

    for line in left_lines(left):
        out.note(line)


def _tell_json(out: Output, fields: dict[str, Any]) -> None:
    if out.is_json:
        out.value({"error": fields})


def _tell_where(out: Output, error: BaseException) -> None:
    if is_debugging():
        import traceback

        out.note("".join(traceback.format_exception(error)).rstrip())
