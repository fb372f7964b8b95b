"""Progress of a run that this process executes: lines, or a display that updates in place (`live`).

The events of a run become lines for a person. Branches whose work could not be merged at the end of their
fan-out are told with the place where it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from onward.cli.output import Output, clean, one_line
from onward.cli.print.run import SIMULATED, failed_lines, id_words
from onward.cli.print.speech import ABOUT_MAX, Speech
from onward.machine.plan.planner import CONFLICTS
from onward.model import events as ev
from onward.model.call import CallFinished, CallKind, CallStarted, CallStatus, LimitWarned
from onward.model.chat import ChunkKind
from onward.model.gate import GateDecided, GateOpened
from onward.model.ids import branch_of, called
from onward.model.limits import shown_amount
from onward.model.run import AttemptState, OpenStep, Run
from onward.model.values import span
from onward.read.view import view_simulation

FILES_SHOWN_MAX = 5
NOTES_SHOWN = 3
"""How many lines of a finished step's log are told; `onward show` prints all."""


class Conflicts:
    """Remembers where the work of branches is kept, which the state of a run drops when a fan-out ends."""

    def __init__(self) -> None:
        self._refs: dict[tuple[str, str], str] = {}

    def note(self, run: Run, events: Sequence[ev.Event]) -> None:
        """Remember the refs of all branches, including those that just ended."""
        if run.workspace is None:
            return
        for path, branch in run.branches.items():
            if branch.tree is not None:
                self._refs[run.id, path] = branch.tree.ref
        for event in events:
            if isinstance(event, ev.StepFinished) and event.workspace is not None:
                self._refs[run.id, branch_of(event.step)] = event.workspace.ref

    def told(self, run: Run, event: ev.StepFinished) -> Iterator[str]:
        """A clause for each branch that this step could not merge."""
        found = event.context.get(CONFLICTS) if run.workspace is not None else None
        for conflict in found or ():
            branch, files = str(conflict["branch"]), [str(file) for file in conflict["files"]]
            # If another process saw the branch end, only the prefix of its refs is known.
            ref = self._refs.get((run.id, f"{event.step}.{branch}")) or f"refs/onward/{run.id}/"
            where = f"{ref} in {run.workspace.repository}" if run.workspace is not None else ref
            yield f"branch {one_line(branch)} was not merged ({_named(files)}); its work is kept as {where}"


def _named(files: Sequence[str]) -> str:
    shown = ", ".join(one_line(file) for file in files[:FILES_SHOWN_MAX])
    more = len(files) - FILES_SHOWN_MAX
    return f"conflict in {shown}" + (f" and {more} more" if more > 0 else "")


_TONES: Mapping[ev.StepStatus, str] = {
    ev.StepStatus.FAIL: "failed",
    ev.StepStatus.PARTIAL_SUCCESS: "partial",
    ev.StepStatus.SKIPPED: "skipped",
}


PRINTED, SPOKEN = "printed", "spoken"


class Line(NamedTuple):
    """A line, and what it is about: the verb, or how the step ended."""

    tone: str
    text: str


def printed(step: str, text: str) -> Line:
    """A line that a command of a step printed."""
    return Line(PRINTED, f"    {one_line(step)} | {clean(text)}".rstrip())


