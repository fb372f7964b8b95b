"""What a message does to the runs of its chat: a pure function of both."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from onward.model.chat import Wish
from onward.model.run import Gate, RunStatus
from onward.pipeline.gate import FREEFORM, meant
from onward.pipeline.vocabulary import ON_MESSAGE_RULES, WHILE_RUNNING_RULES

AUTO, ASK, NEVER = ON_MESSAGE_RULES
QUEUE, STEER = WHILE_RUNNING_RULES
STOPPED = (RunStatus.PAUSED, RunStatus.INTERRUPTED)


class ChatRun(msgspec.Struct, frozen=True):
    """A run of a chat that has not ended, in short. One whose process died is interrupted.

    `head` is the last event of its log that was seen. `missing` are the steps without which a resume is not
    worth it. `is_leaving`: its process was asked to cancel it.
    """

    id: str
    status: RunStatus
    head: int
    recoverable: bool = True
    is_dismissed: bool = False
    is_leaving: bool = False
    on_message: str = AUTO
    while_running: str = QUEUE
    gates: tuple[Gate, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def is_going(self) -> bool:
        """Whether it continues without a resume."""
        return self.status in (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING)


class Said(msgspec.Struct, frozen=True):
    """A message: what it says, and what is said about it.

    `has_waited`: it was queued behind a run, so it was said before that run stopped. `instead_of` is the run
    that it starts anew, because that was not worth a resume.
    """

    text: str
    wish: Wish = Wish.NONE
    has_waited: bool = False
    instead_of: str = ""


class StartRun(msgspec.Struct, frozen=True):
    """Start a run: nothing is in its way."""


class ResumeRun(msgspec.Struct, frozen=True):
    """Continue a stopped run."""

    run: ChatRun


class StartAnew(msgspec.Struct, frozen=True):
    """Start the work of a stopped run from its beginning, because a step that a resume needs is missing."""

    run: ChatRun


class Supersede(msgspec.Struct, frozen=True):
    """Cancel a run, and look again: a new one takes its place."""

    run: ChatRun


class Steer(msgspec.Struct, frozen=True):
    """Give the message to the agents of a run under way."""

    run: ChatRun


class Wait(msgspec.Struct, frozen=True):
    """Wait until a run has ended or is dismissed."""

    run: ChatRun


class AnswerGate(msgspec.Struct, frozen=True):
    """Answer the question that a run waits at."""

    run: ChatRun
    gate: Gate


class ShowGate(msgspec.Struct, frozen=True):
    """Reply with the question that a run waits at."""

    run: ChatRun


class AskFirst(msgspec.Struct, frozen=True):
    """Ask whether to continue a stopped run or to start anew."""

    run: ChatRun


class Nothing(msgspec.Struct, frozen=True):
    """Do nothing: the run that was to be continued is under way."""

    run: ChatRun


Action = (
    StartRun | ResumeRun | StartAnew | Supersede | Steer | Wait | AnswerGate | ShowGate | AskFirst | Nothing
)


def decide(runs: Sequence[ChatRun], said: Said) -> Action:
    """What a message does. `runs` are those of its chat that have not completed or been cancelled, newest
    first."""
    offered = [run for run in runs if not run.is_dismissed]
    going = next((run for run in offered if run.is_going), None)
    if said.wish is Wish.FRESH or said.instead_of:
        return _make_room(offered, said)
    if going is not None:
        return _under_way(going, said)
    stopped = None if said.has_waited else _stopped(offered, said)
    if stopped is None:
        return StartRun()
    how = AUTO if said.wish is Wish.RESUME else stopped.on_message
    if how == NEVER:
        return StartRun()
    if how == ASK:
        return AskFirst(stopped)
    return StartAnew(stopped) if stopped.missing else ResumeRun(stopped)


def _make_room(offered: Sequence[ChatRun], said: Said) -> Action:
    """Cancel what would go on or be resumed, one after the other; start when nothing is left.

    A message that replaces one run, or has waited for those that it cancelled, cancels no others: they were
    started by messages before it.
    """
    replaced = [run for run in offered if run.is_going or run.status in STOPPED]
    if said.instead_of:
        replaced = [run for run in replaced if run.id == said.instead_of]
    elif said.has_waited:
        replaced = []
    for run in replaced:
        if not run.is_leaving:
            return Supersede(run)
    going = next((run for run in offered if run.is_going), None)
    return StartRun() if going is None else Wait(going)


def _under_way(run: ChatRun, said: Said) -> Action:
    """A wish to continue decides nothing, and what was said before the run began is not about it."""
    if said.has_waited:
        return Wait(run)
    is_resume = said.wish is Wish.RESUME
    found = None if is_resume else _answered(run, said.text)
    if found is not None:
        return AnswerGate(run, found)
    if run.status is RunStatus.WAITING:
        return ShowGate(run)
    if is_resume:
        return Nothing(run)
    can_steer = run.while_running == STEER and not run.is_leaving
    return Steer(run) if can_steer else Wait(run)


def _answered(run: ChatRun, text: str) -> Gate | None:
    """The only open gate, if the text is an answer to it. Words of its own only a gate takes that asks for
    them."""
    if len(run.gates) != 1:
        return None
    gate = run.gates[0]
    is_words = gate.type == FREEFORM and run.status is RunStatus.WAITING
    return gate if is_words or meant(gate.type, gate.choices, text) is not None else None


def _stopped(offered: Sequence[ChatRun], said: Said) -> ChatRun | None:
    """The newest run that a message continues. One that failed is continued only if that is said."""
    for run in offered:
        if run.status in STOPPED and run.recoverable:
            return run
        if run.status is RunStatus.FAILED and run.recoverable and said.wish is Wish.RESUME:
            return run
    return None
