"""The port to models: what is asked, what streams back, how it fails, and what follows a failure.

Begin with `Model`, at the end: whatever answers requests is one. A `ModelRequest` has its whole
conversation in it. An answer comes in pieces (`Streamed`), which `AnswerCollector` puts together. A failed
request is a `Failure`, a value with a kind; `ModelFailed` is the one exception that carries it. What
follows is a table, `HANDLING`, and a pure function that is told the time and the dice.

Except for the port itself, everything here is a value or a pure function, so that it can be stored, hashed
and compared.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from onward.errors import CallFailed
from onward.machine import reasons
from onward.model.values import whole_text

OUTPUT_TOKENS = 8_192
"""The ceiling of an answer whose request has none, where one must be named: to a format, or to reserve it."""
REQUEST_ID_CHARACTERS_MAX = 1_000
TOKENS_MAX = 10_000_000
"""More than any model reads or writes in one request: whoever says so has not counted."""


class Effort(StrEnum):
    """How long a model that reasons should do so; other models are not told."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Closed, and encoded without what is default, so that a new field does not change old hashes."""


class Text(_Value, frozen=True, tag="text"):
    """Text that was written or is to be read."""

    text: str


class Reasoning(_Value, frozen=True, tag="reasoning"):
    """What a model thought before it answered. `signature`: the provider's proof that the text is its own.

    Whoever asks that provider again must send both back as they came. The text may be empty.
    """

    text: str
    signature: str = ""


class ToolCall(_Value, frozen=True, tag="tool_call"):
    """A model's wish to use a tool. `arguments` is JSON text as the model wrote it, and may be invalid.

    `signature` is the provider's, as that of Reasoning is.
    """

    id: str
    name: str
    arguments: str = "{}"
    signature: str = ""


class ToolResult(_Value, frozen=True, tag="tool_result"):
    """What came of the tool call with this id."""

    call_id: str
    text: str
    is_error: bool = False


class UserMessage(_Value, frozen=True, tag="user", tag_field="role"):
    """What a person or a step says to the model."""

    parts: tuple[Text, ...]


class ProgramSession(_Value, frozen=True):
    """The session of a program that works as an agent, after an answer, with what it counts in all so far."""

    program: str
    id: str
    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0


class AssistantMessage(_Value, frozen=True, tag="assistant", tag_field="role"):
    """What the model answered, in the order in which it came; a program's answer names its session."""

    parts: tuple[Text | Reasoning | ToolCall, ...]
    session: ProgramSession | None = None


class ToolMessage(_Value, frozen=True, tag="tool", tag_field="role"):
    """The results of the tool calls of the message before; all of them, since a model must see each."""

    parts: tuple[ToolResult, ...]


Message = UserMessage | AssistantMessage | ToolMessage


class Tool(_Value, frozen=True):
    """A tool that the model may wish to use; `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class JsonFormat(_Value, frozen=True, tag="json"):
    """The answer must be a JSON object."""


class SchemaFormat(_Value, frozen=True, tag="schema"):
    """The answer must be JSON of this JSON Schema."""

    name: str
    schema: dict[str, Any]


Format = JsonFormat | SchemaFormat


class ToolChoice(StrEnum):
    """Whether the answer may use tools."""

    REQUIRED = "required"
    NONE = "none"


class ModelRequest(_Value, frozen=True, kw_only=True):
    """One request. `model` is `provider:model`; None and empty values leave the choice to the provider."""

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    max_tokens: int | None = None
    """The ceiling of the answer, reasoning included."""
    temperature: float | None = None
    effort: Effort | None = None
    stop: tuple[str, ...] = ()
    format: Format | None = None
    """None: any text."""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    """None: as the model likes."""


def user(text: str) -> UserMessage:
    """A user's message of one text."""
    return UserMessage((Text(text),))


NAME_CHARACTERS_MAX = 64
ODD_IN_NAMES = re.compile("[^A-Za-z0-9_-]")
"""What providers do not take in the name of a tool."""
# Escapes of characters that need none in JSON: what is printable in ASCII, but the quote and the backslash.
_NEEDLESS = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u00(2[013-9a-fA-F]|[346][0-9a-fA-F]|5[0-9abdefABDEF]|7[0-9a-eA-E])"
)


class TokenUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The model tokens of one request, as the provider counted them.

    `cached_input` and `cache_write` are part of `input`, and `reasoning` is part of `output`. Of
    `cache_write`, `cache_write_1h` was written to be kept for an hour, which costs more.
    """

    input: int = 0
    output: int = 0
    cached_input: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0
    is_estimated: bool = False
    """Whether the provider did not say, and these are our own upper estimates."""

    @property
    def total(self) -> int:
        """All tokens that limits count."""
        return self.input + self.output

    def is_possible(self, most: int = TOKENS_MAX) -> bool:
        """Whether so many tokens can have been used; no sum of possible counts is too large to store."""
        counts = (self.input, self.output, self.cached_input, self.cache_write, self.cache_write_1h)
        return all(0 <= one <= most for one in (*counts, self.reasoning))


class FinishReason(StrEnum):
    """Why a model stopped writing."""

    STOP = "stop"
    LENGTH = "length"
    """The ceiling was reached: the answer is cut short."""
    TOOL_CALLS = "tool_calls"
    REFUSAL = "refusal"
    """The model or its provider declined to answer, wholly or from some point on."""
    OTHER = "other"


class TextDelta(msgspec.Struct, frozen=True, tag="text"):
    """More text of the answer."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """More text of the model's reasoning. A signature ends a part of it, and its text may be empty."""

    text: str
    signature: str = ""


class ToolCallDelta(msgspec.Struct, frozen=True, tag="tool_call_delta"):
    """More of a tool call, to be shown; the whole ToolCall follows. `index` counts the calls from 0."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class Finished(msgspec.Struct, frozen=True, tag="finished", kw_only=True):
    """The last piece: the answer is whole. `model` is as the provider names it, often with a date.

    `note` says why nobody knows what the answer cost: then `usage` is no more than an estimate.
    """

    usage: TokenUsage
    finish_reason: FinishReason
    model: str
    request_id: str = ""
    note: str = ""


Streamed = TextDelta | ReasoningDelta | ToolCallDelta | ToolCall | Finished
"""Deltas in any order, then every ToolCall, then one Finished, and nothing after it."""


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    message: AssistantMessage
    finished: Finished

    @property
    def text(self) -> str:
        """Its text, without reasoning and tool calls."""
        return "".join(part.text for part in self.message.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tools that the model wishes to use."""
        return tuple(part for part in self.message.parts if isinstance(part, ToolCall))


class AnswerCollector:
    """Puts the pieces of one answer together."""

    def __init__(self) -> None:
        self._parts: list[Text | Reasoning | ToolCall] = []
        self._run: list[str] = []
        self._is_reasoning = False
        self._ids: set[str] = set()
        self.finished: Finished | None = None

    def add(self, piece: Streamed) -> Streamed:
        """Take the next piece; the same as it is kept."""
        match piece:
            case TextDelta(text):
                self._append(text, is_reasoning=False)
            case ReasoningDelta(text, signature):
                if text:
                    self._append(text, is_reasoning=True)
                if signature:
                    self._sign(signature)
            case ToolCall():
                self._close()
                piece = self._plain(piece)
                self._parts.append(piece)
            case Finished():
                self._close()
                self.finished = piece = _stored(piece)
            case ToolCallDelta():
                pass  # the whole call follows
        return piece

    def message(self) -> AssistantMessage:
        """What has come so far."""
        self._close()
        return AssistantMessage(tuple(self._parts))

    def _append(self, text: str, *, is_reasoning: bool) -> None:
        if is_reasoning != self._is_reasoning:
            self._close()
            self._is_reasoning = is_reasoning
        self._run.append(text)

    def _sign(self, signature: str) -> None:
        """End the reasoning that has come since the last part, which may be none, with its signature."""
        if not self._is_reasoning:
            self._close()
        self._parts.append(Reasoning(whole_text("".join(self._run)), signature))
        self._run = []

    def _plain(self, call: ToolCall) -> ToolCall:
        """The call as every provider takes it back, with an id of its own, and as secrets are found in it."""
        id, number = call.id or "call", 1
        while id in self._ids:
            number += 1
            id = f"{call.id or 'call'}_{number}"
        self._ids.add(id)
        name = ODD_IN_NAMES.sub("_", call.name)[:NAME_CHARACTERS_MAX] or "unnamed"
        arguments = _NEEDLESS.sub(lambda found: found[1] + chr(int(found[2], 16)), call.arguments)
        return msgspec.structs.replace(call, id=whole_text(id), name=name, arguments=whole_text(arguments))

    def _close(self) -> None:
        if self._run:
            text = whole_text("".join(self._run))
            self._parts.append(Reasoning(text) if self._is_reasoning else Text(text))
            self._run = []


