"""The spans of a run, its steps and its calls, as values: made from events that were committed.

A run is one trace, whoever executes it and however often it stops: its ids follow from the id of the run, so
that a process which resumes it knows them without asking. A span is made when what it is about has ended.

    run ── step ── attempt that failed
     │      └──── call of a model, a tool, a function
     └── holding: from the claim of a process to the stop
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from blake3 import blake3

from onward.model import events as ev
from onward.model.call import CallFinished, CallKind, CallLost, CallStarted, CallStatus
from onward.model.events import Event
from onward.model.run import Run, RunStatus

Attribute = str | int | float | bool
PROVIDERS = {"openai": "openai", "anthropic": "anthropic", "google": "gcp.gemini"}
"""The names of providers in the conventions; others keep their own."""
STOPS = (ev.RunPaused, ev.RunInterrupted, ev.RunFailed, ev.RunWaiting, ev.RunQueued)
ENDS = (ev.RunCompleted, ev.RunCancelled)
WHY_MAX = 500


class RunSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span that has ended. `linked_run`: the run that this one came from or is managed by."""

    name: str
    trace: int
    span: int
    parent: int | None
    begun_at_us: int
    ended_at_us: int
    attributes: Mapping[str, Attribute]
    is_request: bool = False
    error: str = ""
    linked_run: str | None = None


def trace_id(run_id: str) -> int:
    """The trace of a run."""
    return int.from_bytes(blake3(f"trace {run_id}".encode()).digest(length=16), "big")


def span_id(run_id: str, *place: object) -> int:
    """The span of a run, or of a place in it: a step, an attempt, a call."""
    text = "\0".join(("span", run_id, *map(str, place)))
    return int.from_bytes(blake3(text.encode()).digest(length=8), "big") or 1


