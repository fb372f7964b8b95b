"""What a flow waits for: a time, or the answer of a person. Meanwhile it holds no process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onward.errors import InvalidInput
from onward.flows.durations import seconds_of
from onward.flows.running import Asked, FlowRun, Parked, asked_with, scope_here
from onward.flows.scope import Scope
from onward.handlers.calls import CallOptions, StepQuestion, step_question
from onward.model.call import CallKind
from onward.model.gate import Decision, asked_about
from onward.model.values import rfc3339
from onward.pipeline.gate import YES_NO


async def sleep(duration: str | float) -> None:
    """Wait: "30s", "10m", "2d" or a number of seconds. The run holds no process meanwhile."""
    scope, flow = _here("sleep")
    seconds = seconds_of(duration, "the length of a sleep", least=0)
    asked = asked_with("sleep", CallKind.TIMER.value, {"seconds": seconds})
    key, past = flow.begin(scope, asked)
    if past is not None and past.is_answered:
        due_us: int = await flow.replayed(scope, past, int)
    else:

        async def begin() -> int:
            return flow.recorder.now_us() + round(seconds * 1_000_000)

        options = CallOptions(type=CallKind.TIMER.value, name="sleep", inputs=asked.inputs, about=asked.about)
        due_us = (await flow.live(scope, key, begin, options, past)).value
    scope.last_us = max(scope.last_us, due_us)
    await flow.wait_until(key, due_us, f"until {rfc3339(due_us)} ({key})")


async def ask(
    question: str,
    *,
    choices: Sequence[str] | None = None,
    type: str | None = None,
    about: str = "",
    default: str = "",
    timeout: str | float | None = None,
    on_timeout: str = "none",
    remind: str | float | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Decision:
    """Ask a person, and return the answer: the `choice`, the text, and who answered.

    Without `choices` the answer is yes or no; `type="freeform"` asks for text. The question is open at once,
    while other branches continue. A no is an answer, too. After `timeout` the choice `default` applies, or a
    no with `on_timeout="reject"`.
    """
    scope, flow = _here("ask")
    if choices is None and type in (None, YES_NO):
        choices, type = ["yes", "no"], YES_NO
    put = step_question(
        "ask",
        question,
        choices=choices,
        type=type,
        default=default,
        on_timeout=on_timeout,
        about=about,
        timeout_s=None if timeout is None else seconds_of(timeout, "the timeout of a question"),
        remind_s=None if remind is None else seconds_of(remind, "remind of a question"),
        metadata=metadata,
    )
    if any(flow.step.redactor.redact(choice.label) != choice.label for choice in put.choices):
        raise InvalidInput(f"a choice of the question {question!r} contains a secret; use other words.")
    asked = Asked("ask", CallKind.GATE.value, put.hash, asked_about(put.text))
    key, past = flow.begin(scope, asked)
    if past is not None and past.is_answered:
        recorded = await flow.replayed(scope, past, Any)
        return put.decision(recorded, recorded["by"])
    patches = flow.riding(scope, past)
    recorded = await _answered(flow, scope, key, put, patches)
    return put.decision(recorded, recorded["by"])


async def _answered(
    flow: FlowRun, scope: Scope, key: str, put: StepQuestion, patches: tuple[str, ...]
) -> dict[str, Any]:
    recorder = flow.recorder
    await flow.guarded(recorder.put(key, put, patches))
    answered = await flow.guarded(recorder.taken(key, put, patches))
    if answered is None:
        async with flow.parked(key, Parked(f"for an answer ({key})", is_asked=True)):
            while answered is None:
                await flow.guarded(recorder.rest(None, looks=True))
                answered = await flow.guarded(recorder.taken(key, put, patches))
    scope.last_us = answered.at_us
    value: dict[str, Any] = answered.value
    return value


def _here(what: str) -> tuple[Scope, FlowRun]:
    scope = scope_here(what)
    assert scope.flow is not None
    return scope, scope.flow
