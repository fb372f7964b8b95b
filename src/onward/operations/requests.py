"""All requests. A run is named by its id, its display id, or the beginning of either, in this
order; a program that knows the id writes `id:ID`, which never means another run.

A request that changes something takes a `key`: the same key with the same request gets the first answer,
with another request it is refused (`key_reused`). One that changes a run may name the last event that was
seen (`if_head`); when the run has moved on it is refused (`stale_head`). Costs are in millionths of a dollar.

In order: look at one run, list all runs, create runs, decide about a run; then limits, chats, registered
pipelines, effects outside steps, notifications, and who may use a server.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from onward.errors import InvalidInput
from onward.model.events import STDERR, STDOUT
from onward.model.gate import Verdict
from onward.model.ids import PIPELINE_VERSION
from onward.model.limits import AMOUNT_MAX, VISITS
from onward.model.run import RunStatus
from onward.model.values import LIMIT, LISTED, POSITION, Whole, read_rfc3339, shown

TOKEN_S = Whole(1, 100 * 365 * 86_400)


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request."""


class GetRun(Request, frozen=True, kw_only=True):
    """The present state of a run."""

    run: str


class ShowRun(Request, frozen=True, kw_only=True):
    """A run with all that happened in it, step by step."""

    run: str


class ShowStep(Request, frozen=True, kw_only=True):
    """Everything about one step: `step` is its id, or its node for the last visit."""

    run: str
    step: str


class ReadEvents(Request, frozen=True, kw_only=True):
    """A run's log after event `after`. With `follow`, also what is appended until the run has ended.

    `dialect`: under the event names of the DOT dialect.
    """

    run: str
    after: int = 0
    follow: bool = False
    dialect: bool = False

    def __post_init__(self) -> None:
        POSITION.check(self.after, "after")


class ListCheckpoints(Request, frozen=True, kw_only=True):
    """The checkpoints where a fork of the run can start, after event `after`."""

    run: str
    after: int = 0

    def __post_init__(self) -> None:
        POSITION.check(self.after, "after")


class ListArtifacts(Request, frozen=True, kw_only=True):
    """What a run has stored next to its context."""

    run: str


class GetArtifact(Request, frozen=True, kw_only=True):
    """One artifact with its content."""

    run: str
    id: str


class ListReceipts(Request, frozen=True, kw_only=True):
    """The receipts of a run's steps, as they are on disk. Nothing is written."""

    run: str


class ReadPrinted(Request, frozen=True, kw_only=True):
    """The end of what a run printed: of all its steps or one `step` (its id, or a node for all its visits).

    `streams`: only these, of `stdout` and `stderr`.
    """

    run: str
    step: str | None = None
    attempt: int | None = None
    streams: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_streams(self.streams)


def check_streams(streams: tuple[str, ...]) -> None:
    """Refuse what is no stream of a command."""
    for stream in streams:
        if stream not in (STDOUT, STDERR):
            raise InvalidInput(f"{stream!r} is not a stream; choose {STDOUT} or {STDERR}.")


class ListCalls(Request, frozen=True, kw_only=True):
    """The calls inside the steps of a run; of one `step`, or of the steps of one node.

    `after` is how many of them to pass over: the cursor of a page.
    """

    run: str
    step: str | None = None
    after: int = 0
    limit: int = 50

    def __post_init__(self) -> None:
        POSITION.check(self.after, "after")
        LIMIT.check(self.limit, "limit")


class DrawRun(Request, frozen=True, kw_only=True):
    """A run in the graph of its pipeline. `original`: of the pipeline that it began with."""

    run: str
    original: bool = False


ALL = 2**31 - 1
"""As a limit: everything."""


class ListRuns(Request, frozen=True, kw_only=True):
    """Runs, newest first: one run, or those that every filter lets through.

    A search for a `text` may end after the newest 100,000 runs that the other filters let through.
    `completed` also names the newest 100 steps of each that have finished; `older` also counts the runs that
    the limit leaves out. `chat`: runs that were given this chat. `since`, an instant with its zone: those
    that were created then or later. `find`: instead, up to 10 runs that may be meant by what a person types
    (an id, a display id, or the beginning of either).
    """

    run: str | None = None
    find: str | None = None
    statuses: tuple[RunStatus, ...] = ()
    reasons: tuple[str, ...] = ()
    pipeline: str | None = None
    parent: str | None = None
    text: str | None = None
    tags: tuple[str, ...] = ()
    chat: str | None = None
    since: str | None = None
    cursor: str | None = None
    limit: int = 50
    completed: bool = False
    older: bool = False

    def __post_init__(self) -> None:
        LIMIT.check(self.limit, "limit")
        if self.since is not None:
            since_us(self.since)
        if self.find is not None and self.is_filtered:
            raise InvalidInput("find cannot be combined with other filters; leave them out.")

    @property
    def is_filtered(self) -> bool:
        """Whether this lists fewer runs than there are, apart from the limit."""
        named = self.run, self.pipeline, self.parent, self.text, self.cursor, self.chat, self.since
        return any((*named, self.statuses, self.reasons, self.tags))