def _stored(finished: Finished) -> Finished:
    """The end of an answer with a request id that can be stored: the answer must not be lost for it."""
    named = whole_text(finished.request_id)[:REQUEST_ID_CHARACTERS_MAX]
    return finished if named == finished.request_id else msgspec.structs.replace(finished, request_id=named)


async def collect(pieces: AsyncIterator[Streamed]) -> ModelAnswer:
    """The whole answer; raises ModelFailed as the stream does."""
    collecting = AnswerCollector()
    async for piece in pieces:
        collecting.add(piece)
    assert collecting.finished is not None, "a stream ends with Finished, or raises"
    return ModelAnswer(message=collecting.message(), finished=collecting.finished)


class FailureKind(StrEnum):
    """What went wrong, as far as it decides what to do next."""

    TRANSIENT = "transient"
    """The provider could not be reached, or failed; the same request may succeed later."""
    RATE_LIMIT = "rate_limit"
    """The provider asks to come back later."""
    AUTH = "auth"
    """The key is missing or refused."""
    CREDIT = "credit"
    """The account is out of credit or quota."""
    FORBIDDEN = "forbidden"
    """The key may not use this model, or not from here."""
    REQUEST = "request"
    """The provider refuses the request as it is, or the endpoint is not one."""
    TOO_LONG = "too_long"
    """The conversation does not fit into the model's context."""
    EMPTY = "empty"
    """The model answered nothing."""
    CUT = "cut"
    """The answer began, and then broke off, stalled or made no sense."""


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """One failed request. It never holds a key."""

    kind: FailureKind
    message: str
    """One sentence for people: what failed, where, and what to do."""
    provider: str
    model: str
    status: int | None = None
    """The HTTP status, if there was an answer."""
    request_id: str = ""
    retry_at_us: int | None = None
    """When the provider says that it can be asked again."""
    usage: TokenUsage | None = None
    """What the provider counted before it failed."""
    may_have_cost: bool = False
    """Whether the provider may charge for it: it got the request, and did not refuse it."""


class ModelFailed(CallFailed):
    """A request to a model failed; `failure` says how."""

    def __init__(self, failure: Failure) -> None:
        self.failure, self.may_have_cost, self.kind = failure, failure.may_have_cost, failure.kind.value
        super().__init__(failure.message)


class Retry(StrEnum):
    """How a failed request is made again."""

    BACK_OFF = "back_off"
    """After a pause that grows with every try."""
    HOLD = "hold"
    """When the provider says, or after a long pause."""
    NEVER = "never"
    """It would fail again; somebody must change something first."""


class Handling(msgspec.Struct, frozen=True):
    """How requests are made again, and the reason of the run that stops when they are not."""

    retry: Retry
    reason: str

    @property
    def stop(self) -> str:
        """The reason for which the step stops its whole run; empty if it only fails."""
        found = reasons.REASONS[self.reason]
        return self.reason if found.status is reasons.FAILED and not found.ends_branch else ""


