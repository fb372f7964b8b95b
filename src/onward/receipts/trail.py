"""From a log to receipts and handoffs: which events leave one, and its content.

Only the log and the definition are read, so a receipt that is written before its event is committed and one
that is made from the log years later are the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from onward.errors import HistoryCorrupt
from onward.machine.definition import AGENT, PLANNER_KINDS, TOOL, Definition, is_simulated
from onward.model import events as ev
from onward.model.call import AttemptHeld
from onward.model.gate import GateDecided, GateWithdrawn
from onward.model.ids import branch_of, is_in_step, node_of, place_of
from onward.model.run import Simulation, simulation_of
from onward.model.values import rfc3339
from onward.read.log import Projection, Step, StepUsage, Try
from onward.receipts import folder as folders
from onward.receipts import receipt as shapes

TIMED_OUT = "timed out"
_STATUS: Mapping[str, shapes.Status] = {
    ev.StepStatus.SUCCESS: "succeeded",
    ev.StepStatus.PARTIAL_SUCCESS: "succeeded",
    ev.StepStatus.SKIPPED: "skipped",
    "interrupted": "interrupted",
    "held": "interrupted",
}


class Leaving(msgspec.Struct, frozen=True):
    """What an event leaves: the receipt of a step, and if the step is finished for ever, its handoff.

    `content` is the receipt as its file holds it.
    """

    node: str
    name: str
    receipt: shapes.Receipt
    content: bytes
    handoff: shapes.Handoff | None


class Ending(msgspec.Struct, frozen=True):
    """How a step ended at an event, or the state of one that is still open."""

    status: shapes.Status
    why: str
    log: tuple[str, ...] = ()
    finished: ev.StepFinished | None = None


class ReceiptSetting(msgspec.Struct, frozen=True):
    """Where and when that was: the run, the event, and the step that had finished before in the same line."""

    run_id: str
    flow: str
    workdir: str | None
    simulation: Simulation | None
    sequence: int
    at_us: int
    previous: str | None
    recorded_in: str
    commit: str = ""
    """The commit with all files of the workspace before the step, if the run has one."""


def leaving(setting: ReceiptSetting, begun: Step, ending: Ending, definition: Definition) -> Leaving:
    """The pages of a step that ended so."""
    step, finished = begun.step, ending.finished
    node_id = node_of(place_of(step))
    node, kind = definition.graph.nodes[node_id], definition.kind(node_id)
    agent = node.text("agent") or kind
    name, flow = folders.step_file(step, agent), folders.flow_name(setting.flow)
    receipt = shapes.Receipt(
        schema_version=shapes.SCHEMA_VERSION,
        run_id=setting.run_id,
        flow_key=setting.flow,
        step_id=step,
        node=node_id,
        branch=branch_of(step),
        visit=int(step.rpartition("#")[2]),
        agent_key=agent,
        engine=kind,
        mode=_mode(kind, setting),
        provider=(node.llm_provider or None) if kind == AGENT else None,
        model=(node.llm_model or None) if kind == AGENT else None,
        status=ending.status,
        started_at=rfc3339(begun.started_at_us),
        completed_at=rfc3339(setting.at_us),
        duration_ms=_duration_ms(begun, setting.at_us),
        sequence=setting.sequence,
        previous=setting.previous,
        attempts=tuple(map(_tried, begun.tries)),
        error=ending.why or None,
        tokens=None,
        transcript_path=_transcript(step, begun, finished),
        handoff_envelope_path=None if finished is None else f"{flow}/{folders.HANDOFFS}/{name}",
        routing=None if finished is None else _routing(finished),
        artifacts=() if finished is None else _artifacts(finished),
        log=ending.log,
        workspace_root=setting.workdir,
        recorded_in=setting.recorded_in,
    )
    receipt = (
        receipt if begun.spent is None else _with_calls(receipt, begun.spent, _commits(setting, finished))
    )
    path, content = f"{flow}/{folders.RECEIPTS}/{name}", shapes.written(receipt)
    handoff = None
    if finished is not None:
        decisions = tuple(map(decision, begun.decisions))
        handoff = _handoff(receipt, finished, decisions, path=path, hash=shapes.hash_of(content))
    return Leaving(node_id, name, receipt, content, handoff)


def _commits(setting: ReceiptSetting, finished: ev.StepFinished | None) -> shapes.Commits | None:
    """A step that says nothing of the workspace left it as it was."""
    if not setting.commit:
        return None
    tree = None if finished is None else finished.workspace
    return shapes.Commits(before=setting.commit, after=setting.commit if tree is None else tree.commit)


def _with_calls(receipt: shapes.Receipt, spent: StepUsage, commits: shapes.Commits | None) -> shapes.Receipt:
    """The receipt with what the recorded calls of its step came to."""
    tokens = shapes.Tokens(prompt=spent.input, completion=spent.output, total=spent.input + spent.output)
    used = shapes.Used(
        input=spent.input,
        output=spent.output,
        cached=spent.cached,
        cache_write=spent.cache_write,
        reasoning=spent.reasoning,
    )
    made = shapes.Made(
        models=spent.model_calls,
        programs=spent.program_calls,
        tools=spent.tool_calls,
        functions=spent.function_calls,
        failed=spent.failed,
        lost=spent.lost,
    )
    fields = {name: getattr(receipt, name) for name in shapes.Receipt.__struct_fields__}
    fields |= {"schema_version": shapes.CALLING_VERSION, "tokens": tokens if spent.is_measured else None}
    return shapes.CallingReceipt(
        **fields,
        usage=used if spent.is_measured else None,
        cost_micro=spent.cost_micro,
        calls=made,
        models=spent.models,
        workspace=commits,
    )


def _duration_ms(begun: Step, at_us: int) -> int:
    """How long its tries took; a step without tries takes from its start to this event."""
    if begun.tries:
        return round((begun.duration_s or 0) * 1_000)
    return max(0, at_us - begun.started_at_us) // 1000


def status_of(outcome: str, reason: str) -> shapes.Status:
    """What a receipt calls the outcome of a step or an attempt."""
    return _STATUS.get(outcome) or ("timed_out" if reason.startswith(TIMED_OUT) else "failed")


def decision(event: GateDecided) -> str:
    """Who decided a gate, and how."""
    words = f": {event.text}" if event.text else ""
    return f"{event.by} chose {event.choice.label!r}{words}"


def _tried(one: Try) -> shapes.Tried:
    is_ended = one.ended_at_us is not None
    return shapes.Tried(
        attempt=one.attempt,
        number=one.number,
        started_at=rfc3339(one.started_at_us),
        ended_at=None if one.ended_at_us is None else rfc3339(one.ended_at_us),
        status=status_of(one.outcome, one.reason) if is_ended else "lost",
        reason=one.reason,
    )


def _mode(kind: str, setting: ReceiptSetting) -> shapes.Mode:
    if kind in PLANNER_KINDS:
        return "control"
    if is_simulated(setting.simulation, kind):
        return "stub"
    return "cli" if kind == TOOL else "sdk"


def _handoff(
    receipt: shapes.Receipt, finished: ev.StepFinished, decisions: tuple[str, ...], *, path: str, hash: str
) -> shapes.Handoff:
    outcome = finished.outcome
    assert receipt.routing is not None
    return shapes.Handoff(
        schema_version=shapes.SCHEMA_VERSION,
        run_id=receipt.run_id,
        flow_key=receipt.flow_key,
        step_id=receipt.step_id,
        agent_key=receipt.agent_key,
        sequence=receipt.sequence,
        timestamp=receipt.completed_at,
        status=receipt.status,
        verification=_verification(receipt, outcome),
        summary=_shortened(outcome.failure_reason or outcome.notes or finished.response),
        routing_signal=receipt.routing,
        artifacts=receipt.artifacts,
        context_changes=tuple(sorted({*finished.context, *finished.grown})),
        decisions_made=decisions,
        concerns=_concerns(receipt, outcome),
        error=receipt.error,
        duration_ms=receipt.duration_ms,
        receipt_path=path,
        receipt_hash=hash,
    )


def _verification(receipt: shapes.Receipt, outcome: ev.Outcome) -> shapes.Verification:
    """An exit code and a rule of the engine are evidence; what a step says about itself is not."""
    if receipt.status in ("failed", "timed_out"):
        return "BLOCKED"
    is_seen = receipt.mode in ("cli", "control") and outcome.status is ev.StepStatus.SUCCESS
    return "VERIFIED" if is_seen else "UNVERIFIED"


def _concerns(receipt: shapes.Receipt, outcome: ev.Outcome) -> tuple[shapes.Concern, ...]:
    found = [
        shapes.Concern(
            severity="low", text=f"attempt {one.attempt} {one.status.replace('_', ' ')}" + _because(one)
        )
        for one in receipt.attempts[:-1]
    ]
    if outcome.status is ev.StepStatus.PARTIAL_SUCCESS:
        found.append(shapes.Concern(severity="medium", text="the step succeeded only in part"))
    if receipt.status == "skipped":
        found.append(shapes.Concern(severity="medium", text="the step was skipped"))
    if receipt.error is not None and receipt.status != "skipped":
        found.append(shapes.Concern(severity="high", text=receipt.error))
    return tuple(found)


def _because(one: shapes.Tried) -> str:
    return f": {one.reason}" if one.reason else ""


def _transcript(step: str, begun: Step, finished: ev.StepFinished | None) -> str | None:
    if finished is None or not finished.response or not begun.tries:
        return None
    last = begun.tries[-1]
    return "/".join((*folders.attempt_path(step, last.attempt, last.number), folders.RESPONSE))


def _routing(finished: ev.StepFinished) -> shapes.Routing:
    onward, outcome = finished.next, finished.outcome
    return shapes.Routing(
        to=None if onward is None else onward.to,
        reason="nothing follows" if onward is None else onward.reason,
        edge=None if onward is None else onward.edge,
        preferred_label=outcome.preferred_label,
        suggested_next_ids=outcome.suggested_next_ids,
    )


def _artifacts(finished: ev.StepFinished) -> tuple[shapes.Evidence, ...]:
    return tuple(
        shapes.Evidence(
            id=id,
            name=artifact.name,
            path=f"{folders.ARTIFACTS}/{folders.artifact_name(id)}",
            size_bytes=artifact.size,
            hash=artifact.hash,
        )
        for id, artifact in sorted(finished.artifacts.items())
        if artifact is not None
    )


def _shortened(text: str) -> str:
    return (
        text
        if len(text) <= shapes.SUMMARY_CHARACTERS_MAX
        else f"{text[: shapes.SUMMARY_CHARACTERS_MAX - 1]}…"
    )


class Trail(msgspec.Struct):
    """A run's open steps as far as its log was taken in."""

    run_id: str
    flow: str
    pipeline_hash: str = ""
    workdir: str | None = None
    simulation: Simulation | None = None
    _log: Projection = msgspec.field(default_factory=Projection)
    _last: Mapping[str, str] = msgspec.field(default_factory=dict)
    _commits: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The last known commit of the workspace, by branch."""

    @property
    def head(self) -> int:
        """The number of the last event."""
        return self._log.head

    def copy(self) -> Trail:
        """The same, to take in events that may never be committed."""
        return replace(self, _log=self._log.copy())

    def learn(self, event: ev.Event) -> None:
        """What the event says of the run as a whole; before `take`, which needs the run's definition."""
        if isinstance(event, ev.RunCreated):
            self.workdir, self.simulation = event.workdir, simulation_of(event)
            if event.workspace is not None:
                self._commits = {"": event.workspace.start.commit}
        if isinstance(event, ev.WorkdirChanged):
            self.workdir = event.workdir
        if isinstance(event, ev.RunCreated | ev.PipelineChanged):
            self.pipeline_hash = event.pipeline_hash

    def take(
        self, event: ev.Event, definition: Definition, *, at_us: int, recorded_in: str = ""
    ) -> Leaving | None:
        """Take in the event after `head`. `definition` is the one that the run had then."""
        step, ending = self._log.apply(event, at_us=at_us), _ending(event)
        if step is None or ending is None:
            return None
        node = node_of(place_of(step.step))
        if node not in definition.graph.nodes:  # a log that was written by hand, and imported
            raise HistoryCorrupt(self.run_id, self.head, f"the pipeline of {step.step} has no node {node!r}")
        line = branch_of(step.step)
        setting = ReceiptSetting(
            run_id=self.run_id,
            flow=self.flow,
            workdir=self.workdir,
            simulation=self.simulation,
            sequence=self.head,
            at_us=at_us,
            previous=self._last.get(line),
            recorded_in=recorded_in or self.run_id,
            commit=self._commits.get(line) or self._commits.get("", ""),
        )
        left = leaving(setting, step, ending, definition)
        if ending.finished is not None:
            inside = f"{step.step}."
            before = {at: last for at, last in self._last.items() if not at.startswith(inside)}
            self._last = {**before, line: step.step}
            self._log.forget(step.step)
            if (tree := ending.finished.workspace) is not None:
                self._commits = {**self._commits, line: tree.commit}
        return left


def _ending(event: ev.Event) -> Ending | None:
    """How a step ended at this event; None if it continues, or the event is not about a step."""
    match event:
        case GateDecided(gate=gate) | GateWithdrawn(gate=gate) if is_in_step(gate):
            return None  # the receipt of its step has what came of it
        case GateDecided(rejected=True):
            return Ending("failed", f"rejected: {decision(event)}")
        case GateWithdrawn():
            return Ending("interrupted", "the question was withdrawn")
        case AttemptHeld(reason="pause" | "limit", detail=why) | ev.AttemptInterrupted(why=why):
            return Ending("interrupted", why)
        case ev.AttemptFailed(reason=reason, retry_at_us=None):
            return Ending(status_of(event.status, reason), reason, event.log)
        case ev.StepFinished(outcome=outcome):
            why = outcome.failure_reason
            return Ending(status_of(outcome.status, why), why, event.log, event)
    return None
