"""How a program is started for one turn: its command line and what its standard input says. Pure.

The prompt goes to standard input, never onto the command line, where others could see it and a flag could
hide in it. A value that is not ours is joined to its flag with `=` for the same reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onward.agents.programs.program import LINES, TEXT, Program
from onward.agents.programs.reading.claude import ClaudeReader
from onward.agents.programs.reading.codex import CodexReader
from onward.agents.programs.reading.gemini import GeminiReader
from onward.agents.programs.reading.lines import LinesReader
from onward.agents.programs.reading.pieces import Reader
from onward.clock import Clock
from onward.errors import InvalidInput

VERSION = 1
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,199}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@+\[\]-]{0,199}")


class Asked(msgspec.Struct, frozen=True):
    """One turn: what is said, in which session, to which model. `told` is what else our own format says."""

    prompt: str
    session: str = ""
    model: str = ""
    told: Mapping[str, Any] | None = None


def words_of(program: Program, asked: Asked) -> list[str]:
    """The command line of a turn."""
    return [*program.command, *_FLAGS[program.format](program, asked)]


def input_of(program: Program, asked: Asked) -> bytes:
    """What the program reads on its standard input."""
    if program.format != LINES:
        return asked.prompt.encode("utf-8", "replace")
    turn = {
        "version": VERSION,
        "prompt": asked.prompt,
        "session": asked.session or None,
        "model": asked.model or None,
        **(asked.told or {}),
    }
    return msgspec.json.encode(turn) + b"\n"


def reader_of(program: Program, clock: Clock) -> Reader | None:
    """What reads the output of one turn; None if it is plain text."""
    if program.format == TEXT:
        return None
    readers: Mapping[str, Callable[[], Reader]] = {
        "claude-code": ClaudeReader,
        "codex": CodexReader,
        "gemini": GeminiReader,
        LINES: lambda: LinesReader(clock),
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
        raise InvalidInput(f"node {node_id!r} wants the model {model[:80]!r}, which is no name; correct it.")
    return model


def _claude(program: Program, asked: Asked) -> list[str]:
    words = ["-p", "--output-format", "stream-json", "--verbose"]
    words += [f"--model={asked.model}"] if asked.model else []
    words += program.arguments
    return [*words, f"--resume={asked.session}"] if asked.session else words


def _codex(program: Program, asked: Asked) -> list[str]:
    words = ["exec", "--json"]
    words += [f"--model={asked.model}"] if asked.model else []
    words += program.arguments
    return [*words, "resume", asked.session, "-"] if asked.session else [*words, "-"]


def _gemini(program: Program, asked: Asked) -> list[str]:
    words = ["--output-format", "stream-json"]
    words += [f"--model={asked.model}"] if asked.model else []
    words += program.arguments
    return [*words, f"--resume={asked.session}"] if asked.session else words


def _own(program: Program, asked: Asked) -> list[str]:
    return list(program.arguments)


_FLAGS: Mapping[str, Callable[[Program, Asked], list[str]]] = {
    "claude-code": _claude,
    "codex": _codex,
    "gemini": _gemini,
    LINES: _own,
    TEXT: _own,
}
