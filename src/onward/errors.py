"""Every exception Onward raises, and whose fault it is. Import them from here.

- OnwardError
    - InvalidPipeline         the definition: all diagnostics of a file at once
    - ConditionError          the definition: a condition that does not parse (carries an offset)
    - StylesheetError         the definition: a model stylesheet that does not parse (carries an offset)
    - InvalidInput            the caller: a value, flag or setting that cannot be used
        - UnstorableValue     a context value that would not come back exactly as it went in
            - UnfitResult     what a step of a flow returned: its function has done its work
        - InvalidScript       an entry of a simulation script that cannot be played
        - NoProvider          an agent step needs a model, and no provider is set up
        - RefusedInList       one of many runs that were asked for together
        - PipelineNotFound    no pipeline, or no version of it, is registered under this name
    - Refused                 the run: a request that its state does not allow (has a code)
    - StillGoing              the caller: a run did not stop in the time that was given
    - RunNotFound             the caller: no run has this id
    - AmbiguousRun            the caller: several runs have this id or prefix
    - ArtifactNotFound        the caller: the run has no artifact of this id
    - StepNotFound            the caller: the run has started no step of this name
    - NotificationNotFound    the caller: there is no notification of this id
    - ChatNotFound            the caller: there is no run and no chat of this name
    - UnknownHandler          the definition or the app: no handler serves this node type
    - SpawnFailed             the machine: a command could not be started, and did not run
        - CannotExecute       the caller: there is no such program, or it may not be run
    - ResultLost              the call: it was done, and its result cannot be stored
    - EffectFailed            the effect: it ran once, failed, and does not run again
    - CallFailed              the call: the service that it asked failed
        - AgentFailed         the call: an agent in a flow has no result
    - CallTimedOut            the call: it took longer than its time limit
    - StepFailed              the flow: a step of it failed after all its tries
    - FlowFailed              the flow: its run stopped without a result
    - FlowChanged             the flow: it calls something else than its history has
    - LimitReached            the call: a limit does not allow it, now or at all
    - WorkdirGone             the machine: the directory that a run works in is not there
    - WorkspaceFailed         the workspace: git could not do what a run needs
        - GitKilled           the same, because a signal ended it: another try may succeed
    - LeaseLost               the holder: another process holds the run now
    - StaleHistory            the holder: the log grew since it was read
    - HistoryCorrupt          the store: an event cannot be decoded, fold or chain
    - StoreError              the store
        - StoreUnavailable    cannot be reached or opened, or stayed locked
            - NoDatabase      there is none yet, and the request creates none
        - StoreFull           no space left
        - StoreReadOnly       cannot be written
        - StoreIO             the disk or connection failed halfway
        - StoreCorrupt        not a database, or a damaged one
            - RunUnreadable   a worker: the next due run cannot be read
        - StoreGone           a file of it was deleted or replaced while it was in use
        - SchemaTooNew        written by a newer Onward
        - SchemaInUse         must be migrated, and a process of an older Onward holds runs in it
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onward.pipeline.source import Diagnostic


class OnwardError(Exception):
    """Any error that Onward raises; its text is for a person at a terminal.

    `message` says what happened, and `advice` what to type next: the text without and with only what names
    commands and flags, because people at a page or behind an API have none. Programs read `code` and
    `details`.
    """

    code: str = "onward_error"
    """The stable name of the error: a refusal's own, else that of its class in words."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        cls.code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()

    @cached_property
    def message(self) -> str:
        """What happened, in words that name no command."""
        return parted(str(self))[0]

    @cached_property
    def advice(self) -> str:
        """What to type next; empty if nothing can be suggested."""
        return parted(str(self))[1]

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the error names, as plain values for programs."""
        return {}


_CLAUSE = re.compile(r"(?<=;|[.?]) (?![^(]*\))")
_COMMAND = re.compile(r"`onward |(?<![\w-])--[a-z]")


def parted(text: str) -> tuple[str, str]:
    """What a text says, and its advice: the clauses after the first that name a command or a flag.

    A clause ends at a semicolon or a full stop, and not inside parentheses.
    """
    first, *more = _CLAUSE.split(text)
    says = [first, *(clause for clause in more if not _COMMAND.search(clause))]
    advice = [clause for clause in more if _COMMAND.search(clause)]
    return _sentence(says), _sentence(advice).removesuffix(";")


def joined(message: str, advice: str) -> str:
    """Both as one text, which `parted` takes apart again."""
    ends = f"{message[:-1]};" if message.endswith(".") else message
    return f"{ends} {advice}" if advice else message


def _sentence(clauses: Sequence[str]) -> str:
    """The clauses as they were written, with a full stop where the last one has none any more."""
    text = " ".join(clauses)
    return f"{text[:-1]}." if text.endswith(";") else text


def said(error: BaseException) -> str:
    """What an error says. Whatever it does when it is printed, this is a text that can be stored."""
    try:
        return str.__str__(str(error)).encode("utf-8", "replace").decode()
    except BaseException:  # of a user's own __str__, which must not decide anything
        return "(it cannot be printed)"


def told(error: BaseException) -> str:
    """Its kind, and what it says; like `said`, whatever it does when it is printed."""
    kind, text = kind_of(error), said(error)
    return f"{kind}: {text}" if text else kind


def kind_of(value: object) -> str:
    """The name of its class, whatever that says of itself."""
    name: str = _CLASS_NAME(type(value))
    return name


_CLASS_NAME = type.__dict__["__name__"].__get__


# -- a pipeline's definition -------------------------------------------------------------------------
class InvalidPipeline(OnwardError):
    """A pipeline definition has errors; all of them are in `diagnostics`, followed by the warnings.

    `advice` is a sentence about all of them, such as how to do without this definition.
    """

    def __init__(self, diagnostics: Sequence[Diagnostic], advice: str = "") -> None:
        self.diagnostics, self.advice = tuple(diagnostics), advice
        self.message = "\n".join(map(str, self.diagnostics))
        super().__init__("\n".join(filter(None, (self.message, advice))))

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"diagnostics": list(self.diagnostics)}


class ConditionError(OnwardError):
    """A condition does not parse; `offset` is the character at fault, counted from 0."""

    def __init__(self, message: str, offset: int) -> None:
        self.message, self.offset = message, offset
        super().__init__(message)


class StylesheetError(OnwardError):
    """A model stylesheet does not parse; `offset` is the character at fault, counted from 0."""

    def __init__(self, message: str, offset: int) -> None:
        self.message, self.offset = message, offset
        super().__init__(message)


class UnknownHandler(OnwardError):
    """A pipeline names a node kind that no handler serves."""

    def __init__(self, node_id: str, kind: str, known: Sequence[str]) -> None:
        self.node_id, self.kind, self.known = node_id, kind, tuple(known)
        what, _, name = kind.partition(":")
        if what in ("flow", "step") and name:
            same = name.partition("@")[0]
            others = [
                one.partition(":")[2] for one in sorted(known) if one.partition("@")[0] == f"{what}:{same}"
            ]
            only = f", only {', '.join(map(repr, others))}" if others else ""
            super().__init__(
                f"node {node_id!r} needs handler {kind!r}, and this process has no {what} {name!r}{only}; "
                "import the file that defines it, or name that file: --app FILE.py"
            )
            return
        super().__init__(
            f"node {node_id!r} needs handler {kind!r}, which is not registered; "
            f"registered: {', '.join(sorted(known))}. Check the node's `type`, or name the app with --app."
        )


# -- values that cannot be used as they are -----------------------------------------------------------
class InvalidInput(OnwardError):
    """A value, flag or setting that cannot be used as it is."""


class UnstorableValue(InvalidInput):
    """A context value that would not come back from the store exactly as it went in."""


class UnfitResult(UnstorableValue):
    """A function finished, but its result cannot be stored, or does not have its declared type."""


class InvalidScript(InvalidInput):
    """An entry of a simulation script cannot be played; `place` is its node, and its number from 0."""

    def __init__(
        self, place: tuple[str | int, ...], reason: str, *, where: str = "the simulation script"
    ) -> None:
        self.place, self.reason = place, reason
        told = "".join(f"[{part}]" if isinstance(part, int) else part for part in place)
        end = "" if reason.endswith("?") else "."
        super().__init__(": ".join(filter(None, (where, told, reason))) + end)


class NoProvider(InvalidInput):
    """An agent step needs a model, and no provider of models is set up."""

    def __init__(self, node_id: str, *, is_call: bool = False) -> None:
        """`is_call`: it is the key of an agent in a flow."""
        self.node_id = node_id
        what = f"{node_id!r} is an agent" if is_call else f"node {node_id!r} is an agent step"
        super().__init__(
            f"{what} and no model provider is set up; set OPENAI_API_KEY, ANTHROPIC_API_KEY or "
            "GEMINI_API_KEY, and name the model with ONWARD_MODEL. For a server of your own set "
            "OPENAI_BASE_URL; other providers are [providers.NAME] in onward.toml (docs/agents.md). `onward "
            "models` shows what is set up. Without a model: use --simulate, which simulates the agents, or "
            "--app with an app that has a handler for 'codergen'."
        )


class RefusedInList(InvalidInput):
    """One of many runs cannot be created; `number` is its index, from 0, and `error` the reason."""

    def __init__(self, number: int, error: OnwardError, *, is_any_created: bool = False) -> None:
        self.number, self.error, self.is_any_created = number, error, is_any_created
        super().__init__(self.told(f"number {number + 1} of the list"))

    def told(self, where: str) -> str:
        """The message, with the place of the run named as the caller knows it."""
        end = "the others were created" if self.is_any_created else "nothing was created"
        return f"{where}: {str(self.error).rstrip('.')}; {end}."


class PipelineNotFound(InvalidInput):
    """No pipeline is registered under this name, or it has no such version; `near` are names like it.

    `newest` is the last version that it has; `removed_by` took the name away. `is_no_file`: a file of this
    name would have been as good.
    """

    def __init__(
        self,
        wanted: str,
        *,
        near: Sequence[str] = (),
        newest: int | None = None,
        removed_by: str = "",
        is_no_file: bool = False,
    ) -> None:
        self.wanted, self.near, self.newest, self.removed_by = wanted, tuple(near), newest, removed_by
        name = wanted.partition("@")[0]
        nowhere = f"there is no file {wanted} here, and " if is_no_file else ""
        end = f"did you mean {' or '.join(near)}?" if near else "`onward pipelines` lists those that are."
        says = f"{nowhere}no pipeline is registered as {name!r}; {end}"
        if newest is not None:
            version = wanted.removeprefix(f"{name}@")
            says = f"the pipeline {name} has no version {version}; its newest is {newest}."
        elif removed_by:
            says = (
                f"the pipeline {name} was removed by {removed_by}; "
                f"`onward pipelines add FILE --name {name}` registers it again."
            )
        super().__init__(says)


# -- requests that cannot be granted: what they name is missing, or the run's state does not allow them
class Refused(OnwardError):
    """A request that the run's state does not allow; nothing was changed."""

    def __init__(self, code: str, message: str, *, details: Mapping[str, Any] | None = None) -> None:
        self.code, self.details = code, dict(details or {})
        super().__init__(message)

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.details


