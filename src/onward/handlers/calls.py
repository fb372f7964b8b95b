"""What a step asks of the world while it runs: calls, questions and effects, each recorded in the log.

First the questions that a handler asks a person in the middle of its step, then recorded calls as a handler
makes them (`Recorder` is what the engine provides), and last `RecordedCalls`: what a step's context offers.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from blake3 import blake3

from onward.errors import InvalidInput
from onward.handlers.user_functions import Functions
from onward.model.call import CallKind, LimitHit, Reserved, Usage, check_call_key
from onward.model.chat import ChunkKind, EarlierMessage
from onward.model.context import plain_text
from onward.model.events import RunningCall, StepStarted
from onward.model.gate import Choice, Decision, GateOpened
from onward.model.result import excerpt
from onward.model.run import Gate
from onward.model.stored import check_returns
from onward.model.values import Seconds, Whole
from onward.pipeline.gate import (
    DEFAULT,
    FREEFORM,
    LABEL_CHARACTERS_MAX,
    MULTIPLE_CHOICE,
    NONE,
    QUESTION_TYPES,
    TIMEOUT_RULES,
    YES_AND_NO,
    YES_NO,
    keys_of,
    meant,
)
from onward.redact.redactor import Redactor

if TYPE_CHECKING:
    from onward.handlers.port import Handler, StepContext

TEXT_CHARACTERS_MAX = 10_000
CHOICES_MAX = 50
TIMEOUT = Seconds(0.001)


class StepQuestion(msgspec.Struct, frozen=True):
    """What a call asks a person; `default` is the key of a choice."""

    text: str
    type: str = YES_NO
    choices: tuple[Choice, ...] = ()
    default: str = ""
    on_timeout: str = NONE
    about: str = ""
    timeout_s: float | None = None
    remind_s: float | None = None
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_shown_whole: bool = False
    """Whether all of what it is about is shown, however long: people decide about exactly that."""

    @property
    def hash(self) -> str:
        """The name of what is asked. How long one may take to answer is no part of it."""
        choices = [(choice.key, choice.label) for choice in self.choices]
        asked = (self.text, self.type, choices, self.default, self.on_timeout, self.about)
        return blake3(msgspec.json.encode(asked)).hexdigest()

    def opened(self, gate: str, node: str, now_us: int) -> GateOpened:
        """The event that puts the question to people."""
        return GateOpened(
            gate=gate,
            node=node,
            text=self.text,
            choices=self.choices,
            type=self.type,
            default=self.default,
            deadline_us=None if self.timeout_s is None else now_us + round(self.timeout_s * 1_000_000),
            on_timeout=self.on_timeout,
            remind_us=None if self.remind_s is None else round(self.remind_s * 1_000_000),
            metadata=dict(self.metadata),
            about=self.about if self.is_shown_whole else excerpt(self.about),
            question=self.hash,
        )

    def recorded(self, gate: Gate) -> dict[str, Any]:
        """What a call keeps of the answer; who gave it is kept beside this."""
        assert gate.decided is not None
        return {
            "question": self.hash,
            "choice": gate.decided.key,
            "text": gate.answer,
            "rejected": gate.rejected,
            "expired": gate.expired,
        }

    def decision(self, recorded: Mapping[str, Any], by: str) -> Decision:
        """The answer as the handler gets it: a choice in the words in which it was offered."""
        labels = {choice.key: choice.label for choice in self.choices}
        return Decision(
            choice=labels.get(recorded["choice"], ""),
            text=recorded["text"],
            by=by,
            rejected=recorded["rejected"],
            expired=recorded["expired"],
        )


def step_question(
    key: str,
    text: str,
    *,
    choices: Sequence[str] | None,
    type: str | None,
    default: str,
    on_timeout: str,
    about: str,
    timeout_s: float | None,
    remind_s: float | None,
    metadata: Mapping[str, str] | None,
    is_shown_whole: bool = False,
) -> StepQuestion:
    """The question that these arguments of `ask` make; InvalidInput if nobody could answer it."""
    where = f"the question {key!r}"
    text, about = _text(text, where), plain_text(about, f"what {where} is about")
    if not text.strip():
        raise InvalidInput(f"{where} is empty; write the question.")
    kind = type or (YES_NO if choices is None else MULTIPLE_CHOICE)
    if kind not in QUESTION_TYPES:
        raise InvalidInput(f"the type of {where} is {kind!r}; use one of {', '.join(QUESTION_TYPES)}.")
    offered = _choices(where, kind, choices)
    if on_timeout not in TIMEOUT_RULES:
        rules = ", ".join(TIMEOUT_RULES)
        raise InvalidInput(
            f"on_timeout of {where} is {on_timeout!r}; use one of {rules}, or name a choice with default."
        )
    chosen = _default(where, kind, offered, default)
    for name, seconds in (("timeout_s", timeout_s), ("remind_s", remind_s)):
        if seconds is not None:
            TIMEOUT.check(seconds, f"{name} of {where}")
    return StepQuestion(
        text=text,
        type=kind,
        choices=offered,
        default=chosen,
        on_timeout=DEFAULT if chosen else on_timeout,
        about=about,
        timeout_s=timeout_s,
        remind_s=remind_s,
        metadata={
            plain_text(name, f"a name in the metadata of {where}"): plain_text(
                value, f"{name!r} in the metadata of {where}"
            )
            for name, value in (metadata or {}).items()
        },
        is_shown_whole=is_shown_whole,
    )


def _text(text: str, where: str) -> str:
    text = plain_text(text, where)
    if len(text) > TEXT_CHARACTERS_MAX:
        raise InvalidInput(
            f"{where} has {len(text)} characters; use at most {TEXT_CHARACTERS_MAX}, "
            "and show the rest with about."
        )
    return text


def _choices(where: str, kind: str, labels: Sequence[str] | None) -> tuple[Choice, ...]:
    """One choice per label, each with its own key. Of a yes and a no, the yes comes first."""
    if kind == FREEFORM:
        if labels:
            raise InvalidInput(f"{where} asks for text, so it has no choices; leave them out.")
        return ()
    if isinstance(labels, str) or (labels is None and kind == MULTIPLE_CHOICE):
        raise InvalidInput(f"{where} needs a list of choices, such as choices=['Charge', 'Cancel'].")
    given = YES_AND_NO[kind] if labels is None else labels
    names = [plain_text(one, f"a choice of {where}") for one in given]
    if kind in YES_AND_NO and len(names) != 2:
        raise InvalidInput(f"{where} is of type {kind}, so it needs two choices: first yes, then no.")
    if not 1 <= len(names) <= CHOICES_MAX:
        raise InvalidInput(f"{where} has {len(names)} choices; offer 1 to {CHOICES_MAX}.")
    for name in names:
        if not name.strip() or len(name) > LABEL_CHARACTERS_MAX:
            raise InvalidInput(
                f"a choice of {where} is empty or too long; use 1 to {LABEL_CHARACTERS_MAX} characters."
            )
    if len(set(names)) < len(names):
        raise InvalidInput(f"{where} offers the same choice twice; make every choice different.")
    keys = keys_of(names)
    return tuple(Choice(key=key, label=name, to="") for key, name in zip(keys, names, strict=True))


def _default(where: str, kind: str, choices: Sequence[Choice], default: str) -> str:
    """The key of the choice that counts when nobody answers in time; empty if there is none."""
    if not default:
        return ""
    found = meant(kind, choices, default)
    if found is None:
        names = ", ".join(choice.label for choice in choices) or "none, it asks for text"
        raise InvalidInput(f"the default of {where} is {default!r}; its choices are {names}.")
    return found.key


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


IN_MEMORY_US = 5_000_000
"""A flow does not give its process up for a wait that is shorter than this."""


class CallAnswer(msgspec.Struct, frozen=True):
    """What a model or a tool answered, with what is recorded beside its value.

    `note`: why nobody knows what it cost; it is charged what it had reserved.
    """

    value: Any
    usage: Usage | None = None
    cost_micro: int | None = None
    model: str = ""
    request_id: str = ""
    thread: str = ""
    nodes: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    note: str = ""


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
    inputs: str = ""
    """The hash of what a flow calls it with."""
    patches: tuple[str, ...] = ()
    """The changes to the flow's code that it came by."""

    @property
    def records_start(self) -> bool:
        """Whether the call is on disk before it begins."""
        return not self.repeatable or bool(self.reserved or self.chat)

    def check(self, key: str, function: Callable[..., Any]) -> CallOptions:
        """The options themselves; InvalidInput if they cannot be kept."""
        RETRIES.check(self.retries, f"retries of call {key!r}")
        if not self.repeatable:
            check_returns(function, f"the function of call {key!r}")
        if self.time_limit_s is None:
            return self
        TIME_LIMIT.check(self.time_limit_s, f"time_limit_s of call {key!r}")
        if not inspect.iscoroutinefunction(function):
            raise InvalidInput(
                f"call {key!r} has a time limit, and its function is not async: a thread cannot be stopped. "
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


class PastCall(msgspec.Struct, gc=False):
    """A call of a flow as the log has it: its answer, or that it has none yet.

    `began` is its first event, which `run_id` wrote: another run, in a fork. `seq` is its last. `is_once`: it
    must not be repeated. `retry_at_us` is when it is made again, if it failed and has tries left.
    """

    key: str
    run_id: str
    began: int
    seq: int
    at_us: int
    is_answered: bool = False
    type: str = ""
    inputs: str = ""
    about: str = ""
    value: Any = None
    value_blob: str = ""
    is_bytes: bool = False
    error: str = ""
    by: str = ""
    patches: tuple[str, ...] = ()
    is_once: bool = False
    retry_at_us: int = 0


class Answered(msgspec.Struct, frozen=True):
    """What a call of a flow came to, as it was recorded, and when: its value, or what it raised.

    `retry_at_us` is when it is to be made again, if it has tries left and the wait is long.
    """

    value: Any
    at_us: int
    error: str = ""
    cause: Exception | None = None
    retry_at_us: int = 0


class AgentCalls(msgspec.Struct, frozen=True):
    """The calls of an agent in a flow. Their keys are below that of the agent, `key`: `agent#2/m3.t1`.

    `under_way` is entered by each while it is made, and refuses one that the flow makes no more; `asking` by
    each that asks a person, and `parked` inside it while that has not answered: with its key, and whether a
    use of a tool asks. `inputs` and `patches` are those of the agent.
    """

    key: str
    inputs: str
    patches: tuple[str, ...]
    under_way: Callable[[], AbstractContextManager[None]]
    asking: Callable[[], AbstractContextManager[None]]
    parked: Callable[[str, bool], AbstractContextManager[None]]


class ChildHooks(Protocol):
    """What a flow does around a run that one of its calls waits for."""

    @property
    def is_ending(self) -> bool:
        """Whether the flow makes no more calls."""
        ...

    def under_way(self) -> AbstractContextManager[None]:
        """The run is executed here inside; the flow does not end before it has stopped."""
        ...

    def parked(
        self, run: str, says: str, until_us: int | None, *, is_stopped: bool
    ) -> AbstractAsyncContextManager[None]:
        """The branch waits inside for the run, which is not executed here. `is_stopped`: for a person."""
        ...


class ChildAsked(msgspec.Struct, frozen=True):
    """A run that a call of a flow waits for: of a pipeline (a path, its text or a registered name).

    `started` is the run that the log names, if it names one. `fails`: the call has failed before, and is made
    again. `inputs` and `patches` are those of the call.
    """

    key: str
    pipeline: str
    values: Mapping[str, Any]
    inputs: str
    patches: tuple[str, ...]
    started: str
    fails: bool
    hooks: ChildHooks


class ChildEnded(msgspec.Struct, frozen=True):
    """How such a run ended; `failure` says why it did not complete."""

    run_id: str
    context: Mapping[str, Any] = msgspec.field(default_factory=dict)
    failure: str = ""


class Recorder(Protocol):
    """Makes the calls of one attempt and records their answers."""

    async def child(self, step: StepContext, asked: ChildAsked) -> ChildEnded:
        """Create a run for a call of a flow, or find it, and execute it or wait for it to its end."""
        ...

    def of_agent(self, calls: AgentCalls) -> Recorder:
        """What records the calls of an agent in a flow, which are answered by their keys."""
        ...

    async def history(self) -> Sequence[PastCall]:
        """The calls that earlier attempts of a flow made, in the order in which they began."""
        ...

    async def stored(self, past: PastCall) -> Any:
        """What a call answered that the log has."""
        ...

    async def answer(
        self, key: str, function: Callable[..., Any], arguments: Sequence[Any], options: CallOptions
    ) -> Answered:
        """Make a call that a flow's history does not answer. What its function raises is an answer, too."""
        ...

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

    async def failures(self, call: str) -> tuple[str, ...]:
        """How the service failed in the tries of a call, in words; also in earlier attempts of the step."""
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

    def now_us(self) -> int:
        """The time, which is never before the claim of the run."""
        ...

    async def put(self, key: str, question: StepQuestion, patches: tuple[str, ...]) -> None:
        """Put a flow's question to people, if it was not yet; the flow goes on meanwhile."""
        ...

    async def taken(self, key: str, question: StepQuestion, patches: tuple[str, ...]) -> Answered | None:
        """What a person answered to a flow's question, recorded as its call's; None until somebody has."""
        ...

    async def rest(self, until_us: int | None, *, looks: bool = False) -> None:
        """Wait until then, no longer than the attempt; `looks`: or until others may have written."""
        ...

    def park(
        self,
        detail: str,
        until_us: int | None,
        asked: Sequence[str],
        runs: Sequence[str] = (),
        *,
        is_stopped: bool = False,
    ) -> None:
        """End the attempt, because every branch of the flow waits: for a time, for answers, or for runs.

        `is_stopped`: all of these have stopped, and only a person continues them.
        """
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

    def still_running(self) -> tuple[RunningCall, ...]:
        """The calls of a flow whose functions outlived the attempt."""
        ...

    def close(self) -> None:
        """The attempt is over."""
        ...


class AttemptLog(Protocol):
    """The log of the run, as one attempt uses it."""

    async def recall(self, mode: str) -> str:
        """The summary of the run so far, under the fidelity of the step or another."""
        ...

    async def remember(self, count: int) -> tuple[EarlierMessage, ...]:
        """The last messages of the run's chat before the run, at most `count`; oldest first."""
        ...

    def open_recorder(self, functions: Functions) -> Recorder:
        """What records the calls of the attempt, in which these functions run."""
        ...

    @property
    def agent(self) -> Handler | None:
        """What serves agent steps here; None if nothing does."""
        ...


class _NoLog:
    """The log of a step that was created by hand: it has no history, and records nothing."""

    async def recall(self, mode: str) -> str:
        return ""

    async def remember(self, count: int) -> tuple[EarlierMessage, ...]:
        return ()

    def open_recorder(self, functions: Functions) -> Recorder:
        raise InvalidInput("this step was not created by Onward, so it has no log to record calls in.")

    @property
    def agent(self) -> None:
        return None


NO_LOG = _NoLog()
_creating = threading.Lock()


class RecordedCalls:
    """The part of a StepContext that records calls."""

    __slots__ = ("_log", "_started", "functions", "recorded", "redactor")
    _started: StepStarted
    _log: AttemptLog
    functions: Functions
    recorded: Recorder | None
    redactor: Redactor

    async def call(
        self,
        key: str,
        function: Callable[..., Any],
        *arguments: Any,
        repeatable: bool = True,
        time_limit_s: float | None = None,
        retries: int = 0,
    ) -> Any:
        """What `function(*arguments)` returns; once it has returned, it is never called again for this key.

        The result, bytes or a JSON value, is recorded before it is returned; a resumed step gets it from the
        log. An exception is raised here, and the call is repeated when the step runs again. With
        `repeatable=False` the start is recorded first: if the process dies in the middle, or what the
        function returned cannot be stored, the step is in doubt and a person decides. `retries` more tries
        follow after an exception. Calls may run at the same time, and inside each other if the outer one is
        repeatable.
        """
        options = CallOptions(repeatable=repeatable, time_limit_s=time_limit_s, retries=retries)
        options.check(check_call_key(key), function)
        self.functions.check_open()
        return await self.recorder.call(key, function, arguments, options)

    def call_sync(
        self,
        key: str,
        function: Callable[..., Any],
        *arguments: Any,
        repeatable: bool = True,
        time_limit_s: float | None = None,
        retries: int = 0,
    ) -> Any:
        """`call` for a plain function, which runs in a thread and cannot await."""
        self.functions.check_open()
        call = self.call(
            key, function, *arguments, repeatable=repeatable, time_limit_s=time_limit_s, retries=retries
        )
        return self.recorder.call_from_thread(call)

    async def ask(
        self,
        key: str,
        question: str,
        *,
        choices: Sequence[str] | None = None,
        type: str | None = None,
        about: str = "",
        default: str = "",
        timeout_s: float | None = None,
        on_timeout: str = "none",
        remind_s: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Decision:
        """Ask a person, and return the answer: which choice, what words, and who.

        The question becomes a gate. The attempt ends here, the run waits as long as it takes and occupies no
        process; when the gate is decided, the handler runs again from the start, the results of its calls are
        read from the log, and `ask` returns. A no is an answer, too: it routes nothing. Without `choices` the
        answer is yes or no; `type="freeform"` asks for words. After `timeout_s` the choice `default` counts,
        or a no with `on_timeout="reject"`. What is asked must be the same whenever the step runs: an answer
        never counts for another question.
        """
        asked = step_question(
            check_call_key(key),
            question,
            choices=choices,
            type=type,
            default=default,
            on_timeout=on_timeout,
            about=about,
            timeout_s=timeout_s,
            remind_s=remind_s,
            metadata=metadata,
        )
        if any(self.redactor.redact(choice.label) != choice.label for choice in asked.choices):
            raise InvalidInput(f"a choice of the question {key!r} contains a secret; use other words.")
        self.functions.check_open()
        return await self.recorder.ask(key, asked)

    def ask_sync(
        self,
        key: str,
        question: str,
        *,
        choices: Sequence[str] | None = None,
        type: str | None = None,
        about: str = "",
        default: str = "",
        timeout_s: float | None = None,
        on_timeout: str = "none",
        remind_s: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Decision:
        """`ask` for a plain function, which runs in a thread and cannot await."""
        self.functions.check_open()
        asking = self.ask(
            key,
            question,
            choices=choices,
            type=type,
            about=about,
            default=default,
            timeout_s=timeout_s,
            on_timeout=on_timeout,
            remind_s=remind_s,
            metadata=metadata,
        )
        answer: Decision = self.recorder.call_from_thread(asking)
        return answer

    def call_key(self, key: str) -> str:
        """The idempotency key of a call: the same on every attempt, for the service that it calls."""
        return self.recorder.key_of(check_call_key(key))

    @property
    def recorder(self) -> Recorder:
        """Records the calls of the attempt."""
        with _creating:  # a plain function may make its first calls from several threads
            if self.recorded is None:
                self.recorded = self._log.open_recorder(self.functions)
        return self.recorded

    async def effect(self, key: str, function: Callable[[], Any], *, only_success: bool = False) -> Any:
        """The result of `function`, which is called at most once for this step and key, over all attempts.

        A call that must not be repeated (see `call`), and whose exception is its answer too, unless
        `only_success`: then the effect runs again when the step does.
        """
        self.functions.check_open()
        return await self.recorder.effect(key, function, only_success=only_success)