def since_us(text: str) -> int:
    """The instant at which a list starts."""
    try:
        return read_rfc3339(text)
    except ValueError as error:
        raise InvalidInput(f"since is {shown(text)}, which is not {error}.") from None


class ListGates(Request, frozen=True, kw_only=True):
    """The inbox: open questions, oldest first: of all runs, of one `run`, or of those of a `chat`."""

    run: str | None = None
    chat: str | None = None
    pipeline: str | None = None
    cursor: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        LIMIT.check(self.limit, "limit")


class RunGates(Request, frozen=True, kw_only=True):
    """The open questions of one run."""

    run: str


class ListWorkers(Request, frozen=True, kw_only=True):
    """The workers, and the other processes that hold runs."""


class GetStats(Request, frozen=True, kw_only=True):
    """A summary of the database in numbers."""


class NewRun(Request, frozen=True, kw_only=True):
    """A request that makes a run. Under a key and without a run id, caller and key name the run."""

    run_id: str | None = None
    by: str = "user"
    key: str | None = None


class LimitRaise(Request, frozen=True, kw_only=True):
    """A limit to raise before a run starts or is resumed: of its day, run, chat or project; 0 means none.

    With `id` it must be the one that the run counts in; a run has only one of each kind. `visits` is how
    often the run may visit each node.
    """

    kind: Literal["chat", "day", "project", "run"]
    id: str = ""
    measure: Literal["tokens", "cost", "calls", "visits"]
    value: int

    def __post_init__(self) -> None:
        AMOUNT.check(self.value, "value")
        if self.measure == VISITS and self.kind != "run":
            raise InvalidInput(f"visits are counted only for a run, not for a {self.kind}; write run.visits.")


class SubmitRun(NewRun, frozen=True, kw_only=True):
    """A new run of a pipeline, for whichever worker takes it.

    Instead of the `source`, `pipeline` names a registered one, as NAME or NAME@VERSION. `file` is what
    diagnostics call the source; `path` is where a later resume looks for a changed file.
    `simulation` is a script ({} if every step succeeds); with `real_tools` only agents are simulated.
    `workdir`, an absolute path, is where the run's commands work; workers without it leave the run alone.
    Of the runs with one `exclusive_key`, one is executed at a time. `wake_at_us`: it is due then. What its
    models say is in `chat`; its calls count in the limits of the chat and of `project`. `raises` are limits
    that are raised first. Without `may_run_commands`, a source is refused that names commands, or places in
    the file system; registered ones were judged when they were added.
    """

    source: str = ""
    pipeline: str | None = None
    file: str = "<pipeline>"
    path: str | None = None
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    simulation: dict[str, Any] | None = None
    real_tools: bool = False
    may_run_commands: bool = True
    priority: int = 0
    on_owner_loss: str = "requeue"
    exclusive_key: str | None = None
    tags: tuple[str, ...] = ()
    wake_at_us: int | None = None
    chat: str | None = None
    project: str | None = None
    workdir: str | None = None
    workspace: str | None = None
    workspace_mode: str | None = None
    keep_workspace: bool = False
    raises: tuple[LimitRaise, ...] = ()

    def __post_init__(self) -> None:
        if self.pipeline is not None and (self.source or self.path):
            raise InvalidInput(
                "a run has either a source or the name of a registered pipeline; give only one of them."
            )
        if not self.pipeline and not self.source:
            raise InvalidInput("a run needs a pipeline: give its source, or the name of a registered one.")


class SubmitRuns(Request, frozen=True, kw_only=True):
    """New runs, in order. All are checked before the first is created, and one that cannot be refuses all."""

    runs: tuple[SubmitRun, ...]


class ForkRun(NewRun, frozen=True, kw_only=True):
    """A new run that shares another's log up to a checkpoint; `changes` are set in its context.

    Instead of the checkpoint, `from_step` names the step before which it is forked: an id, or a node for its
    last visit. A pipeline file that has changed is refused as for a resume. Without `may_answer`, nothing is
    set behind a gate that was decided.
    """

    run: str
    checkpoint: int | None = None
    from_step: str | None = None
    changes: dict[str, Any] = msgspec.field(default_factory=dict)
    accept_changes: bool = False
    original: bool = False
    may_answer: bool = True


