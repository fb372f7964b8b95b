"""Calls whose answer is a person's: the question is a gate, and the attempt is held until it is decided."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from onward.engine.calls.holding import Holding
from onward.engine.log.appender import Appender
from onward.engine.step.shielded import unbroken
from onward.errors import InvalidInput
from onward.handlers.calls import StepQuestion
from onward.machine.decide.calls import finish_call, open_attempt, question_changed
from onward.model.call import CallFinished, CallKind, CallStatus, gate_of_call
from onward.model.events import StepStarted
from onward.model.gate import Decision

GATE = CallKind.GATE.value


def check_kind(finished: CallFinished, *, is_question: bool) -> None:
    """Refuse a key that a call and a question of one step share."""
    if (finished.type == GATE) is not is_question:
        raise InvalidInput(
            f"{finished.call!r} names a call and a question of step {finished.step}; choose another key."
        )


def decision_of(question: StepQuestion, finished: CallFinished, recorded: Mapping[str, Any]) -> Decision:
    """A remembered answer. It counts only for the question that was asked."""
    if recorded["question"] != question.hash:
        raise question_changed(finished.step, finished.call)
    return question.decision(recorded, finished.by)


async def take_answer(
    appender: Appender, holding: Holding, started: StepStarted, call: str, number: int, question: StepQuestion
) -> CallFinished:
    """The answer to a question, recorded as that of its call.

    Without one the question is put to people, the attempt is held, and this never returns: the next time the
    handler comes here, there is an answer.
    """
    opened = open_attempt(appender.run, started.step, started.attempt)
    gate_id = gate_of_call(started.step, call, 0 if opened.calls is None else opened.calls.generation)
    gate = appender.run.gates.get(gate_id)
    if gate is not None and gate.question != question.hash:
        raise question_changed(started.step, call)
    if gate is None or gate.decided is None:
        await holding.wait_for_answer(call, gate_id, question)
    assert gate is not None
    finished = CallFinished(
        step=started.step,
        attempt=started.attempt,
        call=call,
        number=number,
        status=CallStatus.OK,
        type=GATE,
        value=question.recorded(gate),
        by=gate.by,
    )
    written = await unbroken(appender.record(partial(finish_call, finished=finished)))
    return next(event for event in written if isinstance(event, CallFinished))