class Narrator:
    """Turns notable events into lines. `opening` comes once, before the first of them.

    If brief, it leaves out what a terminal shows anyway: the running step, and the question at a gate.
    """

    def __init__(self, *, is_brief: bool = False) -> None:
        self.opening = ""
        self.ceilings = ""
        """What the run that is started may do at most; it comes once, after its name."""
        self.is_verbose = False
        """Whether what commands print is shown as it comes."""
        self.with_output: set[tuple[str, str]] = set()
        """The runs and steps of attempts that failed and had printed something."""
        self.speech = Speech()
        self._is_brief = is_brief
        self._before: dict[str, Run] = {}
        self._conflicts = Conflicts()

    def lines(self, run: Run, events: Sequence[ev.Event]) -> Iterator[Line]:
        """The lines for events that were just written; `run` is the state after them."""
        if self.opening and events:
            yield Line("", self.opening)
            self.opening = ""
        # The lines of a managed run come between those of its manager.
        whose = f"  [{called(run.id)}]" if run.managed_by else ""
        self._conflicts.note(run, events)
        for event in events:
            yield from (Line(SPOKEN, f"{text}{whose}") for text in self.speech.note(run.id, event))
            yield from (Line(tone, f"{text}{whose}") for tone, text in self._lines(run, event))
            yield from (Line(PRINTED, text) for text in self._failed_lines(run, event))
        if run.worker is None:
            self._before.pop(run.id, None)
        else:
            self._before[run.id] = run

    def hear(self, message: str, chunks: Sequence[tuple[ChunkKind, str]]) -> Iterator[Line]:
        """The lines for what was added to a message; its words are shown when it is whole."""
        for use in self.speech.hear(message, chunks):
            yield _told("used", use.step, one_line(use.name), use.about)

    def _lines(self, run: Run, event: ev.Event) -> Iterator[Line]:
        match event:
            case ev.RunCreated():
                yield Line(
                    "", f"run {called(run.id)}: {one_line(run.pipeline)}{id_words(run.id)}{_mode(run)}"
                )
                if self.ceilings and run.managed_by is None:
                    yield _told("limits", self.ceilings)
                    self.ceilings = ""
            case ev.StepStarted():
                if not self._is_brief:
                    yield _told("started", event.step, _which(run, event))
                if event.degraded_from:
                    why = f"its session was lost: {event.fidelity} instead of {event.degraded_from}"
                    yield _told("degraded", event.step, why)
            case ev.StepFinished():
                text = _told("finished", event.step, *self._ending(run, event)).text
                yield Line(_TONES.get(event.outcome.status, "finished"), text)
                for note in event.log[:NOTES_SHOWN]:
                    yield _told("noted", event.step, one_line(note))
                if (more := len(event.log) - NOTES_SHOWN) > 0:
                    yield _told("noted", event.step, f"{more} more: onward show {called(run.id)}")
                for conflict in self._conflicts.told(run, event):
                    yield _told("conflict", event.step, conflict)
            case CallStarted(shortened_to=int() as tokens) if tokens:
                yield _told("limited", event.step, f"a limit leaves at most {tokens:,} tokens for the answer")
            case CallFinished(type="tool"):
                yield _told("used", event.step, event.name, one_line(event.about, ABOUT_MAX))
            case CallFinished(type=CallKind.STEP | CallKind.AGENT, status=CallStatus.OK):
                yield _told("finished", event.call, span(event.duration_us / 1_000_000))
            case CallFinished(type=CallKind.STEP | CallKind.AGENT):
                yield _told("failed", event.call, f"try {event.number}: {one_line(event.error)}")
            case ev.AttemptFailed(retry_at_us=None):
                yield _told("failed", event.step, f"attempt {event.attempt}: {one_line(event.reason)}")
            case ev.AttemptFailed(retry_at_us=int() as retry_at_us):
                delay = span((retry_at_us - run.updated_at_us) / 1_000_000)
                reason = one_line(event.reason)
                yield _told(
                    "retrying", event.step, f"attempt {event.attempt} failed: {reason}; again in {delay}"
                )
            case ev.AttemptInterrupted():
                yield _told("stopped", event.step, f"attempt {event.attempt}: {one_line(event.why)}")
            case GateOpened() if not self._is_brief or run.managed_by:
                yield _told("asks", event.gate, one_line(event.text))
            case GateDecided(expired=True):
                what = "rejected" if event.rejected else one_line(event.choice.label)
                yield _told("expired", event.gate, f"{what} (no answer in time)")
            case GateDecided():
                what = one_line(event.choice.label or event.text)
                verb = "rejected" if event.rejected else "answered"
                yield _told(verb, event.gate, f"{what} (by {one_line(event.by)})")
            case ev.ParallelStarted():
                yield _told("branches", event.step, ", ".join(plan.to for plan in event.branches))
            case ev.BranchFinished(status="cancelled" | "fail"):
                text = _told("branch", event.branch, event.status, one_line(event.reason)).text
                yield Line("failed" if event.status == "fail" else "branch", text)
            case ev.RunCompleted(restarted_as=str(successor)) if successor:
                yield _told("restarts", f"run {called(run.id)}", f"as run {called(successor)}")
            case ev.StepRouted():
                yield _told("routed", event.step, f"to {event.next.to}: an edge can be followed now")
            case LimitWarned():
                spent = shown_amount(event.measure, event.spent)
                limit = shown_amount(event.measure, event.limit)
                yield _told("warned", event.scope, f"{spent} of {limit} {event.measure} are spent")
            case ev.GoalRedirected():
                yield _told("back to", event.next.to, f"goal gate {event.gate} is unmet")

    def _failed_lines(self, run: Run, event: ev.Event) -> Iterator[str]:
        """The end of what a failed attempt printed, unless that was seen already."""
        if not isinstance(event, ev.AttemptFailed | ev.StepFinished) or event.output is None:
            return
        self.with_output.add((run.id, event.step))
        reason = event.reason if isinstance(event, ev.AttemptFailed) else event.outcome.failure_reason
        if event.output.traceback or not self.is_verbose:
            yield from failed_lines(event.output, reason)

    def _ending(self, run: Run, event: ev.StepFinished) -> Iterator[str]:
        yield event.outcome.status.value
        before = self._before.get(run.id, run)
        opened = before.open_steps.get(event.step)
        fan = before.parallels.get(event.step)
        if opened is not None:
            yield span(worked_us(opened, run.updated_at_us) / 1_000_000)
            if opened.attempt > 1:
                yield f"{opened.attempt} attempts"
            if opened.starts > opened.attempt:
                yield f"{opened.starts} tries"
        elif fan is not None:
            yield span((run.updated_at_us - fan.began_at_us) / 1_000_000)
        if event.outcome.failure_reason:
            yield one_line(event.outcome.failure_reason)