class StillGoing(OnwardError, TimeoutError):
    """A run has not stopped in the time that was given; it continues. Also a TimeoutError."""

    def __init__(self, run_id: str, status: str, timeout_s: float) -> None:
        self.run_id, self.status, self.timeout_s = run_id, status, timeout_s
        super().__init__(f"run {run_id} is still {status} after {timeout_s:g} s; it has not been stopped.")


class RunNotFound(OnwardError):
    """No run has this id, display id or prefix. `near` is the name of a similar run, if any."""

    def __init__(self, wanted: str, near: str = "") -> None:
        self.wanted, self.near = wanted, near
        meant = f"; did you mean {near!r}? `onward status`" if near else "; `onward status`"
        super().__init__(f"no run {wanted!r} in this database{meant} lists the runs.")

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"wanted": self.wanted}


class AmbiguousRun(OnwardError):
    """Several runs match this id."""

    def __init__(self, wanted: str, matches: Sequence[str]) -> None:
        self.wanted, self.matches = wanted, tuple(matches)
        super().__init__(f"{wanted!r} matches several runs: {', '.join(self.matches)}; give more of the id.")

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"wanted": self.wanted, "matches": list(self.matches)}


class ArtifactNotFound(OnwardError):
    """The run has no artifact with this id."""

    def __init__(self, id: str, known: Sequence[str]) -> None:
        self.id, self.known = id, tuple(known)
        there = f"it has {', '.join(sorted(known)[:20])}" if known else "it has none"
        super().__init__(f"no artifact {id!r} in this run; {there}.")


