"""Calls: model requests, tool calls and functions inside a step. A call that was answered is never repeated.

A call is `(step, call, try)`. `call` is `m3` for the third model request of a step, `m3.t1` for the first
tool call of its answer, or a key that the handler chose. `try` counts every start of that call in the life of
its step, so the three together never recur.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from onward.errors import InvalidInput
from onward.model.events import Event
from onward.model.ids import idempotency_key
from onward.model.values import Count, Instant, Number

CALL_KEY_CHARACTERS_MAX = 200
CALL_BYTES_MAX = 64 * 1024 * 1024
"""Of one answer, as it is stored."""
POSITIONAL = re.compile(r"m[0-9]+(\.t[0-9]+)*(\.ask)?")
"""The calls of an agent, named by their place in its conversation; `.ask` asks whether one may be made."""

TOOL_USE = re.compile(r"(.*/)?m[0-9]+(\.t[0-9]+)+")
"""Those of them that are uses of tools; an agent in a flow has its own key before them: `agent#2/m3.t1`."""


class CallKind(StrEnum):
    """What a call does."""

    FUNCTION = "function"
    STEP = "step"
    """A step of a flow."""
    AGENT = "agent"
    """An agent of a flow, whose own calls have keys below that of this one."""
    MODEL = "model"
    PROGRAM = "program"
    """One turn of a program that works as an agent."""
    TOOL = "tool"
    EFFECT = "effect"
    GATE = "gate"
    TIMER = "timer"
    """A flow sleeps."""
    RUN = "run"
    """A flow runs a graph as a run of its own. `KEY/start` names that run, before it exists."""


STARTED = "/start"
"""How the key ends of the call that names the run of another call."""


class CallStatus(StrEnum):
    """How a call ended: with an answer, which is remembered, or with an error."""

    OK = "ok"
    ERROR = "error"


class _Value(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A part of an event."""


class Usage(_Value, frozen=True, kw_only=True):
    """The tokens of a request: `reasoning` is part of `output`, `cached` and `cache_write` of `input`."""

    input: Number = 0
    output: Number = 0
    cached: Number = 0
    reasoning: Number = 0
    cache_write: Number = 0

    @property
    def tokens(self) -> int:
        """What counts against a limit."""
        return self.input + self.output


class Reserved(_Value, frozen=True, kw_only=True):
    """What a call may cost at most, reserved in each of these scopes before it begins.

    If its price is not known (`is_priced`), it may not begin in a scope with a limit on cost.
    """

    scopes: tuple[str, ...]
    tokens: Number = 0
    cost_micro: Number = 0
    calls: Number = 1
    is_priced: bool = True


class Streamed(_Value, frozen=True, kw_only=True):
    """The message that a call's text is stored in while it grows, and the chat that shows it."""

    chat: str
    message: str


class CallStarted(Event, frozen=True, kw_only=True):
    """A call begins. It is written before a call that reserves, streams or must not be repeated.

    `definition` is the hash of what an agent is: its instruction, model and tools. `thread` is the end of the
    conversation that it asks with; `nodes` are messages of it on their way to the store, by hash.
    `shortened_to` is the ceiling in tokens that a limit left for its answer; 0 if none lowered it. `about` is
    what it is called with, shortened. `steering` says how many of the waiting instructions are in its
    conversation from now on. `inputs` is the hash of what a flow calls it with, and `patches` are the changes
    to the flow's code that it came by.
    """

    VERSION: ClassVar[int] = 3
    BESIDE: ClassVar[frozenset[str]] = frozenset({"nodes"})

    step: str
    attempt: Count
    call: str
    number: Count = msgspec.field(name="try")
    type: str = CallKind.FUNCTION.value
    name: str = ""
    definition: str = ""
    repeatable: bool = True
    reserved: Reserved | None = None
    streamed: Streamed | None = None
    model: str = ""
    thread: str = ""
    shortened_to: Number = 0
    nodes: dict[str, bytes] = msgspec.field(default_factory=dict)
    about: str = ""
    steering: Count = 0
    inputs: str = ""
    patches: tuple[str, ...] = ()


