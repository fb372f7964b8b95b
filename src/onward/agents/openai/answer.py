"""One answer, read chunk by chunk. Pure: it knows nothing of connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from onward.agents.model.request import ToolCall
from onward.agents.model.stream import (
    FinishReason,
    ReasoningDelta,
    Streamed,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from onward.agents.openai.chunk import FINISHES, Chunk, Delta, ToolPiece


class _Call:
    """A tool call that is still coming."""

    def __init__(self, index: int) -> None:
        self.index, self.id, self.name = index, "", ""
        self.arguments: list[str] = []

    def whole(self) -> ToolCall:
        return ToolCall(self.id or f"call_{self.index}", self.name, "".join(self.arguments).strip() or "{}")


class AnswerReader:
    """What has come of an answer, and whether it is whole."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.model = ""
        self.pieces = self.characters = 0
        """Of everything that the model wrote, reasoning included."""
        self.is_empty = True
        """No text and no tool call has come; reasoning alone is no answer."""
        self.is_whole = False
        self._finish: FinishReason | None = None
        self._is_refused = False
        self._calls: list[_Call] = []

    def read(self, chunk: Chunk) -> Iterator[Streamed]:
        """The pieces in one chunk."""
        if chunk.model:
            self.model = chunk.model
        if chunk.usage is not None:
            self.usage = chunk.usage.usage()
        for choice in chunk.choices or ():
            if choice.index:
                continue  # an answer that nobody asked for
            new = choice.delta or choice.message
            if new is not None:
                yield from self._delta(new)
            if choice.finish_reason:
                self._finish = FINISHES.get(choice.finish_reason.lower(), FinishReason.OTHER)
                self.is_whole = True

    def done(self) -> None:
        """The server says that this was all; a few never say why they stopped."""
        self.is_whole = True

    @property
    def finish_reason(self) -> FinishReason:
        """Why it ended."""
        if self._is_refused:
            return FinishReason.REFUSAL
        if self._calls and self._finish in (None, FinishReason.STOP, FinishReason.OTHER):
            return FinishReason.TOOL_CALLS  # some servers say `stop` after tool calls
        return self._finish or FinishReason.STOP

    def tool_calls(self) -> list[ToolCall]:
        """The tool calls, as far as they have come."""
        return [call.whole() for call in self._calls]

    def _delta(self, new: Delta) -> Iterator[Streamed]:
        thought = new.reasoning_content or new.reasoning
        if isinstance(thought, str) and thought:
            self._count(thought)
            yield ReasoningDelta(thought)
        if new.content:
            yield from self._content(new.content)
        if new.refusal:
            self._is_refused = True
            yield self._text(new.refusal)
        for piece in new.tool_calls or ():
            yield self._tool_piece(piece)

    def _content(self, content: Any) -> Iterator[Streamed]:
        if isinstance(content, str):
            yield self._text(content)
            return
        for part in content if isinstance(content, list) else ():
            text = part.get("text") if isinstance(part, dict) else None
            if isinstance(text, str) and text:
                yield self._text(text)

    def _text(self, text: str) -> TextDelta:
        self.is_empty = False
        self._count(text)
        return TextDelta(text)

    def _count(self, text: str) -> None:
        self.pieces += 1
        self.characters += len(text)

    def _tool_piece(self, piece: ToolPiece) -> ToolCallDelta:
        self.is_empty = False
        call = self._call_of(piece)
        name = (piece.function.name if piece.function else None) or ""
        arguments = _arguments(piece.function.arguments if piece.function else None)
        call.id = call.id or piece.id or ""
        call.name += name
        call.arguments.append(arguments)
        self._count(name + arguments)
        return ToolCallDelta(index=call.index, id=piece.id or "", name=name, arguments=arguments)

    def _call_of(self, piece: ToolPiece) -> _Call:
        """The call that a piece belongs to. Some servers leave the index out, or number every call 0."""
        last = self._calls[-1] if self._calls else None
        is_other = last is not None and bool(piece.id and last.id and piece.id != last.id)
        if piece.index is not None and not (is_other and last is not None and piece.index == last.index):
            known = [call for call in self._calls if call.index == piece.index]
            if known:
                return known[-1]
        elif last is not None and not is_other:
            return last
        self._calls.append(_Call(len(self._calls)))
        return self._calls[-1]


def _arguments(found: Any) -> str:
    if found is None:
        return ""
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()
