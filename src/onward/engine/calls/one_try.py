"""One try of a call, as its events tell of it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from onward.engine.calls.told import told
from onward.errors import CallFailed
from onward.handlers.calls import CallAnswer, CallOptions
from onward.model.call import CallFinished, CallLost, CallStarted, CallStatus, Streamed
from onward.model.context import check_value
from onward.model.events import StepStarted


class OneTry(msgspec.Struct, frozen=True):
    """Try `number` of the call `key` in an attempt."""

    attempt: StepStarted
    key: str
    number: int
    options: CallOptions

    def started(self, streamed: Streamed | None) -> CallStarted:
        """It begins; its text grows in a message, if it has one."""
        options = self.options
        return CallStarted(
            step=self.attempt.step,
            attempt=self.attempt.attempt,
            call=self.key,
            number=self.number,
            type=options.type,
            name=options.name,
            definition=options.definition,
            repeatable=options.repeatable,
            reserved=options.reserved,
            streamed=streamed,
            model=options.model,
            thread=options.thread,
            shortened_to=options.shortened_to,
            nodes=dict(options.nodes),
            about=options.about,
            steering=len(options.steering),
        )

    def answered(self, value: Any, duration_us: int) -> CallFinished:
        """It has an answer: a JSON value or bytes, or a `CallAnswer` with what else is known of it."""
        answer = value if isinstance(value, CallAnswer) else CallAnswer(value)
        value = answer.value
        content = bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None
        if content is None:
            check_value(value, f"the result of call {self.key!r}")
        return CallFinished(
            step=self.attempt.step,
            attempt=self.attempt.attempt,
            call=self.key,
            number=self.number,
            status=CallStatus.OK,
            type=self.options.type,
            name=self.options.name,
            value=value if content is None else None,
            content=content,
            is_bytes=content is not None,
            usage=answer.usage,
            cost_micro=answer.cost_micro,
            model=answer.model or self.options.model,
            request_id=answer.request_id,
            thread=answer.thread,
            nodes=dict(answer.nodes),
            duration_us=duration_us,
            about=self.options.about,
        )

    def failed(self, error: Exception, duration_us: int) -> CallFinished:
        """It ended in an error."""
        failed = replace(self.answered(None, duration_us), status=CallStatus.ERROR, error=told(error))
        if isinstance(error, CallFailed):
            failed = replace(failed, is_cost_unknown=error.may_have_cost)
        return failed

    def lost(self, error: Exception) -> CallLost:
        """It will never be answered, and may have done its work."""
        return CallLost(step=self.attempt.step, call=self.key, number=self.number, why=str(error))
