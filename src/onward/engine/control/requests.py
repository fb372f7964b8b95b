"""What people and programs ask of the engine, as values; and interviewers, who answer gates.

An interviewer answers the gates of a run that is in the foreground, and of the runs that it manages.
`Preview` is what a resume would do.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from onward.engine.log import NO_TERMS, RequestTerms
from onward.errors import InvalidInput
from onward.machine.decide.resume import ResumeRequest
from onward.machine.plan.action import Action
from onward.model.events import Event, Managed
from onward.model.gate import Answer
from onward.model.result import Left
from onward.model.run import Gate, Run, Simulation
from onward.pipeline.gate import FREEFORM, approving

_logger = logging.getLogger("onward")
Said = Answer | str | bool | None


class Interviewer(Protocol):
    """Answers questions, or leaves them open."""

    @property
    def name(self) -> str:
        """Who the log says answered."""
        ...

    async def ask(self, run: Run, gate: Gate) -> Said:
        """An `Answer`; or in short a choice or words, True or False for a verdict, None to skip."""
        ...


@runtime_checkable
class Informed(Protocol):
    """An interviewer that takes messages between questions."""

    async def inform(self, message: str, stage: str) -> None:
        """Pass on a message about a node of the pipeline."""
        ...


@runtime_checkable
class AsksSeveral(Protocol):
    """An interviewer that takes several questions at once, as for one message with all of them."""

    async def ask_multiple(self, run: Run, gates: Sequence[Gate]) -> Sequence[Said]:
        """What `ask` returns, for each of the gates in their order; those left out are asked again."""
        ...


async def answers_of(interviewer: Interviewer, run: Run, gates: Sequence[Gate]) -> list[Answer]:
    """Answers to the first of these gates: to as many as the interviewer takes at once, to one at least."""
    if len(gates) == 1 or not isinstance(interviewer, AsksSeveral):
        return [Answer.of(await interviewer.ask(run, gates[0]))]
    said: object = await interviewer.ask_multiple(run, gates)
    if not isinstance(said, list | tuple) or len(said) > len(gates):
        raise InvalidInput(
            f"{interviewer.name} received {len(gates)} questions; ask_multiple must return a list with at "
            "most one answer per question, and None for a question that stays open."
        )
    return [Answer.of(one) for one in said] or [Answer.skip()]


class AutoApprove:
    """Takes the choice that approves. If none does, takes the default or the first, and logs that.

    Answers a question for text with a note that it was auto-approved.
    """

    name = "auto"

    def __init__(self, tell: Callable[[str], None] = _logger.warning) -> None:
        self._tell = tell

    async def ask(self, run: Run, gate: Gate) -> Answer:
        """The choice that approves, the default, or the first."""
        if gate.type == FREEFORM:
            return Answer(text="auto-approved")
        if approving(gate.type, gate.choices) is not None:
            return Answer.approve()
        if len(gate.choices) == 1:
            return Answer(gate.choices[0].key)
        default = next((choice for choice in gate.choices if choice.key == gate.default), None)
        taken, which = (gate.choices[0], "the first") if default is None else (default, "the default")
        self._tell(f"no choice at {gate.gate} approves; auto takes {which}, {taken.label!r}")
        return Answer(taken.key)


class CallbackInterviewer:
    """Answers with a function of run and gate, which may be async and may return whatever `ask` may."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self._function = name, function

    async def ask(self, run: Run, gate: Gate) -> Answer:
        """What the function returns for this gate."""
        said = self._function(run, gate)
        return Answer.of(await said if inspect.isawaitable(said) else said)


class QueueInterviewer:
    """Gives prepared answers, one per question; when there are no more, questions stay open."""

    def __init__(self, answers: Iterable[Said], *, name: str = "queue") -> None:
        self.name = name
        self._answers = deque(answers)

    async def ask(self, run: Run, gate: Gate) -> Answer:
        """The next prepared answer; without one the question stays open."""
        return Answer.of(self._answers.popleft()) if self._answers else Answer.skip()


