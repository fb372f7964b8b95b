"""What a program prints during one turn, read as pieces that are the same for every format. Pure.

    ClaudeReader   Claude Code: `claude -p --output-format stream-json --verbose`, one JSON object a line
    CodexReader    Codex: `codex exec --json`, one event a line: the thread, its turn, its items
    GeminiReader   Gemini CLI: `gemini --output-format stream-json`, one event a line, or the object of `json`
    LinesReader    every other command: our own lines of JSON (plain text needs no reader)

A command that speaks our own format gets one JSON object on its standard input: the turn. It prints one
JSON object a line:

    {"type": "session", "id": "…", "model": "…"}          which conversation to continue later
    {"type": "text", "text": "…"}                         shown while it grows
    {"type": "reasoning", "text": "…"}
    {"type": "tool", "name": "…", "text": "…"}            it uses a tool
    {"type": "tool_result", "text": "…", "is_error": false}
    {"type": "usage", "input": 0, "output": 0, "cached": 0, "cache_write": 0, "reasoning": 0, "cost_usd": 0.0}
    {"type": "log", "text": "…"}                          a line for the step's log
    {"type": "result", "text": "…", "outcome": "…", "preferred_label": "…", "context_updates": {…}}
    {"type": "error", "kind": "…", "message": "…", "retry_after_s": 0}

A turn ends with one `result` or one `error`. Of `usage`, the last counts. Other types and fields say
nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from onward.agents.model import TokenUsage
from onward.clock import Clock


class SessionBegan(msgspec.Struct, frozen=True):
    """The turn belongs to this session; `model` is what the program asks, if it says so."""

    session: str = ""
    model: str = ""


class TextSaid(msgspec.Struct, frozen=True):
    """Text for people."""

    text: str


class ThoughtSaid(msgspec.Struct, frozen=True):
    """What the model thought, for people who want to see it."""

    text: str


class ProgramToolUsed(msgspec.Struct, frozen=True):
    """The program uses one of its tools."""

    tool: str
    what: str = ""


class ProgramToolAnswered(msgspec.Struct, frozen=True):
    """What came of using a tool."""

    text: str
    is_error: bool = False


class TokensCounted(msgspec.Struct, frozen=True):
    """The tokens of the turn, and its cost if the program knows it.

    `is_total`: they count the whole session, earlier turns included.
    """

    usage: TokenUsage
    cost_micro: int | None = None
    is_total: bool = False


class LineNoted(msgspec.Struct, frozen=True):
    """Something that is worth a line in the step's log, and stops nothing."""

    text: str


class TurnEnded(msgspec.Struct, frozen=True):
    """The turn has an answer. `facts` are what it says about the step beside the text, as in the JSON of
    the result contract."""

    text: str
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)


class TurnFailed(msgspec.Struct, frozen=True):
    """The program says that it failed. `kind` is one of FailureKind, or `session`, or nothing."""

    message: str
    kind: str = ""
    retry_at_us: int | None = None


Piece = (
    SessionBegan
    | TextSaid
    | ThoughtSaid
    | ProgramToolUsed
    | ProgramToolAnswered
    | TokensCounted
    | LineNoted
    | TurnEnded
    | TurnFailed
)


class Reader(Protocol):
    """Reads the output of one turn."""

    def read(self, event: Mapping[str, Any]) -> Iterable[Piece]:
        """What an event says. One of an unknown type says nothing."""
        ...


def text_of(value: object) -> str:
    """The value if it is text, else nothing: programs change, and no field is sure to be there."""
    return value if isinstance(value, str) else ""