HANDLING: Mapping[FailureKind, Handling] = {
    FailureKind.TRANSIENT: Handling(Retry.BACK_OFF, reasons.STEP_FAILED),
    FailureKind.CUT: Handling(Retry.BACK_OFF, reasons.STEP_FAILED),
    FailureKind.EMPTY: Handling(Retry.BACK_OFF, reasons.STEP_FAILED),
    FailureKind.RATE_LIMIT: Handling(Retry.HOLD, reasons.RATE_LIMIT),
    FailureKind.AUTH: Handling(Retry.NEVER, reasons.PROVIDER_AUTH),
    FailureKind.CREDIT: Handling(Retry.NEVER, reasons.PROVIDER_CREDIT),
    FailureKind.FORBIDDEN: Handling(Retry.NEVER, reasons.PROVIDER_FORBIDDEN),
    FailureKind.REQUEST: Handling(Retry.NEVER, reasons.PROVIDER_REQUEST),
    # Unless the conversation can be shortened.
    FailureKind.TOO_LONG: Handling(Retry.NEVER, reasons.STEP_FAILED),
}


class Pauses(msgspec.Struct, frozen=True):
    """How many tries one request gets, and how long the pauses between them are."""

    tries_max: int
    delay_s_first: float
    delay_s_max: float


BACKING_OFF = Pauses(tries_max=5, delay_s_first=1.0, delay_s_max=60.0)
HOLDING = Pauses(tries_max=20, delay_s_first=15.0, delay_s_max=900.0)
ASKED_S_MAX = 86_400.0
"""A provider that asks for more than a day is asked again after one."""


class TryAgain(msgspec.Struct, frozen=True):
    """Make the request again at this time."""

    at_us: int


class GiveUp(msgspec.Struct, frozen=True):
    """Stop; `reason` is the run's, if nothing else handles it."""

    reason: str


def tries_of(failure: Failure, failures: Iterable[str]) -> int:
    """How many of the recorded failures of a request, this one included, are answered as this one is.

    They are the kinds of all its failures so far. A provider that asked to wait has not failed, so that
    those do not count with the others.
    """
    alike = {kind.value for kind, handling in HANDLING.items() if handling.retry is _retry(failure)}
    return max(1, sum(kind in alike for kind in failures))


def _retry(failure: Failure) -> Retry:
    return HANDLING[failure.kind].retry


def after_failure(failure: Failure, *, tries: int, now_us: int, roll: float) -> TryAgain | GiveUp:
    """What to do after `tries` failed tries of one request (see `tries_of`); `roll` is in [0, 1)."""
    handling = HANDLING[failure.kind]
    if handling.retry is Retry.NEVER:
        return GiveUp(handling.reason)
    pauses = HOLDING if handling.retry is Retry.HOLD else BACKING_OFF
    if tries >= pauses.tries_max:
        return GiveUp(handling.reason)
    wait_s = pause_s(pauses, tries=tries, roll=roll)
    if failure.retry_at_us is not None:
        # A little later than asked and each at another moment: all who wait were told the same instant.
        asked_s = (failure.retry_at_us - now_us) / 1_000_000 + roll * pauses.delay_s_first
        wait_s = min(max(asked_s, 0.0), ASKED_S_MAX)
    return TryAgain(now_us + round(wait_s * 1_000_000))


def pause_s(pauses: Pauses, *, tries: int, roll: float) -> float:
    """The pause after `tries` tries: doubled each time, and between half of that and all of it by chance."""
    whole_s: float = min(pauses.delay_s_first * 2.0 ** min(tries - 1, 32), pauses.delay_s_max)
    return whole_s * (0.5 + roll / 2)


class Model(Protocol):
    """Answers requests, each once: it never retries."""

    def stream(
        self, request: ModelRequest, *, idempotency_key: str | None = None
    ) -> AsyncGenerator[Streamed, None]:
        """The pieces of the answer as they come, the last one Finished; raises ModelFailed.

        Nothing is sent before the first piece is asked for. Close the generator to stop early
        (`async with aclosing(model.stream(request)) as pieces`): the connection is dropped.
        """
        ...

    async def close(self) -> None:
        """Give back what it holds; it may be used again."""
        ...