class StepNotFound(OnwardError):
    """The run has started no step with this id, of this node or at this place."""

    def __init__(self, wanted: str, known: Sequence[str], more: str = "") -> None:
        """`more` is a sentence that follows."""
        self.wanted, self.known = wanted, tuple(known)
        others = f" and {len(known) - 20} more" if len(known) > 20 else ""
        there = f"it has {', '.join(known[:20])}{others}" if known else "it has none"
        super().__init__(f"this run has not started a step {wanted!r}; {there}. {more}".rstrip())


class NotificationNotFound(OnwardError):
    """There is no notification with this id."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        super().__init__(f"there is no notification {wanted!r}; `onward notifications` lists them.")


class ChatNotFound(OnwardError):
    """There is no run and no chat with this name. `near`: as of RunNotFound."""

    def __init__(self, wanted: str, near: str = "") -> None:
        self.wanted, self.near = wanted, near
        meant = f"; did you mean {near!r}? `onward status`" if near else "; `onward status`"
        super().__init__(
            f"there is no run {wanted!r}, and no message in a chat of this name{meant} lists runs."
        )


# -- a step that is executed: its commands, effects, calls and work tree ------------------------------
class SpawnFailed(OnwardError):
    """The machine could not start a command; it did not run."""


class CannotExecute(SpawnFailed):
    """A program could not be executed and did not run; `is_missing` if it was not found."""

    def __init__(self, program: str, why: str, *, is_missing: bool) -> None:
        self.program, self.is_missing = program, is_missing
        super().__init__(f"{program!r} cannot be started: {why}; nothing was run.")


class EffectFailed(OnwardError):
    """An effect that runs at most once failed; the failure is its result."""

    def __init__(self, key: str, why: str, call: str = "") -> None:
        """`call` is the call of a step that the effect is; without one it belongs to no step."""
        self.key, self.why = key, why
        how = f"`onward retry RUN --repeat {call}`" if call else f"`onward effect {key} --forget`"
        super().__init__(f"effect {key!r} failed and will not run again: {why}. To run it again: {how}.")


class CallFailed(OnwardError):
    """The service of a call failed; `may_have_cost` if it may still charge for the call.

    `kind` is how it failed, in a word that is recorded: how often the call is made again depends on it.
    """

    may_have_cost = False
    kind = ""


class AgentFailed(CallFailed):
    """An agent in a flow has no result. `keeps_answers`: they count when it is tried again."""

    def __init__(self, why: str, *, keeps_answers: bool) -> None:
        self.kind = "kept" if keeps_answers else ""
        super().__init__(why)


class GraphFailed(OnwardError):
    """A run that a flow waited for ended without completing."""


class ResultLost(OnwardError):
    """A call that must not be repeated finished, but its result cannot be stored: it is in doubt."""

    def __init__(self, what: str, why: str, how: str) -> None:
        self.why = why
        super().__init__(f"{what} was done and will not be repeated, but {why} A person must decide: {how}.")


class StepFailed(OnwardError):
    """A step of a flow failed after all its tries: `key` is the step, `type` and `text` what it raised."""

    def __init__(self, key: str, type: str, text: str) -> None:
        self.key, self.type, self.text = key, type, text
        super().__init__(f"step {key!r} failed: {type}: {text}" if text else f"step {key!r} failed: {type}")


class FlowFailed(OnwardError):
    """A flow ended without a result: `run_id` is its run, `reason` why that stopped.

    `traceback` is where, if no database has the run, as in a test.
    """

    def __init__(
        self, run_id: str, status: str, reason: str, detail: str, traceback: str | None = None
    ) -> None:
        self.run_id, self.status, self.reason, self.detail = run_id, status, reason, detail
        how = status if status == "failed" else f"is {status}"
        why = f": {detail.rstrip('.')}" if detail else ""
        more = f" `onward show {run_id}` shows it." if traceback is None else f"\n{traceback}".rstrip()
        super().__init__(f"the flow's run {run_id} {how} ({reason}){why}.{more}")


class FlowChanged(OnwardError):
    """What a flow calls now is not what its history has."""


class CallTimedOut(OnwardError):
    """A call inside a step took longer than its time limit.

    `is_running`: it could not be ended, and may still be at work. `noted` ends the sentence.
    """

    def __init__(self, key: str, limit_s: float, *, is_running: bool = False, noted: str = "") -> None:
        self.key, self.limit_s, self.is_running = key, limit_s, is_running
        super().__init__(f"call {key!r} took longer than its time limit of {limit_s:g} s{noted}.")


class CallStillRunning(OnwardError):
    """A call of a flow is to be made, and the function of an earlier attempt at it does not end."""

    def __init__(self, key: str, told: str) -> None:
        self.key = key
        super().__init__(f"call {key!r} has not ended since an earlier attempt: {told}.")


class LimitReached(OnwardError):
    """A limit does not allow a call; nothing was written. If `fits_spent`, it may be allowed soon.

    `measure` is tokens, cost or calls. It fits what is spent when only what others have reserved is in its
    way.
    """

    def __init__(
        self,
        scope: str,
        measure: str,
        *,
        limit: int,
        spent: int,
        reserved: int,
        wanted: int,
        fits_spent: bool,
        says: str,
    ) -> None:
        self.scope, self.measure = scope, measure
        self.limit, self.spent, self.reserved, self.wanted = limit, spent, reserved, wanted
        self.fits_spent = fits_spent
        super().__init__(says)


class WorkdirGone(OnwardError):
    """The directory that a run's commands work in is not on this machine, so it is not executed here."""

    def __init__(self, run_id: str, workdir: str) -> None:
        self.run_id, self.workdir = run_id, workdir
        super().__init__(
            f"run {run_id} works in {workdir}, which does not exist; create it, or choose another directory "
            f"with `onward resume {run_id} --cwd DIR`."
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"run": self.run_id, "workdir": self.workdir}