def _mode(run: Run) -> str:
    """What of the run is simulated, after its name."""
    simulated = view_simulation(run)
    return f", {SIMULATED[simulated]}" if simulated else ""


def _which(run: Run, event: ev.StepStarted) -> str:
    """Which attempt starts, and which try of it; empty for the first try of a first one."""
    opened = run.open_steps.get(event.step)
    again = f", try {opened.tries}" if opened is not None and opened.tries > 1 else ""
    return f"attempt {event.attempt}{again}" if event.attempt > 1 or again else ""


def worked_us(opened: OpenStep, now_us: int) -> int:
    """How long a step has worked: the tries before, and the one that is open."""
    current = now_us - opened.began_at_us if opened.state is AttemptState.OPEN else 0
    return opened.worked_us + max(0, current)


def _told(verb: str, what: str, *rest: str) -> Line:
    return Line(verb, "  ".join(filter(None, (f"  {verb:<8}", one_line(what), *rest))).rstrip())


class Progress(Protocol):
    """Shows what the engine observes."""

    @property
    def narrator(self) -> Narrator:
        """Turns events into lines."""
        ...

    @property
    def is_at_work(self) -> bool:
        """Whether a step has started and has not ended."""
        ...

    def observe(self, run: Run, events: Sequence[ev.Event]) -> None:
        """Show what was just written."""
        ...

    def show(self, step: str, stream: str, text: str) -> None:
        """Show a line that a command of a step has just printed."""
        ...

    def hear(self, message: str, chunks: Sequence[tuple[ChunkKind, str]]) -> None:
        """Show what an agent has just said."""
        ...

    def close(self) -> None:
        """Leave the screen as plain text."""
        ...


class LineProgress:
    """A line per event: for pipes, files and programs."""

    def __init__(self, out: Output) -> None:
        self.narrator = Narrator()
        self.is_at_work = False
        self._out = out

    def observe(self, run: Run, events: Sequence[ev.Event]) -> None:
        self.is_at_work = is_at_work(run)
        for line in self.narrator.lines(run, events):
            self._out.say(line.text)

    def show(self, step: str, stream: str, text: str) -> None:
        self._out.say(printed(step, text).text)

    def hear(self, message: str, chunks: Sequence[tuple[ChunkKind, str]]) -> None:
        for line in self.narrator.hear(message, chunks):
            self._out.say(line.text)

    def close(self) -> None:
        self.is_at_work = False


def is_at_work(run: Run) -> bool:
    """Whether the run is held and a step is open."""
    return bool(run.open_steps) and run.worker is not None


def make_progress(out: Output) -> Progress:
    """The progress that suits the output. Only a terminal pays for importing the live display."""
    if out.is_live:
        from onward.cli.print.live import LiveProgress, can_move

        if can_move():
            return LiveProgress(out)
    return LineProgress(out)