class CallFinished(Event, frozen=True, kw_only=True):
    """A call has an answer, or ended with an error.

    A large answer is stored by its hash (`value_blob`), and read when it is asked for. `content` is an answer
    in bytes on its way to the store. `by` is the person who said what the answer was, or who answered the
    question that the call asked. `thread` is the end of
    the conversation with this answer in it, and `nodes` are messages of it on their way to the store.
    `said` is the hash of what its message says, if it has one and all of it is stored.
    `is_cost_unknown`: the provider may charge for it and did not say what, so it is charged what it had
    reserved. Without this, an error without `usage` costs nothing. `about` is what it was called with,
    shortened. `failure` is how the service failed that was asked, in a word: the tries of a call are counted
    by it; of an agent of a flow it says whether its answers still count. `note` is what is odd about an
    answer that counts, such as a usage that cannot be read. `inputs` and `patches` are those of its start.
    `retry_at_us` is when a flow makes a call again that ended with an error; without it, that is its end.
    """

    VERSION: ClassVar[int] = 2
    BESIDE: ClassVar[frozenset[str]] = frozenset({"content", "nodes"})

    step: str
    attempt: Count
    call: str
    number: Count = msgspec.field(name="try")
    status: CallStatus
    type: str = CallKind.FUNCTION.value
    name: str = ""
    value: Any = None
    value_blob: str = ""
    content: bytes | None = None
    is_bytes: bool = False
    error: str = ""
    usage: Usage | None = None
    cost_micro: Number | None = None
    model: str = ""
    request_id: str = ""
    duration_us: Number = 0
    thread: str = ""
    nodes: dict[str, bytes] = msgspec.field(default_factory=dict)
    by: str = ""
    is_cost_unknown: bool = False
    said: str = ""
    about: str = ""
    failure: str = ""
    note: str = ""
    inputs: str = ""
    patches: tuple[str, ...] = ()
    retry_at_us: Instant | None = None


class CallLost(Event, frozen=True, kw_only=True):
    """A call will never be answered: its attempt, its holder or its run ended first.

    `is_done`: its function returned, and `why` says why that cannot be stored.
    """

    step: str
    call: str
    number: Count = msgspec.field(name="try")
    why: str = ""
    is_done: bool = False


class LimitHit(_Value, frozen=True, kw_only=True):
    """The limit that a call did not fit into: how much is spent and reserved there, and what it wanted."""

    scope: str
    measure: str
    limit: Number
    spent: Number
    reserved: Number
    wanted: Number


class AttemptHeld(Event, frozen=True, kw_only=True):
    """An attempt stopped between two calls, and continues later with their answers. It spends no retry.

    `reason` is `limit`, `rate_limit`, `gate`, `wait` or `child` (of a flow) or `pause`; `until_us` is when it
    can continue by itself. `limit` is the one that stops it, if one does. `gates` are those whose answers it
    waits for, and `runs` the runs whose ends: it continues with the first. With `child` all of these have
    stopped, and only a person continues them.
    """

    step: str
    attempt: Count
    reason: str
    detail: str = ""
    until_us: Instant | None = None
    limit: LimitHit | None = None
    gates: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()


class HoldsLifted(Event, frozen=True, kw_only=True):
    """A limit was raised while the run was running: held attempts try again."""

    why: str
    by: str = ""


class LimitWarned(Event, frozen=True, kw_only=True):
    """A scope of the run's calls has spent 80 % of a limit; reported once, until the limit changes.

    `measure` is tokens, cost (in millionths of a dollar) or calls.
    """

    scope: str
    measure: str
    limit: Number
    spent: Number


def check_call_key(key: object) -> str:
    """A key that a handler may choose for a call."""
    is_text = isinstance(key, str) and 0 < len(key) <= CALL_KEY_CHARACTERS_MAX and key.isprintable()
    if not isinstance(key, str) or not is_text:
        told = str(key)[:50]
        raise InvalidInput(
            f"{told!r} cannot be the key of a call; use 1 to {CALL_KEY_CHARACTERS_MAX} printable characters."
        )
    if POSITIONAL.fullmatch(key):
        raise InvalidInput(
            f"{key!r} cannot be the key of a call: such names are reserved for an agent's own calls; choose "
            "another."
        )
    return key


def call_key(run_id: str, step: str, call: str, generation: int) -> str:
    """The idempotency key of a call: the same when a lost call is made again, new for another question."""
    key = f"{idempotency_key(run_id, step)}/{call}"
    return f"{key}~{generation}" if generation and POSITIONAL.fullmatch(call) else key


def gate_of_call(step: str, call: str, generation: int) -> str:
    """The id of the gate that a call of a step opens: another one when an agent asks anew."""
    gate = f"{step}:{call}"
    return f"{gate}~{generation}" if generation and POSITIONAL.fullmatch(call) else gate
