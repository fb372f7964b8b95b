"""What a message does to the runs of its chat, and what Onward says about it; pure.

Before a run of a chat starts or is resumed, its limits are checked. In this order: the tokens of the chat,
the cost of the day, the cost of the project. The first that leaves nothing blocks; those that are nearly
spent warn.

The words are for the sender of a message, and for messages of Onward's own.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import msgspec

from onward.machine.decide.calls import doubtful_step
from onward.machine.reasons import is_at_limit, resume_flags
from onward.model.chat import BY_RULES, MessageReading, Wish
from onward.model.ids import called
from onward.model.limits import MEASURES, WARN_PERCENT, day_of, kind_of, shown_amount
from onward.model.run import Gate, Run, RunStatus
from onward.pipeline.gate import FREEFORM, meant
from onward.pipeline.vocabulary import ON_MESSAGE_RULES, WHILE_RUNNING_RULES
from onward.store.port.limits import Scope

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


class SeenMessage(msgspec.Struct, frozen=True):
    """A message: what it says, and what is said about it.

    `has_waited`: it was queued behind a run, so it was said before that run stopped. `instead_of` is the run
    that it starts anew, because that was not worth a resume. `may_answer`: its sender may answer gates.
    """

    text: str
    wish: Wish = Wish.NONE
    has_waited: bool = False
    instead_of: str = ""
    may_answer: bool = True


class StartRun(msgspec.Struct, frozen=True):
    """Start a run: nothing is in its way."""


class ResumeStopped(msgspec.Struct, frozen=True):
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


class AwaitRun(msgspec.Struct, frozen=True):
    """Wait until a run has ended or is dismissed."""

    run: ChatRun


class AnswerAtGate(msgspec.Struct, frozen=True):
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
    StartRun
    | ResumeStopped
    | StartAnew
    | Supersede
    | Steer
    | AwaitRun
    | AnswerAtGate
    | ShowGate
    | AskFirst
    | Nothing
)


def decide(runs: Sequence[ChatRun], said: SeenMessage) -> Action:
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
    return StartAnew(stopped) if stopped.missing else ResumeStopped(stopped)


def _make_room(offered: Sequence[ChatRun], said: SeenMessage) -> Action:
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
    return StartRun() if going is None else AwaitRun(going)


def _under_way(run: ChatRun, said: SeenMessage) -> Action:
    """A wish to continue decides nothing, and what was said before the run began is not about it."""
    if said.has_waited:
        return AwaitRun(run)
    is_resume = said.wish is Wish.RESUME
    found = None if is_resume else _answered(run, said.text)
    if found is not None:
        return AnswerAtGate(run, found) if said.may_answer else ShowGate(run)
    if run.status is RunStatus.WAITING:
        return ShowGate(run)
    if is_resume:
        return Nothing(run)
    can_steer = run.while_running == STEER and not run.is_leaving
    return Steer(run) if can_steer else AwaitRun(run)


def _answered(run: ChatRun, text: str) -> Gate | None:
    """The only open gate, if the text is an answer to it. Words of its own only a gate takes that asks for
    them."""
    if len(run.gates) != 1:
        return None
    gate = run.gates[0]
    is_words = gate.type == FREEFORM and run.status is RunStatus.WAITING
    return gate if is_words or meant(gate.type, gate.choices, text) is not None else None


def _stopped(offered: Sequence[ChatRun], said: SeenMessage) -> ChatRun | None:
    """The newest run that a message continues. One that failed is continued only if that is said."""
    for run in offered:
        if run.status in STOPPED and run.recoverable:
            return run
        if run.status is RunStatus.FAILED and run.recoverable and said.wish is Wish.RESUME:
            return run
    return None


CHECKED = (("chat", "tokens"), ("day", "cost"), ("project", "cost"))


class Checked(msgspec.Struct, frozen=True):
    """What the limits say: why nothing can begin, or what is nearly spent; a sentence each."""

    blocked: str = ""
    warnings: tuple[str, ...] = ()


def scopes_checked(chat: str, project: str, at_us: int) -> list[str]:
    """The scopes that are looked at, in the order of the checks."""
    return [f"chat/{chat}", f"day/{day_of(at_us)}", *([f"project/{project}"] if project else ())]


def precheck(scopes: Sequence[Scope]) -> Checked:
    """What the limits of these scopes leave."""
    warnings: list[str] = []
    for kind, measure in CHECKED:
        for scope in scopes:
            if kind_of(scope.id) != kind:
                continue
            at = MEASURES.index(measure)
            limit, spent = scope.limit[at], scope.spent[at]
            if limit and spent >= limit:
                return Checked(blocked=_blocked(scope.id, measure, spent, limit))
            if limit and spent * 100 >= limit * WARN_PERCENT:
                warnings.append(f"{_used(scope.id, measure, spent, limit)}.")
    return Checked(warnings=tuple(warnings))


def _used(scope: str, measure: str, spent: int, limit: int) -> str:
    unit = "" if measure == "cost" else f" {measure}"
    return f"{scope} has used {shown_amount(measure, spent)} of {shown_amount(measure, limit)}{unit}"


def _blocked(scope: str, measure: str, spent: int, limit: int) -> str:
    enough = shown_amount(measure, 2 * max(spent, limit)).replace(",", "").lstrip("$")
    return (
        f"{_used(scope, measure, spent, limit)}, so nothing was started; raise the limit with `onward limits "
        f"set {shlex.quote(scope)} {measure} {enough}`, then send it again."
    )


def plan_words(reading: MessageReading) -> str:
    """The plan of a new run."""
    agents = ", ".join(reading.planned_agents) or "no agents"
    read_by = f"read by {reading.by}" if reading.by not in ("", BY_RULES) else ""
    what = ", ".join(filter(None, (reading.intent, reading.scope, read_by)))
    return f"Plan{f' ({what})' if what else ''}: {reading.pipeline}@{reading.version} with {agents}."


def anew_words(run_id: str, missing: Sequence[str]) -> str:
    """Why a run is started anew, and not resumed."""
    steps = ", ".join(missing)
    return (
        f"Run {called(run_id)} stopped before {steps} had finished, so there is nothing to resume: its work "
        "starts over, with its first message."
    )


def ask_words(run_id: str, status: RunStatus) -> str:
    """The question whether to continue a stopped run."""
    return (
        f"run {called(run_id)} of this chat is {status.value}; send it again with --resume to continue that "
        "run, or with --fresh to start a new one."
    )


def doubt_words(run_id: str, why: str) -> str:
    """That a person must decide about a step before its run continues, and how."""
    name = called(run_id)
    how = f"Decide with `onward resume {name} --retry`, for instance."
    return f"run {name} cannot continue by itself: {why} {how}"


def queued_words(run_id: str, *, is_read: bool) -> str:
    """That a message waits."""
    if is_read:
        return f"a model reads the message first, in run {called(run_id)}; then its run starts."
    return f"run {called(run_id)} of this chat comes first; the message waits until it has ended."


def stop_words(run: Run) -> str | None:
    """What is said in the chat when a run has stopped before its end; None if there is nothing to say."""
    if run.status not in (RunStatus.PAUSED, RunStatus.INTERRUPTED, RunStatus.FAILED):
        return None
    finished = [node for node, status in run.outcomes.items() if status == "success"]
    done = f" Finished: {', '.join(sorted(finished))}." if finished else ""
    name, detail = called(run.id), run.detail.removesuffix(".")
    if is_at_limit(run.reason):
        return (
            f"Run {name} is paused at a limit: {detail}.{done} Raise the limit (`onward limits`), then send "
            "any message here to continue."
        )
    why = f" ({run.reason}: {detail})" if detail else f" ({run.reason})"
    is_failed = run.status is RunStatus.FAILED
    said = f"Run {name} {'failed' if is_failed else f'is {run.status.value}'}{why}.{done}"
    if flags := resume_flags(run.reason, doubtful_step(run)):
        return f"{said} Decide how it continues: `onward resume {name} {flags}`."
    return (
        f"{said} `onward resume {name}` tries again."
        if is_failed
        else f"{said} Send any message here to continue."
    )
