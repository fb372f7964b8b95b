"""What all wire formats share: what a format is, and how a response becomes pieces of an answer. Pure.

A `WireFormat` says how a request is written and an answer is read; `openai`, `anthropic` and `google` are
the three. Their readers build on `Gathered`, what has come of an answer so far. `ResponseReader` takes one
response from its head to its end: bytes in, server-sent events (bounded, whatever is sent), pieces of the
answer out. `ExchangeFailed` is an exchange that failed on the way, before anybody can say for which
request.

The rest is small and needed by several formats:

- Signatures are stored with the model that gave them. A provider signs what its model thought, and wants
  both back unchanged when the conversation continues. It may continue with another model, which would
  refuse the whole request for a foreign signature.
- `without` leaves out of a schema what a provider does not hold an answer to, and would refuse the request
  for. Nothing is lost: the model is told the whole schema, and its answer is checked against it.
- `count` takes a number of tokens as a server sends it, and refuses what no model can have used.

When an answer ends is decided here, for all formats: see `ResponseReader`.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import msgspec

from onward.agents import model as llm
from onward.agents.prices import estimated_usage
from onward.agents.refusal import (
    NO_JSON,
    AskedModel,
    ProviderResponse,
    error_in_stream,
    failed,
    hide,
    plain,
    refusal,
)


class AnswerReader(Protocol):
    """Reads the events of one answer. `Gathered` has all but `read` and `read_late`."""

    usage: llm.TokenUsage | None
    note: str
    model: str
    request_id: str
    written: list[str]
    is_empty: bool
    is_whole: bool
    is_done: bool

    @property
    def finish_reason(self) -> llm.FinishReason:
        """Why it ended."""
        ...

    def read(self, event: bytes) -> Iterator[llm.Streamed]:
        """The pieces in one event, or in a whole answer of a server that does not stream.

        Raises ErrorInAnswer for an error, and NO_JSON for what is no answer.
        """
        ...

    def read_late(self, event: bytes) -> None:
        """What an event after the whole answer adds: tokens that were counted, or that nothing more comes.

        Raises NO_JSON for what cannot be read.
        """
        ...

    def tool_calls(self) -> list[llm.ToolCall]:
        """The tool calls, as far as they have come."""
        ...


class WireFormat(Protocol):
    """How one provider is asked."""

    def address(self, model: str) -> str:
        """Where the request goes; `model` is the name without the provider's."""
        ...

    def headers(self, key: str) -> Mapping[str, str]:
        """The headers of this format, with the key if there is one."""
        ...

    def body(self, request: llm.ModelRequest, model: str) -> bytes:
        """The request as JSON; the same request gives the same bytes."""
        ...

    def answer(self, model: str) -> AnswerReader:
        """A reader for the next answer of a model."""
        ...


class ComingCall:
    """A tool call that is still coming."""

    def __init__(self, index: int) -> None:
        self.index, self.id, self.name, self.signature = index, "", "", ""
        self.arguments: list[str] = []

    def whole(self) -> llm.ToolCall:
        """The call as far as it has come."""
        arguments = "".join(self.arguments).strip() or "{}"
        return llm.ToolCall(self.id or f"call_{self.index}", self.name, arguments, self.signature)


