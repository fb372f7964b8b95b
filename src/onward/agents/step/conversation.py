"""The conversation of an agent's step: where it begins, how it is stored, and one request of it.

A step that was asked before continues its stored conversation. Its inputs are not computed again: they
would differ, because the run's past has grown.

A step that begins a conversation may be told what was said in the chat of its run before. That is part of the
stored conversation: a step that continues is told the same, whatever was said since.

A stored conversation is a chain: each node is a message and the hash of the node before it. A conversation
of n messages costs n, however often it is continued; forks share what they have in common. A node is stored
as a blob under its hash. So a message is redacted before it is hashed, and the model is asked with what is
stored.

One request goes from the conversation to the recorded answer, which is read again when the step continues.
What it may cost at most is reserved before it is sent.

A conversation may not fit into its model's context. The results of tools are what makes conversations long,
so all but those of the last rounds are replaced by a note; the whole results are still in the log. If that
is not enough, the step fails and says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
from blake3 import blake3
from msgspec.structs import replace

from onward.agents.model import (
    OUTPUT_TOKENS,
    AnswerCollector,
    AssistantMessage,
    FinishReason,
    Message,
    Model,
    ModelAnswer,
    ModelRequest,
    Reasoning,
    ReasoningDelta,
    Text,
    TextDelta,
    TokenUsage,
    ToolCall,
    ToolMessage,
    ToolResult,
    user,
)
from onward.agents.model import TokenUsage as Counted
from onward.agents.prices import Prices, cost_micro, estimate_tokens, most_micro
from onward.agents.step.tool_uses import UNKNOWN, result_of
from onward.errors import InvalidInput, LimitReached
from onward.handlers.calls import CallAnswer, StepPast, TextSink
from onward.handlers.port import StepContext
from onward.model.call import LimitHit, Reserved, Usage
from onward.model.chat import ChunkKind, EarlierMessage, Role
from onward.model.values import whole_text
from onward.redact.redactor import RedactingStream, Redactor

AGAIN = "This step failed: {why}. Try again. What tools have done stays done; do not repeat it."


class OpenConversation(Protocol):
    """A conversation in which something is asked."""

    async def asking(self) -> Thread:
        """The conversation, with what waits for an answer at its end."""
        ...

    def answered(self, thread: Thread) -> None:
        """The conversation has an answer at its end."""
        ...


class Talk:
    """The conversation of one attempt. It is read when something is asked, and not before.

    `summary` tells a step that begins a conversation what came before it.
    """

    def __init__(
        self, step: StepContext, known: StepPast, summary: Callable[[StepContext], Awaitable[str]]
    ) -> None:
        self._step, self._known, self._summary = step, known, summary
        self._thread: Thread | None = None
        self._next: Message | None = None

    def follow(self, message: Message) -> None:
        """What is said next, unless it is said already in the stored conversation."""
        self._next = message

    def answered(self, thread: Thread) -> None:
        """The conversation has an answer at its end."""
        self._thread = thread

    async def asking(self) -> Thread:
        """The conversation, with what waits for an answer at its end."""
        thread = self._thread = self._thread or await self._begun()
        if self._next is not None and not thread.is_asking:
            thread.add(self._next)
        self._next = None
        return thread

    async def _begun(self) -> Thread:
        """The step's stored conversation; for a new step, that of its thread, and what it asks."""
        step, known, recorder = self._step, self._known, self._step.recorder
        if known.thread:
            thread = await read_thread(recorder.content, known.thread, step.redactor)
            if not known.definition:
                await self._try_again(thread)
            return thread
        earlier = recorder.thread_of(step.thread) if step.thread else ""
        before = await read_thread(recorder.content, earlier, step.redactor)
        preamble = ""
        if not before.messages:
            preamble = await self._summary(step)
            for turn in turns_of(await step.chat_history()):
                before.add(turn)
        told = instructed(step.steering)
        before.add(user("\n\n".join(filter(None, (preamble, step.prompt, told)))))
        return before

    async def _try_again(self, thread: Thread) -> None:
        """Continue after a failure: the model is told of it, and what became of the calls it asked for."""
        last = thread.messages[-1]
        calls = [part for part in last.parts if isinstance(part, ToolCall)]
        if isinstance(last, AssistantMessage) and calls:
            thread.add(ToolMessage(tuple(await self._owed(calls))))
        why = self._known.failure or "its attempt was ended"
        told = instructed(self._step.steering)
        thread.add(user("\n\n".join(filter(None, (AGAIN.format(why=why.rstrip(".")), told)))))

    async def _owed(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """What is known of the calls of the last answer, which the model has not seen yet."""
        done = await self._step.recorder.dropped()
        found = {
            int(place): value
            for call, value in done.items()
            if (place := call.rpartition(".t")[2]).isdecimal()
        }
        return [
            result_of(call, found[position])
            if position in found
            else ToolResult(call.id, UNKNOWN, is_error=True)
            for position, call in enumerate(calls, start=1)
        ]


def turns_of(history: Sequence[EarlierMessage]) -> list[Message]:
    """What was said in the chat before, as the beginning of a conversation: the first turn is the user's, and
    no two turns that follow each other are the same side's."""
    turns: list[tuple[bool, str]] = []
    for said in history:
        is_model = said.role is Role.ASSISTANT
        text = f"[{said.text}]" if said.role is Role.SYSTEM else said.text
        if turns and turns[-1][0] is is_model:
            turns[-1] = is_model, f"{turns[-1][1]}\n\n{text}"
        else:
            turns.append((is_model, text))
    if turns and turns[0][0]:
        turns.insert(0, (False, "[The chat begins with what you said.]"))
    return [AssistantMessage((Text(text),)) if is_model else user(text) for is_model, text in turns]


def told_history(history: Sequence[EarlierMessage]) -> str:
    """The same as one text, for a program that takes only one; empty if nothing was said."""
    said = "\n\n".join(f"{one.role.value}: {one.text}" for one in history)
    return f"What was said in this chat before:\n\n{said}" if said else ""


def instructed(texts: Sequence[str]) -> str:
    """What people told the agent while the run was running."""
    return "\n\n".join(f"Instruction from the operator: {text}" for text in texts)


Find = Callable[[str], Awaitable[bytes | None]]
Part = Text | Reasoning | ToolCall | ToolResult


class ThreadNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A message, and the end of the conversation before it."""

    message: Message
    parent: str = ""


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(ThreadNode)


class Thread:
    """A conversation as far as it is known here: its messages, and the node of the last one.

    `fresh` are the nodes that are not stored yet.
    """

    def __init__(self, redactor: Redactor, head: str = "", messages: tuple[Message, ...] = ()) -> None:
        self.redactor, self.head, self.messages = redactor, head, messages
        self.fresh: dict[str, bytes] = {}

    def add(self, message: Message) -> None:
        """Continue the conversation with what the message says, without secrets."""
        message = _without_secrets(self.redactor, message)
        content = _encode(ThreadNode(message, self.head))
        self.head = blake3(content).hexdigest()
        self.messages = (*self.messages, message)
        self.fresh[self.head] = content

    def with_message(self, message: Message) -> Thread:
        """A conversation that continues this one; only the new message is fresh in it."""
        longer = Thread(self.redactor, self.head, self.messages)
        longer.add(message)
        return longer

    @property
    def is_asking(self) -> bool:
        """Whether the last message waits for an answer."""
        return bool(self.messages) and not isinstance(self.messages[-1], AssistantMessage)

    def take_fresh(self) -> dict[str, bytes]:
        """The nodes that are not stored yet; whoever takes them stores them."""
        fresh, self.fresh = self.fresh, {}
        return fresh


async def read_thread(find: Find, head: str, redactor: Redactor) -> Thread:
    """A stored conversation up to its node `head`."""
    messages: list[Message] = []
    at = head
    while at:
        content = await find(at)
        if content is None:
            raise InvalidInput(
                f"message {at} of a stored conversation is missing; retry the step to start it again."
            )
        node = _decoder.decode(content)
        messages.append(node.message)
        at = node.parent
    return Thread(redactor, head, tuple(reversed(messages)))


def _without_secrets(redactor: Redactor, message: Message) -> Message:
    parts = tuple(_clean(redactor, part) for part in message.parts)
    return message if parts == message.parts else replace(message, parts=parts)


def _clean(redactor: Redactor, part: Part) -> Part:
    """The part without secrets, and without a signature that would no longer fit its text."""
    if isinstance(part, ToolCall):
        clean = redactor.redact
        return replace(part, id=clean(part.id), name=clean(part.name), arguments=clean(part.arguments))
    if isinstance(part, ToolResult):
        return replace(part, call_id=redactor.redact(part.call_id), text=redactor.redact(part.text))
    text = redactor.redact(part.text)
    if isinstance(part, Reasoning) and text != part.text:
        return replace(part, text=text, signature="")
    return replace(part, text=text)


OnText = Callable[[ChunkKind, str], None]
"""Hears what streams: whether it is text or reasoning, and the piece."""
HEARD_PIECES = 64
"""Pieces are passed on line by line, or so many at once. Whoever hears them shows lines, and to redact each
piece alone takes as long as to read it from the network."""


class AgentRequest(msgspec.Struct):
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
        is_known = not finished.note
        return CallAnswer(
            recorded(answer, thread.head),
            usage=usage_of(finished.usage) if is_known else None,
            cost_micro=cost_micro(finished.usage, price) if is_known and price is not None else None,
            model=self.request.model,
            request_id=finished.request_id,
            thread=thread.head,
            nodes=thread.take_fresh(),
            note=finished.note,
        )

    async def _collected(self, message: TextSink) -> ModelAnswer:
        collecting = AnswerCollector()
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
        return ModelAnswer(message=collecting.message(), finished=collecting.finished)

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
                self.heard(kind, streams[kind].feed(whole_text("".join(pieces))))
                pieces.clear()

        try:
            yield tell
        finally:
            for kind, stream in streams.items():
                self.heard(kind, stream.feed(whole_text("".join(fresh[kind]))) + stream.finish())


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


class Answered(msgspec.Struct, frozen=True):
    """What decides how the conversation continues. `output` is what the answer cost in tokens."""

    text: str
    finish_reason: FinishReason
    tool_calls: tuple[ToolCall, ...] = ()
    output: int = 0


def recorded(answer: ModelAnswer, head: str) -> dict[str, Any]:
    """The value of the call; `head` is the end of the conversation with the answer in it."""
    value: dict[str, Any] = {
        "text": answer.text,
        "finish_reason": answer.finished.finish_reason.value,
        "thread": head,
    }
    if answer.finished.usage.output:
        value["output"] = answer.finished.usage.output
    if answer.tool_calls:
        value["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in answer.tool_calls
        ]
    return value


def read_recorded(value: Mapping[str, Any]) -> Answered:
    """The same from the log."""
    return Answered(
        text=value["text"],
        finish_reason=FinishReason(value["finish_reason"]),
        tool_calls=tuple(ToolCall(**call) for call in value.get("tool_calls", ())),
        output=value.get("output", 0),
    )


ANSWER_TOKENS_MIN = 64
"""An answer with less room is not worth asking for."""
DAY_US = 86_400_000_000


def with_room(request: ModelRequest, reached: LimitReached) -> ModelRequest | None:
    """The request with the ceiling that a limit on tokens leaves for its answer; None if it is too low."""
    if reached.measure != "tokens":
        return None
    left = reached.limit - reached.spent - estimate_tokens(request)
    ceiling = request.max_tokens or OUTPUT_TOKENS
    return replace(request, max_tokens=left) if ANSWER_TOKENS_MIN <= left < ceiling else None


def hit_of(reached: LimitReached) -> LimitHit:
    """The limit that stops the step, as it is recorded."""
    return LimitHit(
        scope=reached.scope,
        measure=reached.measure,
        limit=reached.limit,
        spent=reached.spent,
        reserved=reached.reserved,
        wanted=reached.wanted,
    )


def end_of(scope: str, now_us: int) -> int | None:
    """When a scope's limit no longer counts: that of a day at its end."""
    return (now_us // DAY_US + 1) * DAY_US if scope.startswith("day/") else None


def request_reservation(step: StepContext, request: ModelRequest, prices: Prices, now_us: int) -> Reserved:
    """The scopes of a request, and its ceiling in tokens, money and calls."""
    usage = TokenUsage(input=estimate_tokens(request), output=request.max_tokens or OUTPUT_TOKENS)
    price = prices.find(request.model)
    day = datetime.fromtimestamp(now_us / 1_000_000, UTC).date().isoformat()
    return Reserved(
        scopes=(*step.scopes, f"day/{day}"),
        tokens=usage.input + usage.output,
        cost_micro=0 if price is None else most_micro(usage, price),
        calls=1,
        is_priced=price is not None,
    )


ROUNDS_KEPT = 2
CHARACTERS_KEPT = 200


def shortened_thread(thread: Thread) -> Thread | None:
    """The conversation with shorter results of tools; None if there is nothing to shorten."""
    rounds = [at for at, message in enumerate(thread.messages) if isinstance(message, ToolMessage)]
    old = set(rounds[:-ROUNDS_KEPT])
    messages = [_shorter(one) if at in old else one for at, one in enumerate(thread.messages)]
    if tuple(messages) == thread.messages:
        return None
    shorter = Thread(thread.redactor)
    for message in messages:
        shorter.add(message)
    return shorter


def _shorter(message: Message) -> Message:
    if not isinstance(message, ToolMessage):
        return message
    parts = tuple(replace(part, text=_note(part.text)) for part in message.parts)
    return replace(message, parts=parts)


def _note(text: str) -> str:
    if len(text) <= CHARACTERS_KEPT * 2:
        return text
    return (
        f"{text[:CHARACTERS_KEPT]}\n[the rest of {len(text):,} characters was left out to save space; "
        "use the tool again if you need it]"
    )
