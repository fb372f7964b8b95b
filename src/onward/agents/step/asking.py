"""One request of an agent: from its conversation to the recorded answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager

import msgspec
from msgspec.structs import replace

from onward.agents.model.port import Model
from onward.agents.model.request import AssistantMessage, ModelRequest, Text, ToolCall
from onward.agents.model.stream import Answer, Collecting, ReasoningDelta, TextDelta
from onward.agents.model.stream import Usage as Counted
from onward.agents.prices import Prices, cost_micro
from onward.agents.step.answered import recorded
from onward.agents.step.thread import Thread
from onward.handlers.calls import CallAnswer, TextSink
from onward.model.call import Usage
from onward.model.chat import ChunkKind
from onward.redact.stream import RedactingStream

OnText = Callable[[ChunkKind, str], None]
"""Hears what streams: whether it is text or reasoning, and the piece."""
HEARD_PIECES = 64
"""Pieces are passed on line by line, or so many at once. Whoever hears them shows lines, and to redact each
piece alone takes as long as to read it from the network."""


class Asking(msgspec.Struct):
    """Asks a model with a conversation. `continued` is the conversation with the answer in it.

    `prefix` is the beginning of the answer, if an earlier request received it: the model adds the rest, and
    the message and the answer have both.
    """

    model: Model
    prices: Prices
    request: ModelRequest
    idempotency_key: str
    thread: Thread
    heard: OnText
    prefix: str = ""
    continued: Thread | None = None

    async def ask(self, message: TextSink) -> CallAnswer:
        """The answer as it is recorded. ModelFailed: there is none."""
        answer = await self._collected(message)
        thread = self.continued = Thread(self.thread.redactor, self.thread.head, self.thread.messages)
        thread.add(answer.message)
        finished = answer.finished
        price = self.prices.find(self.request.model)
        return CallAnswer(
            recorded(answer, thread.head),
            usage=usage_of(finished.usage),
            cost_micro=None if price is None else cost_micro(finished.usage, price),
            model=self.request.model,
            request_id=finished.request_id,
            thread=thread.head,
            nodes=thread.take_fresh(),
        )

    async def _collected(self, message: TextSink) -> Answer:
        collecting = Collecting()
        # The request for the rest of an answer is another one: a provider must not take it for the first.
        key = f"{self.idempotency_key}+{len(self.prefix)}" if self.prefix else self.idempotency_key
        stream = self.model.stream(self.request, idempotency_key=key)
        if self.prefix:
            collecting.add(TextDelta(self.prefix))
            message.write(ChunkKind.TEXT, self.prefix)
        with self._hearing(message) as heard:
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    piece = collecting.add(piece)
                    if isinstance(piece, TextDelta):
                        heard(ChunkKind.TEXT, piece.text)
                    elif isinstance(piece, ReasoningDelta) and piece.text:
                        heard(ChunkKind.REASONING, piece.text)
                    elif isinstance(piece, ToolCall):
                        message.write(ChunkKind.TOOL_CALL, f"{piece.name} {piece.arguments}")
                    await message.ready()
        assert collecting.finished is not None  # the port promises it, or raises
        return Answer(message=collecting.message(), finished=collecting.finished)

    @contextmanager
    def _hearing(self, message: TextSink) -> Iterator[OnText]:
        """Passes pieces on: to the message, which redacts what it stores, and to whoever hears, redacted."""
        kinds = (ChunkKind.TEXT, ChunkKind.REASONING)
        streams = {kind: RedactingStream(self.thread.redactor) for kind in kinds}
        fresh: dict[ChunkKind, list[str]] = {kind: [] for kind in kinds}

        def tell(kind: ChunkKind, text: str) -> None:
            message.write(kind, text)
            pieces = fresh[kind]
            pieces.append(text)
            if "\n" in text or len(pieces) >= HEARD_PIECES:
                self.heard(kind, streams[kind].feed("".join(pieces)))
                pieces.clear()

        try:
            yield tell
        finally:
            for kind, stream in streams.items():
                self.heard(kind, stream.feed("".join(fresh[kind])) + stream.finish())


def continued(request: ModelRequest, prefix: str) -> ModelRequest:
    """The request for the rest of an answer that begins with `prefix`; the request itself without one."""
    if not prefix:
        return request
    return replace(request, messages=(*request.messages, AssistantMessage((Text(prefix),))))


def usage_of(counted: Counted) -> Usage:
    """What a provider counted, as it is recorded."""
    return Usage(
        input=counted.input,
        output=counted.output,
        cached=counted.cached_input,
        reasoning=counted.reasoning,
        cache_write=counted.cache_write,
    )