def object_of(value: object) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects_of(value: object) -> list[Mapping[str, Any]]:
    """The objects in a list, if it is one."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def whole_of(value: object) -> int:
    """A count; whatever is none counts as 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def micro_of(value: object) -> int | None:
    """Dollars as a whole number of millionths; None if it is no amount."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        return None
    return round(value * 1_000_000)


SAID_CHARACTERS_MAX = 8 * 1024 * 1024
"""How much of what a program says is kept for its answer; a program can print without end."""


class SaidText:
    """What a program has said so far. Of a very long text the end is kept: there it says how it ended."""

    def __init__(self, between: str = "") -> None:
        self._between, self._size = between, 0
        self._pieces: deque[str] = deque()
        self.left_out = 0
        """How many characters of its beginning are gone."""

    def add(self, text: str) -> None:
        """It says more."""
        self._pieces.append(text)
        self._size += len(text)
        while self._size - len(self._pieces[0]) >= SAID_CHARACTERS_MAX:
            gone = len(self._pieces.popleft())
            self._size, self.left_out = self._size - gone, self.left_out + gone

    @property
    def text(self) -> str:
        """All that is kept."""
        return self._between.join(self._pieces)

    def notes(self) -> Iterator[LineNoted]:
        """That something is missing, if it is."""
        if self.left_out:
            yield LineNoted(f"the answer lacks its beginning: the first {self.left_out:,} characters of it")


FACTS = ("outcome", "preferred_label", "suggested_next_ids", "context_updates", "notes", "failure_reason")


class LinesReader:
    """Reads our own lines. Without a text of its own, a result is what was said before it."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._said = clock, SaidText()

    def read(self, event: Mapping[str, Any]) -> Iterable[Piece]:
        """What one line says."""
        text = text_of(event.get("text"))
        match event.get("type"):
            case "session":
                yield SessionBegan(text_of(event.get("id")), text_of(event.get("model")))
            case "text":
                self._said.add(text)
                yield TextSaid(text)
            case "reasoning":
                yield ThoughtSaid(text)
            case "tool":
                yield ProgramToolUsed(text_of(event.get("name")), text)
            case "tool_result":
                yield ProgramToolAnswered(text, is_error=event.get("is_error") is True)
            case "usage":
                yield TokensCounted(_lines_usage(event), micro_of(event.get("cost_usd")))
            case "log":
                yield LineNoted(text)
            case "result":
                facts = {name: event[name] for name in FACTS if event.get(name)}
                if not text:
                    yield from self._said.notes()
                yield TurnEnded(text or self._said.text, facts)
            case "error":
                yield self._trouble(event)

    def _trouble(self, event: Mapping[str, Any]) -> TurnFailed:
        after = event.get("retry_after_s")
        is_number = isinstance(after, int | float) and not isinstance(after, bool) and 0 <= after < 1e9
        retry_at_us = self._clock.now_us() + round(after * 1_000_000) if is_number and after else None
        return TurnFailed(
            text_of(event.get("message")) or "no reason given", text_of(event.get("kind")), retry_at_us
        )


def _lines_usage(event: Mapping[str, Any]) -> TokenUsage:
    cached, written = whole_of(event.get("cached")), whole_of(event.get("cache_write"))
    output, reasoning = whole_of(event.get("output")), whole_of(event.get("reasoning"))
    return TokenUsage(
        input=max(whole_of(event.get("input")), cached + written),
        output=max(output, reasoning),
        cached_input=cached,
        cache_write=written,
        reasoning=reasoning,
    )


SYNTHETIC = "<synthetic>"
"""The model of a message that Claude Code wrote itself, to show an error; the result has it too."""


