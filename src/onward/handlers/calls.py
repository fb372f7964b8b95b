"""Recorded calls as a handler makes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from onward.errors import InvalidInput
from onward.handlers.questions import StepQuestion
from onward.model.call import CallKind, LimitHit, Reserved, Usage
from onward.model.chat import ChunkKind
from onward.model.gate import Decision
from onward.model.values import Seconds, Whole

RETRIES = Whole(0, 100)
TIME_LIMIT = Seconds(0.001)


class TextSink(Protocol):
    """A message that grows while its call is under way."""

    def write(self, kind: ChunkKind, text: str) -> None:
        """Add text; it is stored soon."""
        ...

    async def ready(self) -> None:
        """Wait while much of it is not stored yet."""
        ...


class CallAnswer(msgspec.Struct, frozen=True):
    """What a model or a tool answered, with what is recorded beside its value."""

    value: Any
    usage: Usage | None = None
    cost_micro: int | None = None
    model: str = ""
    request_id: str = ""
    thread: str = ""
    nodes: Mapping[str, bytes] = msgspec.field(default_factory=dict)


class CallOptions(msgspec.Struct, frozen=True):
    """How a call is made and recorded."""

    repeatable: bool = True
    time_limit_s: float | None = None
    retries: int = 0
    type: str = CallKind.FUNCTION.value
    name: str = ""
    model: str = ""
    definition: str = ""
    thread: str = ""
    nodes: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    reserved: Reserved | None = None
    shortened_to: int = 0
    """The ceiling in tokens that a limit left for the answer; 0 if none lowered it."""
    about: str = ""
    """What it is called with, in one line for people."""
    steering: tuple[str, ...] = ()
    """The waiting instructions that are in its conversation from now on."""
    chat: str = ""
    """The chat in which its text is stored while it grows; its function gets the message to write to."""

    @property
    def records_start(self) -> bool:
        """Whether the call is on disk before it begins."""
        return not self.repeatable or bool(self.reserved or self.chat)

    def check(self, key: str, function: Callable[..., Any]) -> CallOptions:
        """The options themselves; InvalidInput if they cannot be kept."""
        RETRIES.check(self.retries, f"retries of call {key!r}")
        if self.time_limit_s is None:
            return self
        TIME_LIMIT.check(self.time_limit_s, f"time_limit_s of call {key!r}")
        if not inspect.iscoroutinefunction(function):
            raise InvalidInput(
                f"call {key!r} has a time limit, and its function is plain: a thread cannot be ended. "
                "Write `async def`, or give the step a timeout."
            )
        return self


class StepPast(msgspec.Struct, frozen=True):
    """What an agent's step was when it was first asked: its definition and model, and its conversation.

    Without a definition but with a conversation, the step is tried anew after its tools did something that
    must not be repeated: it continues the conversation. `failure` is why its last attempt ended.
    """

    definition: str = ""
    model: str = ""
    thread: str = ""
    failure: str = ""


class Recorder(Protocol):
    """Makes the calls of one attempt and records their answers."""

    async def has(self, call: str) -> bool:
        """Whether a call has been answered."""
        ...

    async def past(self) -> StepPast:
        """What earlier attempts of the step asked, if their answers still count."""
        ...

    async def dropped(self) -> dict[str, Any]:
        """What the tools of the last round answered, by call, if the step is tried anew since."""
        ...

    def instructions(self) -> tuple[str, ...]:
        """What people have told the run's agents and no step has taken yet."""
        ...

    async def content(self, hash: str) -> bytes | None:
        """Stored content, such as a message of a conversation."""
        ...

    async def partial(self, call: str) -> str:
        """The text that came of a call before its last tries failed or were lost; empty if none did."""
        ...

    def thread_of(self, key: str) -> str:
        """The end of the conversation with this key, which earlier steps had; empty if there is none."""
        ...

    async def hold(
        self, reason: str, detail: str, until_us: int | None = None, limit: LimitHit | None = None
    ) -> None:
        """End the attempt between two calls; the run continues it later. This never returns."""
        ...

    async def wait_s(self, seconds: float) -> None:
        """Wait before a call is made again; ends early when the attempt does."""
        ...

    def key_of(self, call: str) -> str:
        """The idempotency key of a call."""
        ...

    async def call(
        self, key: str, function: Callable[..., Any], arguments: Sequence[Any], options: CallOptions
    ) -> Any:
        """What the function answered: now, or when this call was made before."""
        ...

    async def ask(self, key: str, question: StepQuestion) -> Decision:
        """What a person answered. Until somebody has, the attempt ends here and the run waits."""
        ...

    async def effect(self, key: str, function: Callable[[], Any], *, only_success: bool = False) -> Any:
        """The same for an effect: what it raised is an answer, too, unless `only_success`."""
        ...

    def call_from_thread(self, call: Coroutine[Any, Any, Any]) -> Any:
        """The same for a plain function, which runs in a thread."""
        ...

    async def is_held(self) -> bool:
        """Whether the attempt was ended between two calls, and its result does not count."""
        ...

    def close(self) -> None:
        """The attempt is over."""
        ...