class Gathered:
    """The parts that every format's reader adds to, and whether they are a whole answer."""

    def __init__(self) -> None:
        self.usage: llm.TokenUsage | None = None
        self.note = ""
        """Why nobody knows what the answer cost."""
        self.model = self.request_id = ""
        self.written: list[str] = []
        """The pieces of everything that the model wrote, reasoning included."""
        self.is_empty = True
        """No text and no tool call has come; reasoning alone is no answer."""
        self.is_whole = self.is_done = False
        """Whole: it has its end, and so has all that is in it. Done: the server says that nothing follows."""
        self.finish: llm.FinishReason | None = None
        self.is_refused = False
        self.calls: list[ComingCall] = []

    @property
    def finish_reason(self) -> llm.FinishReason:
        """Why it ended."""
        if self.is_refused:
            return llm.FinishReason.REFUSAL
        if self.calls and self.finish in (None, llm.FinishReason.STOP, llm.FinishReason.OTHER):
            return llm.FinishReason.TOOL_CALLS  # some servers say `stop` after tool calls
        return self.finish or llm.FinishReason.STOP

    def tool_calls(self) -> list[llm.ToolCall]:
        """The tool calls, as far as they have come."""
        return [call.whole() for call in self.calls]

    def count_usage(self, read: Callable[[], llm.TokenUsage]) -> None:
        """Take what the server counted, of which the last word counts; a note, if no model can have used it.

        It is no part of the answer, so an answer is never given up for it. A server that counts nothing at
        all has not counted: no request is empty.
        """
        try:
            usage = read()
            if not usage.is_possible():
                raise UsageUnreadable
        except (*NO_JSON, UsageUnreadable):
            self.usage, self.note = None, UNREADABLE
        else:
            self.usage, self.note = (usage if usage.total else None), ""

    def add_text(self, text: str) -> llm.TextDelta:
        """More text of the answer."""
        self.is_empty = False
        self.written.append(text)
        return llm.TextDelta(text)

    def add_reasoning(self, text: str, signature: str = "") -> llm.ReasoningDelta:
        """More reasoning; a signature ends a part of it."""
        if text:
            self.written.append(text)
        return llm.ReasoningDelta(text, signature)

    def begin_call(self) -> ComingCall:
        """A call of which nothing has come yet."""
        self.calls.append(ComingCall(len(self.calls)))
        return self.calls[-1]

    def add_to_call(
        self, call: ComingCall, *, id: str = "", name: str = "", arguments: str = ""
    ) -> llm.ToolCallDelta:
        """More of a call; the first id counts."""
        self.is_empty = False
        call.id = call.id or id
        call.name += name
        call.arguments.append(arguments)
        self.written.append(name + arguments)
        return llm.ToolCallDelta(index=call.index, id=id, name=name, arguments=arguments)


class ExchangeFailed(Exception):
    """The exchange failed; `what` goes on after the name of the one that was asked."""

    def __init__(self, kind: llm.FailureKind, what: str, *, is_sent: bool) -> None:
        self.kind, self.what, self.is_sent = kind, what, is_sent
        super().__init__(what)


class ErrorInAnswer(Exception):
    """The server tells an error in the middle of an answer; `error` is what it sent."""

    def __init__(self, error: Any) -> None:
        self.error = error
        super().__init__("an error inside the response")


class UsageUnreadable(Exception):
    """The server counted tokens in a way that no model can have used them."""


UNREADABLE = "the provider's token count is unreadable or impossible"
NOT_COUNTED = "the response is complete, but the connection ended before the token count arrived"

EVENT_BYTES_MAX = 4 * 1024 * 1024
"""One event may carry a whole answer; a larger one is no answer."""


class TooLarge(Exception):
    """An event is larger than any that makes sense."""