class WorkspaceFailed(OnwardError):
    """A work tree could not be created, recorded, restored or merged; none of it was deleted."""

    may_pass = False
    """Whether another try may succeed, with nothing changed."""


class GitKilled(WorkspaceFailed):
    """Git was killed: by a signal to our whole process group, or for lack of memory."""

    may_pass = True


# -- a run's log, and the database that it is in ------------------------------------------------------
class LeaseLost(OnwardError):
    """Another process holds the run now; this holder's state is out of date."""

    def __init__(self, run_id: str, token: int) -> None:
        self.run_id, self.token = run_id, token
        super().__init__(
            f"the lease of run {run_id} with token {token} is lost; another process holds the run."
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"run": self.run_id}


class StaleHistory(OnwardError):
    """The log grew since it was read; read the tail and plan again."""

    def __init__(self, run_id: str, after: int) -> None:
        self.run_id, self.after = run_id, after
        super().__init__(f"run {run_id} has events after event {after}; read them and plan again.")


class HistoryCorrupt(OnwardError):
    """A run's log cannot be decoded, fold or chain; the event is named and nothing was repaired."""

    def __init__(self, run_id: str, seq: int, why: str) -> None:
        self.run_id, self.seq, self.why = run_id, seq, why
        super().__init__(
            f"event {seq} of run {run_id} is damaged: {why}. Nothing was changed; `onward verify {run_id}` "
            "shows up to which event the log is intact."
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"run": self.run_id, "seq": self.seq}