class ClaudeReader:
    """Reads messages of the conversation, and the result at its end."""

    def __init__(self) -> None:
        self._is_streamed = False

    def read(self, event: Mapping[str, Any]) -> Iterable[Piece]:
        """What one message says. What a subagent says is not the answer, so only its tools are shown."""
        is_nested = bool(event.get("parent_tool_use_id"))
        match event.get("type"):
            case "system" if event.get("subtype") == "init":
                yield SessionBegan(text_of(event.get("session_id")), text_of(event.get("model")))
            case "stream_event" if not is_nested:
                yield from self._delta(object_of(event.get("event")))
            case "assistant":
                yield from self._said(object_of(event.get("message")), is_nested=is_nested)
            case "user":
                yield from _claude_tool_results(object_of(event.get("message")))
            case "result":
                yield from _claude_result(event)

    def _delta(self, event: Mapping[str, Any]) -> Iterator[Piece]:
        """A part of a message that follows whole; only with --include-partial-messages."""
        delta = object_of(event.get("delta"))
        if event.get("type") == "content_block_delta" and delta.get("type") == "text_delta":
            self._is_streamed = True
            yield TextSaid(text_of(delta.get("text")))

    def _said(self, message: Mapping[str, Any], *, is_nested: bool) -> Iterator[Piece]:
        if message.get("model") == SYNTHETIC:
            return
        for block in objects_of(message.get("content")):
            match block.get("type"):
                case "text" if not is_nested:
                    yield TextSaid("\n\n" if self._is_streamed else f"{text_of(block.get('text'))}\n\n")
                    self._is_streamed = False
                case "thinking" if not is_nested:
                    yield ThoughtSaid(f"{text_of(block.get('thinking'))}\n")
                case "tool_use":
                    what = msgspec.json.encode(block.get("input", {})).decode()
                    yield ProgramToolUsed(text_of(block.get("name")), what)


def _claude_tool_results(message: Mapping[str, Any]) -> Iterator[Piece]:
    for block in objects_of(message.get("content")):
        if block.get("type") == "tool_result":
            content = block.get("content")
            text = text_of(content) or "".join(text_of(part.get("text")) for part in objects_of(content))
            yield ProgramToolAnswered(text, is_error=block.get("is_error") is True)


def _claude_result(event: Mapping[str, Any]) -> Iterator[Piece]:
    yield SessionBegan(text_of(event.get("session_id")))
    yield TokensCounted(_claude_usage(object_of(event.get("usage"))), micro_of(event.get("total_cost_usd")))
    if event.get("is_error") is not True and event.get("subtype") == "success":
        yield TurnEnded(text_of(event.get("result")))
        return
    errors = event.get("errors")
    told = "; ".join(map(str, errors)) if isinstance(errors, list) else ""
    yield TurnFailed(
        text_of(event.get("result")) or told or text_of(event.get("subtype")) or "no reason given"
    )


def _claude_usage(counted: Mapping[str, Any]) -> TokenUsage:
    """Anthropic counts what is read from its cache, and written to it, apart from other input."""
    read = whole_of(counted.get("cache_read_input_tokens"))
    written = whole_of(counted.get("cache_creation_input_tokens"))
    return TokenUsage(
        input=whole_of(counted.get("input_tokens")) + read + written,
        output=whole_of(counted.get("output_tokens")),
        cached_input=read,
        cache_write=written,
    )


class CodexReader:
    """The answer is the last message of the agent. `error` events may be followed by another attempt."""

    def __init__(self) -> None:
        self._last = ""

    def read(self, event: Mapping[str, Any]) -> Iterable[Piece]:
        """What one event says."""
        item = object_of(event.get("item"))
        match event.get("type"):
            case "thread.started":
                yield SessionBegan(text_of(event.get("thread_id")))
            case "item.started":
                yield from _codex_tool_use(item)
            case "item.completed":
                yield from self._completed(item)
            case "turn.completed":
                yield TokensCounted(_codex_usage(object_of(event.get("usage"))), is_total=True)
                yield TurnEnded(self._last)
            case "turn.failed":
                yield TurnFailed(text_of(object_of(event.get("error")).get("message")) or "no reason given")
            case "error":
                yield TurnFailed(text_of(event.get("message")) or "no reason given")

    def _completed(self, item: Mapping[str, Any]) -> Iterator[Piece]:
        match item.get("type"):
            case "agent_message":
                self._last = text_of(item.get("text"))
                yield TextSaid(f"{self._last}\n\n")
            case "reasoning":
                yield ThoughtSaid(f"{text_of(item.get('text'))}\n")
            case "command_execution":
                code = item.get("exit_code")
                yield ProgramToolAnswered(
                    text_of(item.get("aggregated_output")), is_error=code not in (0, None)
                )
            case "mcp_tool_call":
                failed = object_of(item.get("error"))
                yield ProgramToolAnswered(text_of(failed.get("message")), is_error=bool(failed))
            case "file_change":
                changes = objects_of(item.get("changes"))
                yield ProgramToolUsed(
                    "file_change",
                    ", ".join(f"{text_of(one.get('kind'))} {text_of(one.get('path'))}" for one in changes),
                )
            case "error":
                yield LineNoted(text_of(item.get("message")))


