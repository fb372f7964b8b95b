"""One answer, read chunk by chunk. Pure: it knows nothing of connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from onward.agents.model.stream import FinishReason, Streamed, ToolCallDelta
from onward.agents.openai.chunk import FINISHES, Delta, ToolPiece, decode_chunk
from onward.agents.wire.gathered import ComingCall, Gathered
from onward.agents.wire.trouble import ErrorInAnswer

DONE = b"[DONE]"


class OpenAIAnswer(Gathered):
    """What has come of an answer, and whether it is whole."""

    def read(self, event: bytes) -> Iterator[Streamed]:
        """As the format's port says."""
        if event.strip() == DONE:
            self.is_whole = self.is_done = True  # a few servers never say why they stopped
            return
        chunk = decode_chunk(event)
        error = chunk.failed()
        if error is not None:
            raise ErrorInAnswer(error)
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
                self.finish = FINISHES.get(choice.finish_reason.lower(), FinishReason.OTHER)
                self.is_whole = True

    def _delta(self, new: Delta) -> Iterator[Streamed]:
        thought = new.reasoning_content or new.reasoning
        if isinstance(thought, str) and thought:
            yield self.add_reasoning(thought)
        if new.content:
            yield from self._content(new.content)
        if new.refusal:
            self.is_refused = True
            yield self.add_text(new.refusal)
        for piece in new.tool_calls or ():
            yield self._tool_piece(piece)

    def _content(self, content: Any) -> Iterator[Streamed]:
        if isinstance(content, str):
            yield self.add_text(content)
            return
        for part in content if isinstance(content, list) else ():
            text = part.get("text") if isinstance(part, dict) else None
            if isinstance(text, str) and text:
                yield self.add_text(text)

    def _tool_piece(self, piece: ToolPiece) -> ToolCallDelta:
        name = (piece.function.name if piece.function else None) or ""
        arguments = _arguments(piece.function.arguments if piece.function else None)
        return self.add_to_call(self._call_of(piece), id=piece.id or "", name=name, arguments=arguments)

    def _call_of(self, piece: ToolPiece) -> ComingCall:
        """The call that a piece belongs to. Some servers leave the index out, or number every call 0."""
        last = self.calls[-1] if self.calls else None
        is_other = last is not None and bool(piece.id and last.id and piece.id != last.id)
        if piece.index is not None and not (is_other and last is not None and piece.index == last.index):
            known = [call for call in self.calls if call.index == piece.index]
            if known:
                return known[-1]
        elif last is not None and not is_other:
            return last
        return self.begin_call()


def _arguments(found: Any) -> str:
    if found is None:
        return ""
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()