class StoreError(OnwardError):
    """The database failed; nothing that was acknowledged is lost."""

    run_id: str | None = None
    """The run whose claim failed, if it was one."""


class StoreUnavailable(StoreError):
    """The database cannot be opened or reached, or stayed locked."""


class NoDatabase(StoreUnavailable):
    """There is no database yet, and reading runs does not create one."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(
            f"the database {place} does not exist yet; `onward run` creates it, or name another with --db."
        )


class StoreGone(StoreError):
    """A file of the database was deleted or replaced while it was in use; a retry does not help."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path} was deleted or replaced while it was in use, and writes to it would be lost; "
            "put it back if you can, and start again."
        )


class StoreFull(StoreError):
    """There is no space left for the database."""


class StoreReadOnly(StoreError):
    """The database cannot be written."""


class StoreIO(StoreError):
    """The disk or the connection failed halfway."""


class StoreCorrupt(StoreError):
    """The file is not a database, or it is damaged."""


class RunUnreadable(StoreCorrupt):
    """The next due run is damaged and cannot be read; others can be claimed."""

    def __init__(self, run_id: str, why: object) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id} is due but cannot be read: {why}")


class SchemaTooNew(StoreError):
    """The database was written by a newer Onward."""

    def __init__(self, found: int, known: int) -> None:
        self.found, self.known = found, known
        super().__init__(
            f"the database has schema {found}, and this version of Onward supports schemas up to {known}; "
            "upgrade Onward to use it."
        )