class RecordingInterviewer:
    """Lets another interviewer answer, and keeps every question with its answer."""

    def __init__(self, interviewer: Interviewer) -> None:
        self._interviewer = interviewer
        self.recorded: list[tuple[Gate, Answer]] = []

    @property
    def name(self) -> str:
        """The other interviewer's name: the log says that it answered."""
        return self._interviewer.name

    async def ask(self, run: Run, gate: Gate) -> Answer:
        """What the other interviewer answers, which is kept in `recorded`."""
        answer = Answer.of(await self._interviewer.ask(run, gate))
        self.recorded.append((gate, answer))
        return answer

    async def ask_multiple(self, run: Run, gates: Sequence[Gate]) -> Sequence[Said]:
        """What the other interviewer answers to several gates; each is kept in `recorded`."""
        answers = await answers_of(self._interviewer, run, gates)
        self.recorded += zip(gates, answers, strict=False)
        return answers

    async def inform(self, message: str, stage: str) -> None:
        """Pass the message on, if the other interviewer takes messages."""
        if isinstance(self._interviewer, Informed):
            await self._interviewer.inform(message, stage)


class StartRequest(Struct, frozen=True):
    """What a new run is asked to be."""

    inputs: Mapping[str, Any] = {}
    run_id: str | None = None
    simulation: Simulation | None = None
    on_owner_loss: str = "interrupt"
    exclusive_key: str | None = None
    priority: int = 0
    tags: tuple[str, ...] = ()
    wake_at_us: int | None = None
    """When it is due; without it, at once."""
    terms: RequestTerms = NO_TERMS
    managed_by: Managed | None = None
    chat: str | None = None
    """The conversation that the run belongs to; without one, it is its own."""
    project: str | None = None
    """The project whose limits its calls count in."""
    charged_to: str | None = None
    """The run that its calls are charged to, if it is another."""
    workdir: str | None = None
    """Where its commands work, an absolute path; without it, wherever the process that executes it does."""
    workspace: str | None = None
    """A directory in the git repository that the steps change; else what the pipeline says."""
    workspace_mode: str | None = None
    keep_workspace: bool = False
    raises: tuple[tuple[str, str, int], ...] = ()
    """Limits that are raised first: the scope or its kind, the measure and the limit."""
    interviewer: Interviewer | None = None
    """Who answers the gates of runs that this one manages."""


class ForkRequest(msgspec.Struct, frozen=True):
    """Where a run is asked to be forked, and what of it is to be different.

    Without `may_answer`, no value is changed behind a gate that was decided.
    """

    checkpoint: int | None = None
    from_step: str | None = None
    """Instead of a checkpoint: fork before this step, an id, or a node for its last visit."""
    changes: Mapping[str, Any] = msgspec.field(default_factory=dict)
    new_id: str | None = None
    by: str = "user"
    accept_changes: bool = False
    original: bool = False
    may_answer: bool = True
    terms: RequestTerms = NO_TERMS


@dataclass(frozen=True, slots=True)
class Resume(ResumeRequest):
    """A request to continue a stopped run: the decision, and how it is sent.

    `action` decides about a step that stopped: retry, skip, continue or abort; `step` names it if there are
    several. `from_node` starts again at a node. `accept_changes` takes the changed pipeline file, `original`
    the stored source. `take_over` takes the run from a live holder, `wait` waits for it. `run=False` only
    decides: a worker executes the run. `raises` are limits that are raised first: the scope or its kind, the
    measure and the limit.
    """

    original: bool = False
    wait: bool = False
    terms: RequestTerms = NO_TERMS
    interviewer: Interviewer | None = None


class Preview(msgspec.Struct, frozen=True):
    """The run as it stands, what a resume would write at once, and the first thing it would then do."""

    run: Run
    notice: str
    events: Sequence[Event]
    action: Action
    left: Sequence[Left] = ()
    """What the steps in doubt left."""