class SpanMaker:
    """Makes the spans of what this process commits; it remembers when what is under way began."""

    def __init__(self) -> None:
        self._before: dict[str, Run] = {}
        self._held_us: dict[str, int] = {}
        self._calls_us: dict[tuple[str, str, str, int], int] = {}

    def spans(self, run: Run, events: Sequence[Event]) -> Iterator[RunSpan]:
        """The spans that these events end; `run` is the state after them."""
        for event in events:
            match event:
                case ev.RunClaimed():
                    self._held_us[run.id] = run.updated_at_us
                case CallStarted():
                    self._calls_us[self._call(run, event)] = run.updated_at_us
                case CallFinished() | CallLost():
                    yield self._of_call(run, event)
                case ev.AttemptFailed() | ev.AttemptInterrupted():
                    yield self._of_attempt(run, event)
                case ev.StepFinished():
                    yield self._of_step(run, event)
        if any(isinstance(event, (*STOPS, *ENDS)) for event in events):
            yield from self._of_run(run, events)
        if run.worker is None:
            self._forget(run.id)
        else:
            self._before[run.id] = run

    def _of_run(self, run: Run, events: Sequence[Event]) -> Iterator[RunSpan]:
        root, now_us = span_id(run.id), run.updated_at_us
        is_broken = run.status in (RunStatus.FAILED, RunStatus.INTERRUPTED)
        why = f"{run.reason}: {run.detail}".removesuffix(": ") if is_broken else ""
        about: dict[str, Attribute] = {"onward.run.status": run.status.value}
        if run.reason:
            about["onward.run.reason"] = run.reason
        if (held_us := self._held_us.get(run.id)) is not None:
            yield self._span(
                run,
                f"hold {run.pipeline}",
                span_id(run.id, "held", run.token),
                parent=root,
                begun_at_us=held_us,
                attributes={**about, "onward.lease.token": run.token},
                error=why,
            )
        if any(isinstance(event, ENDS) for event in events):
            about |= {
                "onward.steps_finished": run.steps_finished,
                "onward.cost_usd": run.cost_micro / 1_000_000,
            }
            yield self._span(
                run,
                f"run {run.pipeline}",
                root,
                parent=None,
                begun_at_us=run.created_at_us,
                attributes=about,
                error="" if run.status == "completed" else run.reason,
                linked_run=_origin(run),
                ended_at_us=run.ended_at_us or now_us,
            )

    def _of_step(self, run: Run, event: ev.StepFinished) -> RunSpan:
        opened = self._before.get(run.id, run).open_steps.get(event.step)
        status = event.outcome.status
        return self._span(
            run,
            f"step {event.node}",
            span_id(run.id, event.step),
            parent=span_id(run.id),
            begun_at_us=opened.opened_at_us if opened and opened.opened_at_us else run.updated_at_us,
            attributes={
                "onward.step": event.step,
                "onward.node": event.node,
                "onward.step.status": status.value,
                "onward.step.attempts": event.attempt,
            },
            error=event.outcome.failure_reason or "failed" if status is ev.StepStatus.FAIL else "",
        )

    def _of_attempt(self, run: Run, event: ev.AttemptFailed | ev.AttemptInterrupted) -> RunSpan:
        opened = self._before.get(run.id, run).open_steps.get(event.step)
        begun_us = opened.began_at_us if opened and opened.began_at_us else run.updated_at_us
        why = event.reason if isinstance(event, ev.AttemptFailed) else event.why
        return self._span(
            run,
            f"attempt {event.attempt}",
            span_id(run.id, event.step, "attempt", event.attempt, begun_us),
            parent=span_id(run.id, event.step),
            begun_at_us=begun_us,
            attributes={"onward.step": event.step, "onward.attempt": event.attempt},
            error=why or "failed",
        )

    def _of_call(self, run: Run, event: CallFinished | CallLost) -> RunSpan:
        begun_us = self._calls_us.pop(self._call(run, event), run.updated_at_us)
        name, about, error = f"call {event.call}", dict[str, Attribute](), ""
        is_model = False
        if isinstance(event, CallFinished):
            begun_us = min(begun_us, run.updated_at_us - event.duration_us)
            name, about = call_words(event)
            is_model = event.type == CallKind.MODEL
            error = "" if event.status is CallStatus.OK else event.error or "error"
            if error:
                about["error.type"] = event.failure or "error"
        else:
            error = event.why or "lost"
            about["error.type"] = "lost"
        return self._span(
            run,
            name,
            span_id(run.id, event.step, event.call, event.number),
            parent=span_id(run.id, event.step),
            begun_at_us=begun_us,
            attributes={
                "onward.step": event.step,
                "onward.call": event.call,
                "onward.call.try": event.number,
                **about,
            },
            is_request=is_model,
            error=error,
        )

    def _span(
        self,
        run: Run,
        name: str,
        span: int,
        *,
        parent: int | None,
        begun_at_us: int,
        attributes: Mapping[str, Attribute],
        is_request: bool = False,
        error: str = "",
        linked_run: str | None = None,
        ended_at_us: int | None = None,
    ) -> RunSpan:
        own: dict[str, Attribute] = {"onward.run": run.id, "onward.pipeline": run.pipeline}
        if run.chat is not None:
            own["gen_ai.conversation.id"] = run.chat
        return RunSpan(
            name=name,
            trace=trace_id(run.id),
            span=span,
            parent=parent,
            begun_at_us=begun_at_us,
            ended_at_us=run.updated_at_us if ended_at_us is None else ended_at_us,
            attributes={**own, **attributes},
            is_request=is_request,
            error=error[:WHY_MAX],
            linked_run=linked_run,
        )

    @staticmethod
    def _call(run: Run, event: CallStarted | CallFinished | CallLost) -> tuple[str, str, str, int]:
        return run.id, event.step, event.call, event.number

    def _forget(self, run_id: str) -> None:
        self._before.pop(run_id, None)
        self._held_us.pop(run_id, None)
        for known in [known for known in self._calls_us if known[0] == run_id]:
            del self._calls_us[known]


def _origin(run: Run) -> str | None:
    """The run that this one was forked from, is managed by, or restarts."""
    if run.parent is not None:
        return run.parent.run_id
    return run.managed_by.run if run.managed_by is not None else run.restart_of


def call_words(event: CallFinished) -> tuple[str, dict[str, Attribute]]:
    """The name of a call's span and its attributes, as the conventions for generative AI have them."""
    provider, colon, model = event.model.partition(":")
    if not colon:
        provider, model = "", event.model
    about: dict[str, Attribute] = {"onward.call.type": event.type}
    match event.type:
        case CallKind.MODEL:
            name, operation = f"chat {model}".strip(), "chat"
        case CallKind.PROGRAM:
            name, operation = f"invoke_agent {event.name or model}".strip(), "invoke_agent"
        case CallKind.TOOL:
            name, operation = f"execute_tool {event.name}", "execute_tool"
            about["gen_ai.tool.name"] = event.name
        case _:
            name, operation = f"{event.type} {event.name or event.call}", ""
    if operation:
        about["gen_ai.operation.name"] = operation
    if provider:
        about["gen_ai.provider.name"] = PROVIDERS.get(provider, provider)
    if model:
        about["gen_ai.request.model"] = model
    if event.usage is not None:
        about["gen_ai.usage.input_tokens"] = event.usage.input
        about["gen_ai.usage.output_tokens"] = event.usage.output
        if event.usage.cached:
            about["gen_ai.usage.cache_read.input_tokens"] = event.usage.cached
    if event.cost_micro is not None:
        about["onward.cost_usd"] = event.cost_micro / 1_000_000
    return name, about