class PreviewResume(Request, frozen=True, kw_only=True):
    """What a resume would do, with every check of it; nothing is changed.

    `workdir`: the directory that the run's commands work in from then on, an absolute path. `answers`: with
    `continue`, what calls in doubt answered. `repeats`: with `retry`, answered calls that must not be
    repeated and are to be repeated all the same. `fresh`: with `retry`, a step in doubt starts anew instead
    of repeating only what is in doubt.
    """

    run: str
    from_node: str | None = None
    action: str | None = None
    step: str | None = None
    accept_changes: bool = False
    original: bool = False
    take_over: bool = False
    restore_workspace: bool = False
    workdir: str | None = None
    answers: dict[str, Any] = msgspec.field(default_factory=dict)
    repeats: tuple[str, ...] = ()
    fresh: bool = False


class ResumeRun(PreviewResume, frozen=True, kw_only=True):
    """Let a stopped run continue: it is queued, and a worker executes it. `abort` cancels it instead.

    With `only_stopped`, a run that is queued already is refused, and so is one whose exclusive key another
    run works under. Without `may_answer`, `from_node` does not lead past a gate.
    """

    by: str = "user"
    key: str | None = None
    if_head: int | None = None
    raises: tuple[LimitRaise, ...] = ()
    """Limits that are raised first."""
    only_stopped: bool = False
    may_answer: bool = True


class RunChange(Request, frozen=True, kw_only=True):
    """A request that changes a run."""

    run: str
    by: str = "user"
    key: str | None = None
    if_head: int | None = None


class AnswerGate(RunChange, frozen=True, kw_only=True):
    """Decide an open gate: by a choice, a verdict or words. The run is queued, and a worker executes it.

    `content_hash` is that of the question that was shown; if it is another by now, nothing is decided.
    """

    gate: str | None = None
    choice: str = ""
    text: str = ""
    verdict: Verdict | None = None
    content_hash: str | None = None


class PauseRun(RunChange, frozen=True, kw_only=True):
    """Ask a run to stop after the step, after the call, or now; at once if no live process holds it."""

    after: str = "step"


class CancelRun(RunChange, frozen=True, kw_only=True):
    """Give a run up for good; `reason` is why, in free text."""

    reason: str = ""


class DismissRun(RunChange, frozen=True, kw_only=True):
    """Stop suggesting a stopped run, and stop resuming it automatically. It can still be resumed by name."""


class SteerRun(RunChange, frozen=True, kw_only=True):
    """Give the run's agents an instruction; the next agent step takes it."""

    text: str


class RecoverRuns(Request, frozen=True, kw_only=True):
    """Look once for runs whose process died, and stop or requeue them as their policies say."""


AMOUNT = Whole(0, AMOUNT_MAX)


class ListLimits(Request, frozen=True, kw_only=True):
    """The limits that are set, and what is spent and reserved where."""

    limit: int = 200

    def __post_init__(self) -> None:
        LIMIT.check(self.limit, "limit")


class SetLimit(Request, frozen=True, kw_only=True):
    """Set a limit of a scope; 0 means none. `cost` is in millionths of a dollar."""

    scope: str
    measure: Literal["tokens", "cost", "calls"]
    value: int
    by: str = "user"

    def __post_init__(self) -> None:
        AMOUNT.check(self.value, "value")


class ResetLimits(Request, frozen=True, kw_only=True):
    """Go back to the defaults of its kind in a scope; in a default, to no limit. What is spent stays."""

    scope: str
    by: str = "user"


class GetUsage(Request, frozen=True, kw_only=True):
    """What was spent, put together by one thing."""

    by: Literal["run", "chat", "project", "day", "pipeline", "model"] = "day"
    limit: int = 50

    def __post_init__(self) -> None:
        LIMIT.check(self.limit, "limit")


class ReadMessages(Request, frozen=True, kw_only=True):
    """The messages of a chat after position `after`: those of the run that `of` names, or of a chat, all.

    With `follow`, also what is said until the run has stopped; in a chat, for ever.
    """

    of: str
    after: int = 0
    follow: bool = False

    def __post_init__(self) -> None:
        POSITION.check(self.after, "after")


class SendMessage(Request, frozen=True, kw_only=True):
    """Say something in a chat, as its user. It is stored before anything is done about it, under a key once.

    What follows depends on the chat: a stopped run is resumed, one under way is steered or waited for, the
    gate of one that waits is answered, or a run of a registered pipeline starts. `fresh` supersedes what is
    there, `resume` continues what stopped whatever the settings say. `project`, `pipeline` (NAME or
    NAME@VERSION) and `workdir` are those of the run that it may start. Without `may_answer`, a message that
    would answer a gate shows the question instead.
    """

    chat: str
    text: str
    by: str = "user"
    key: str | None = None
    fresh: bool = False
    resume: bool = False
    project: str | None = None
    pipeline: str | None = None
    workdir: str | None = None
    may_answer: bool = True


