"""One answer, read event by event. Pure: it knows nothing of connections."""

from __future__ import annotations

from collections.abc import Iterator

from onward.agents.anthropic.body import REDACTED
from onward.agents.anthropic.event import FINISHES, Block, Counted, Delta, Event, Message, decode_event
from onward.agents.model.stream import FinishReason, Streamed
from onward.agents.wire.gathered import ComingCall, Gathered
from onward.agents.wire.signature import seal
from onward.agents.wire.trouble import ErrorInAnswer


class AnthropicAnswer(Gathered):
    """What has come of an answer, and whether it is whole."""

    def __init__(self, maker: str) -> None:
        super().__init__()
        self._maker = maker
        self._counted = Counted()
        self._tools: dict[int | None, ComingCall] = {}

    def read(self, event: bytes) -> Iterator[Streamed]:
        """As the format's port says."""
        found = decode_event(event)
        if found is None:
            return
        match found.type:
            case "message_start":
                self._about(found.message or found)
            case "content_block_start" if found.content_block is not None:
                yield from self._block(found.index, found.content_block)
            case "content_block_delta" if found.delta is not None:
                yield from self._delta(found.index, found.delta)
            case "message_delta":
                self._end(found)
            case "message_stop":
                self.is_whole = self.is_done = True
            case "message":
                yield from self._whole(found)
            case "error":
                raise ErrorInAnswer(found.error or {})
            case _:
                pass  # a ping, or an event of later days

    def _about(self, message: Message) -> None:
        """Who answers, and what has been counted before the answer, which is not what it costs."""
        if message.model:
            self.model = message.model
        if message.usage is not None:
            self._counted = self._counted.updated(message.usage)

    def _end(self, event: Event) -> None:
        if event.usage is not None:
            self._counted = self._counted.updated(event.usage)
            self.usage = self._counted.usage()
        if event.delta is not None and event.delta.stop_reason:
            self._stop(event.delta.stop_reason)

    def _stop(self, reason: str) -> None:
        self.finish = FINISHES.get(reason, FinishReason.OTHER)
        self.is_whole = True

    def _whole(self, message: Event) -> Iterator[Streamed]:
        """The answer of a server that does not stream."""
        self._about(message)
        for index, block in enumerate(message.content or ()):
            yield from self._block(index, block)
        if message.usage is not None:
            self.usage = self._counted.usage()
        if message.stop_reason:
            self._stop(message.stop_reason)

    def _block(self, index: int | None, block: Block) -> Iterator[Streamed]:
        match block.type:
            case "text" if block.text:
                yield self.add_text(block.text)
            case "thinking" if block.thinking or block.signature:
                yield self._thought(block.thinking or "", block.signature or "")
            case "redacted_thinking" if block.data:
                yield self.add_reasoning("", seal(self._maker, block.data, kind=REDACTED))
            case "tool_use":
                call = self._tools[index] = self.begin_call()
                given = bytes(block.input).decode()
                arguments = "" if given in ("{}", "null") else given
                yield self.add_to_call(call, id=block.id or "", name=block.name or "", arguments=arguments)
            case _:
                pass  # it begins empty, or is of a kind that nobody asked for

    def _delta(self, index: int | None, delta: Delta) -> Iterator[Streamed]:
        match delta.type:
            case "text_delta" if delta.text:
                yield self.add_text(delta.text)
            case "thinking_delta" if delta.thinking:
                yield self.add_reasoning(delta.thinking)
            case "signature_delta" if delta.signature:
                yield self._thought("", delta.signature)
            case "input_json_delta" if delta.partial_json and index in self._tools:
                yield self.add_to_call(self._tools[index], arguments=delta.partial_json)
            case _:
                pass  # a citation, or a delta of later days

    def _thought(self, text: str, signature: str) -> Streamed:
        return self.add_reasoning(text, seal(self._maker, signature))