class SchemaInUse(StoreError):
    """The database must be migrated, and a process that knows only the older schema holds runs in it."""

    def __init__(self, found: int, wanted: int, holder: str) -> None:
        self.found, self.wanted, self.holder = found, wanted, holder
        super().__init__(
            f"the database has schema {found} and this Onward needs {wanted}, but {holder}, which is an "
            "older version, holds runs in it; stop that process first, then try again."
        )


__all__ = [
    "AgentFailed",
    "AmbiguousRun",
    "ArtifactNotFound",
    "CallFailed",
    "CallTimedOut",
    "CannotExecute",
    "ChatNotFound",
    "ConditionError",
    "EffectFailed",
    "FlowChanged",
    "FlowFailed",
    "GitKilled",
    "HistoryCorrupt",
    "InvalidInput",
    "InvalidPipeline",
    "InvalidScript",
    "LeaseLost",
    "LimitReached",
    "NoDatabase",
    "NoProvider",
    "NotificationNotFound",
    "OnwardError",
    "PipelineNotFound",
    "Refused",
    "RefusedInList",
    "ResultLost",
    "RunNotFound",
    "RunUnreadable",
    "SchemaInUse",
    "SchemaTooNew",
    "SpawnFailed",
    "StaleHistory",
    "StepFailed",
    "StepNotFound",
    "StillGoing",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreGone",
    "StoreIO",
    "StoreReadOnly",
    "StoreUnavailable",
    "StylesheetError",
    "UnfitResult",
    "UnknownHandler",
    "UnstorableValue",
    "WorkdirGone",
    "WorkspaceFailed",
]