class ListChats(Request, frozen=True, kw_only=True):
    """Chats, newest first, without those that runs have for themselves."""

    cursor: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        LIMIT.check(self.limit, "limit")


class ShowChat(Request, frozen=True, kw_only=True):
    """A chat: its newest runs, its latest messages, and what is pending."""

    chat: str
    runs: int = 10
    messages: int = 200

    def __post_init__(self) -> None:
        LISTED.check(self.runs, "runs")
        LISTED.check(self.messages, "messages")


class ListMessages(Request, frozen=True, kw_only=True):
    """The messages of a run, or of a chat, each with all of its text: those that began after position `after`
    of the chat. A page continues after the `first_position` of its last message."""

    of: str
    after: int = 0
    limit: int = 50

    def __post_init__(self) -> None:
        POSITION.check(self.after, "after")
        LIMIT.check(self.limit, "limit")


class ListPipelines(Request, frozen=True, kw_only=True):
    """Registered pipelines, by name."""

    cursor: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        LIMIT.check(self.limit, "limit")


class GetPipeline(Request, frozen=True, kw_only=True):
    """A registered pipeline with the source of a version, or of the enabled one.

    `limit` is how many of its versions to list.
    """

    name: str
    version: int | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        LIMIT.check(self.limit, "limit")
        if self.version is not None:
            PIPELINE_VERSION.check(self.version, "version")


class CheckPipeline(Request, frozen=True, kw_only=True):
    """What is wrong with a source, or to note about it. Nothing is stored or executed.

    `file` is what diagnostics call the source.
    """

    source: str
    file: str = "<pipeline>"


class AddPipeline(Request, frozen=True, kw_only=True):
    """Store a source as the next version of a name, or of the graph's; the same source is the same version.

    New runs get it; without `enable`, only if the name has no other version. `file` is what diagnostics call
    the source; `path` is where it was. Without `may_run_commands`, a source is refused that names commands,
    or places in the file system.
    """

    source: str
    file: str = "<pipeline>"
    path: str | None = None
    name: str | None = None
    enable: bool = True
    by: str = "user"
    may_run_commands: bool = True


class EnablePipeline(Request, frozen=True, kw_only=True):
    """Choose the version of a registered pipeline that new runs get."""

    name: str
    version: int
    by: str = "user"

    def __post_init__(self) -> None:
        PIPELINE_VERSION.check(self.version, "version")


class RemovePipeline(Request, frozen=True, kw_only=True):
    """Take a name away from new runs. Its versions keep their numbers, and runs their source."""

    name: str
    by: str = "user"


class GetEffect(Request, frozen=True, kw_only=True):
    """The state of the effect with a key."""

    key: str


class ForgetEffect(GetEffect, frozen=True, kw_only=True):
    """As if it had never begun: the next call runs it. One that is under way is refused."""


class SettleEffect(GetEffect, frozen=True, kw_only=True):
    """A person found out that an effect in doubt was done: `text` is its output from now on."""

    text: str


class ListNotifications(Request, frozen=True, kw_only=True):
    """Notifications, newest first: of one run or of all, in any state or in one."""

    run: str | None = None
    state: Literal["waiting", "delivered", "failed"] | None = None
    cursor: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        LIMIT.check(self.limit, "limit")


class RetryNotification(Request, frozen=True, kw_only=True):
    """Deliver a notification again, even if it was delivered."""

    id: str


class ListTokens(Request, frozen=True, kw_only=True):
    """The tokens of a server, newest first, without revoked ones unless `all` is set."""

    all: bool = False


class AddToken(Request, frozen=True, kw_only=True):
    """Create a token, with roles out of viewer, operator, approver and admin."""

    name: str
    roles: tuple[str, ...]
    expires_in_s: int | None = None

    def __post_init__(self) -> None:
        if self.expires_in_s is not None:
            TOKEN_S.check(self.expires_in_s, "expires_in_s")


class RevokeToken(Request, frozen=True, kw_only=True):
    """End a token, named by its id or its name, and with it the sessions that were opened with it."""

    id: str


class ListAudit(Request, frozen=True, kw_only=True):
    """The changes requested over HTTP, newest first; `before` is the number of a change."""

    before: int | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        LIMIT.check(self.limit, "limit")
        if self.before is not None:
            POSITION.check(self.before, "before")