class SseReader:
    """Gives the data of every event, in whatever pieces the bytes come."""

    __slots__ = ("_bytes_max", "_data", "_is_begun", "_rest", "_size")

    def __init__(self, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._bytes_max = event_bytes_max
        self._rest = bytearray()  # so that a line that comes byte by byte costs its length, not its square
        self._data: list[bytes] = []
        self._size = 0
        self._is_begun = False

    def feed(self, received: bytes) -> list[bytes]:
        """The data of all events that end in `received`; TooLarge if one does not end."""
        *lines, rest = received.split(b"\n")
        if lines and self._rest:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        if lines and not self._is_begun:
            self._is_begun, lines[0] = True, lines[0].removeprefix(BOM_UTF8)
        self._rest += rest
        if len(self._rest) > self._bytes_max:
            raise TooLarge
        return self._events(lines)

    def finish(self) -> list[bytes]:
        """The data of an event that the stream ended without an empty line after it, as some servers do."""
        last = bytes(self._rest)
        self._rest.clear()
        return self._events([last, b""])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events = []
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                self._add(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data, self._size = [], 0
            # Comments, which keep a connection alive, and other fields say nothing about the answer.
        return events

    def _add(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._bytes_max:
            raise TooLarge
        self._data.append(data)


_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a whole character
    rb"|(?P<before>\"?)(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})(?P<after>\"?)"
    rb"|\\."  # so that an escaped backslash begins nothing
)
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()


class CharacterHalves:
    """Joins characters that a server cut in two: `\\ud83d` ends a piece of text, `\\ude00` begins the next.

    So do servers whose strings are UTF-16. JSON with a lone surrogate cannot be read, but the answer is
    not broken, and is not asked for again.
    """

    __slots__ = ("_came", "_waits")

    def __init__(self) -> None:
        self._came = self._waits = b""
        """The first half that the event before ended with, and the one that this event ends with."""

    def joined(self, event: bytes) -> bytes:
        """The event in whole characters: a first half at the end of a text waits for the next event."""
        self._came, self._waits = self._waits, b""
        return _ESCAPES.sub(self._whole, event)

    def _whole(self, found: re.Match[bytes]) -> bytes:
        half, before, after = found["half"], found["before"], found["after"]
        if half is None:
            return found[0]
        is_first = half[3:4] in b"89abAB"
        if is_first and after and not self._waits:
            self._waits, half = half, b""
        elif not is_first and before and self._came:
            half, self._came = self._came + half, b""
        else:
            half = _REPLACEMENT
        return before + half + after


STREAM, WHOLE, PAGE = "text/event-stream", "application/json", "text/html"
MAY_HAVE_COST = (llm.FailureKind.CUT, llm.FailureKind.TRANSIENT, llm.FailureKind.EMPTY)


class ResponseReader:
    """Reads the response to one request; raises ModelFailed or Trouble where it is no whole answer.

    Once the answer is whole it counts, whatever follows: the rest is read for the tokens that it counts
    alone, and nothing in it, nor how the connection ends, is a failure. Nobody waits long for it, either
    (`http.py` asks `is_whole`).
    """

    def __init__(
        self, request: llm.ModelRequest, asked: AskedModel, answer: AnswerReader, secrets: Sequence[str] = ()
    ) -> None:
        self._request, self._asked, self._secrets = request, asked, secrets
        self._answer, self._events, self._halves = answer, SseReader(), CharacterHalves()
        self._head: ProviderResponse | None = None
        self._whole: bytearray | None = None

    def begin(self, head: ProviderResponse) -> None:
        """The head of the response has come."""
        shown = {name: hide(value, self._secrets) for name, value in head.headers.items()}
        self._head = head = ProviderResponse(status=head.status, headers=shown)
        if head.status == 200 and head.content_type == PAGE:
            raise ExchangeFailed(llm.FailureKind.REQUEST, "answered with an HTML page", is_sent=False)
        if head.content_type == WHOLE:
            self._whole = bytearray()  # of a server that does not stream

    @property
    def is_done(self) -> bool:
        """Whether nothing more comes, or nothing more that can be read."""
        return self._answer.is_done

    @property
    def is_whole(self) -> bool:
        """Whether the answer is whole, so that only its tokens may still be counted."""
        return self._answer.is_whole

    @property
    def is_answer(self) -> bool:
        """Whether the head promises an answer."""
        return self._head is not None and self._head.status == 200

    def feed(self, received: bytes) -> Iterator[llm.Streamed]:
        """The pieces in the next bytes of the body."""
        if self._whole is not None:
            self._whole += received
            return
        try:
            events = self._events.feed(received)
        except TooLarge:
            raise ExchangeFailed(llm.FailureKind.CUT, "sent an event that never ends", is_sent=True) from None
        yield from self._pieces(events)

    def end(self, trouble: ExchangeFailed | None = None) -> Iterator[llm.Streamed]:
        """The last pieces, now that the body has ended; `trouble` if it broke off.

        That is raised, unless the answer was whole before.
        """
        yield from self._rest(trouble)
        answer = self._answer
        if not answer.is_whole:
            raise trouble or ExchangeFailed(
                llm.FailureKind.CUT, "ended its response early (its end is missing)", is_sent=True
            )
        if answer.is_empty and answer.finish_reason not in (
            llm.FinishReason.LENGTH,
            llm.FinishReason.REFUSAL,
        ):
            raise ExchangeFailed(llm.FailureKind.EMPTY, "answered nothing", is_sent=True)
        yield from answer.tool_calls()
        model = hide(plain(answer.model), self._secrets) or self._asked.model
        yield llm.Finished(
            usage=self._usage(),
            finish_reason=answer.finish_reason,
            model=model,
            request_id=self._response.request_id or self._answer_id(),
            note=answer.note or (NOT_COUNTED if trouble is not None and answer.usage is None else ""),
        )

    def refused(self, body: bytes, now_us: int) -> llm.Failure:
        """What an error response means."""
        response = msgspec.structs.replace(self._response, body=body)
        return refusal(self._asked, response, now_us=now_us, secrets=self._secrets)

    def broken(self, trouble: ExchangeFailed) -> llm.Failure:
        """What a broken exchange comes to."""
        return failed(
            self._asked,
            trouble.kind,
            trouble.what,
            status=self._head.status if self._head else None,
            request_id=(self._head.request_id if self._head else "") or self._answer_id(),
            usage=self._answer.usage,
            may_have_cost=trouble.is_sent and trouble.kind in MAY_HAVE_COST,
        )

    def _rest(self, trouble: ExchangeFailed | None) -> Iterator[llm.Streamed]:
        """What came last, and has no mark at its end."""
        if trouble is not None and self._answer.is_whole:
            return
        try:
            yield from self._pieces(self._events.finish() if self._whole is None else [bytes(self._whole)])
        except (ExchangeFailed, TooLarge) as sooner:
            raise trouble or sooner from None

    def _late(self, event: bytes) -> None:
        """Read what follows the whole answer; what it cannot say is passed over."""
        with suppress(*NO_JSON):
            self._answer.read_late(event)

    def _pieces(self, events: Sequence[bytes]) -> Iterator[llm.Streamed]:
        for event in events:
            if self._answer.is_done:
                return
            if self._answer.is_whole:
                self._late(event)
                continue
            try:
                yield from self._read(event)
            except NO_JSON:
                raise ExchangeFailed(llm.FailureKind.CUT, "sent an invalid response", is_sent=True) from None
            except ErrorInAnswer as sent:
                told = error_in_stream(self._asked, sent.error, self._response, secrets=self._secrets)
                raise llm.ModelFailed(msgspec.structs.replace(told, usage=self._answer.usage)) from None

    def _read(self, event: bytes) -> Iterator[llm.Streamed]:
        try:
            yield from self._answer.read(event)
        except NO_JSON:
            joined = self._halves.joined(event)
            if joined == event:
                raise
            yield from self._answer.read(joined)

    @property
    def _response(self) -> ProviderResponse:
        assert self._head is not None, "the head comes first"
        return self._head

    def _answer_id(self) -> str:
        """The provider's name for the answer, of a format that puts it there instead of into a header."""
        return hide(plain(self._answer.request_id, most=200), self._secrets)

    def _usage(self) -> llm.TokenUsage:
        answer = self._answer
        return answer.usage or estimated_usage(self._request, written=answer.written)


PLAIN = "plain"


def seal(maker: str, data: str, *, kind: str = PLAIN) -> str:
    """A signature to be stored; empty if there is none. `maker` is `provider:model`; `data` has no space."""
    return f"{maker} {kind} {data}" if data else ""


def unseal(maker: str, signature: str) -> tuple[str, str] | None:
    """The kind and the data of a signature that this model gave; None for that of another, or for none."""
    by, *rest = signature.rsplit(" ", 2)
    return (rest[0], rest[1]) if by == maker and len(rest) == 2 else None


def arguments_object(arguments: str) -> msgspec.Raw:
    """The JSON object that the model wrote; what is none is told as text, so that the model sees it."""
    try:
        is_object = isinstance(msgspec.json.decode(arguments), dict)
    except NO_JSON:
        is_object = False
    return msgspec.Raw(arguments.encode() if is_object else msgspec.json.encode({"invalid": arguments}))


LENGTHS = frozenset(("minLength", "maxLength"))
BOUNDS = LENGTHS | frozenset(
    (
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "uniqueItems", "minContains", "maxContains"),
        *("minProperties", "maxProperties"),
    )
)
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")  # a table of schemas
_VALUES = ("enum", "const", "default", "examples", "example")  # no schemas, whatever they look like


def without(schema: dict[str, Any], keywords: Collection[str]) -> dict[str, Any]:
    """The schema without these keywords, at every depth; a property of such a name stays."""
    if not keywords:
        return schema
    return {name: _inner(name, value, keywords) for name, value in schema.items() if name not in keywords}


def _inner(name: str, value: Any, keywords: Collection[str]) -> Any:
    if name in _VALUES:
        return value
    if name in _NAMED and isinstance(value, dict):
        return {key: _part(one, keywords) for key, one in value.items()}
    return [_part(one, keywords) for one in value] if isinstance(value, list) else _part(value, keywords)


def _part(value: Any, keywords: Collection[str]) -> Any:
    return without(value, keywords) if isinstance(value, dict) else value


Count = int | float | None
"""A number of tokens as servers write it: some put `.0` behind it."""


def count(tokens: Count) -> int:
    """A number of tokens, 0 for none; UsageUnreadable if no model can have used so many."""
    if tokens is None:
        return 0
    if not 0 <= tokens <= llm.TOKENS_MAX or tokens != int(tokens):
        raise UsageUnreadable
    return int(tokens)


T = TypeVar("T")


def details(found: T | list[Any] | None) -> T | None:
    """The parts of a count. Some servers write an empty object as a list."""
    if isinstance(found, list):
        if found:
            raise UsageUnreadable
        return None
    return found


ABSENT = msgspec.Raw(b"null")
"""Of a field that did not come; some servers send it empty all the same."""


def has_come(field: msgspec.Raw) -> bool:
    """Whether a field that is read on its own has come."""
    return field is not ABSENT and bytes(field) != b"null"  # it is absent from nearly every event