def _codex_tool_use(item: Mapping[str, Any]) -> Iterator[Piece]:
    match item.get("type"):
        case "command_execution":
            yield ProgramToolUsed("shell", text_of(item.get("command")))
        case "mcp_tool_call":
            name = f"{text_of(item.get('server'))}.{text_of(item.get('tool'))}"
            yield ProgramToolUsed(name, msgspec.json.encode(item.get("arguments")).decode())
        case "web_search":
            yield ProgramToolUsed("web_search", text_of(item.get("query")))


def _codex_usage(counted: Mapping[str, Any]) -> TokenUsage:
    return TokenUsage(
        input=whole_of(counted.get("input_tokens")),
        output=whole_of(counted.get("output_tokens")),
        cached_input=whole_of(counted.get("cached_input_tokens")),
        reasoning=whole_of(counted.get("reasoning_output_tokens")),
    )


class GeminiReader:
    """The answer is what the assistant said after it last used a tool; else all that it said."""

    def __init__(self) -> None:
        self._all: list[str] = []
        self._since_tool: list[str] = []

    def read(self, event: Mapping[str, Any]) -> Iterable[Piece]:
        """What one event says."""
        match event.get("type"):
            case "init":
                yield SessionBegan(text_of(event.get("session_id")), text_of(event.get("model")))
            case "message" if event.get("role") == "assistant":
                said = text_of(event.get("content"))
                self._all.append(said)
                self._since_tool.append(said)
                yield TextSaid(said)
            case "tool_use":
                self._since_tool.clear()
                what = msgspec.json.encode(event.get("parameters", {})).decode()
                yield ProgramToolUsed(text_of(event.get("tool_name")), what)
            case "tool_result":
                failed = text_of(object_of(event.get("error")).get("message"))
                yield ProgramToolAnswered(
                    text_of(event.get("output")) or failed, is_error=event.get("status") == "error"
                )
            case "error":
                message = text_of(event.get("message"))
                yield TurnFailed(message) if event.get("severity") == "error" else LineNoted(message)
            case "result":
                yield from self._result(event)
            case None:
                yield from _gemini_whole(event)

    def _result(self, event: Mapping[str, Any]) -> Iterator[Piece]:
        yield TokensCounted(_gemini_usage(object_of(event.get("stats"))))
        if event.get("status") == "success":
            yield TurnEnded("".join(self._since_tool).strip() or "".join(self._all).strip())
        else:
            yield _gemini_failure(object_of(event.get("error")))


def _gemini_whole(event: Mapping[str, Any]) -> Iterator[Piece]:
    """The one object that older versions print: the answer, or the error."""
    yield SessionBegan(text_of(event.get("session_id")))
    if isinstance(event.get("error"), dict):
        yield _gemini_failure(event["error"])
    elif isinstance(event.get("response"), str):
        yield TextSaid(event["response"])
        yield TurnEnded(event["response"])


def _gemini_failure(error: Mapping[str, Any]) -> TurnFailed:
    return TurnFailed(text_of(error.get("message")) or text_of(error.get("type")) or "no reason given")


def _gemini_usage(counted: Mapping[str, Any]) -> TokenUsage:
    return TokenUsage(
        input=whole_of(counted.get("input_tokens")),
        output=whole_of(counted.get("output_tokens")),
        cached_input=whole_of(counted.get("cached")),
    )
