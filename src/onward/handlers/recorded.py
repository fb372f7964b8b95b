"""What a step asks of the world while it runs: calls, questions and effects, each recorded in the log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from onward.errors import InvalidInput
from onward.handlers.calls import CallOptions, Recorder
from onward.handlers.plain import Functions
from onward.handlers.questions import step_question
from onward.model.call import check_call_key
from onward.model.events import StepStarted
from onward.model.gate import Decision
from onward.redact.redactor import Redactor

MakeRecorder = Callable[[StepStarted, Functions], Recorder]
_creating = threading.Lock()


def no_log(started: StepStarted, functions: Functions) -> Recorder:
    """A step that was created by hand records nothing."""
    raise InvalidInput("this step was created by hand, so it has no log to record calls in.")


class RecordedCalls:
    """The part of a StepContext that records calls."""

    __slots__ = ("_record", "_started", "functions", "recorded", "redactor")
    _started: StepStarted
    _record: MakeRecorder
    functions: Functions
    recorded: Recorder | None
    redactor: Redactor

    async def call(
        self,
        key: str,
        function: Callable[..., Any],
        *arguments: Any,
        repeatable: bool = True,
        time_limit_s: float | None = None,
        retries: int = 0,
    ) -> Any:
        """What `function(*arguments)` returns; once it has returned, it is never called again for this key.

        The answer, JSON or bytes, is recorded before it is returned; a resumed step gets it from the log. An
        exception is raised here, and the call is repeated when the step runs again. With
        `repeatable=False` the start is recorded first: if the process dies in the middle, the step is in
        doubt and a person decides. `retries` more tries follow after an exception. Calls may run at the same
        time, and inside each other if the outer one is repeatable.
        """
        options = CallOptions(repeatable=repeatable, time_limit_s=time_limit_s, retries=retries)
        options.check(check_call_key(key), function)
        self.functions.check_open()
        return await self.recorder.call(key, function, arguments, options)

    def call_sync(
        self,
        key: str,
        function: Callable[..., Any],
        *arguments: Any,
        repeatable: bool = True,
        time_limit_s: float | None = None,
        retries: int = 0,
    ) -> Any:
        """`call` for a plain function, which runs in a thread and cannot await."""
        self.functions.check_open()
        call = self.call(
            key, function, *arguments, repeatable=repeatable, time_limit_s=time_limit_s, retries=retries
        )
        return self.recorder.call_from_thread(call)

    async def ask(
        self,
        key: str,
        question: str,
        *,
        choices: Sequence[str] | None = None,
        type: str | None = None,
        about: str = "",
        default: str = "",
        timeout_s: float | None = None,
        on_timeout: str = "none",
        remind_s: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Decision:
        """Ask a person, and return the answer: which choice, what words, and who.

        The question becomes a gate. The attempt ends here, the run waits as long as it takes and occupies no
        process; when the gate is decided, the handler runs again from its beginning, its calls are answered
        from the log, and `ask` returns. A no is an answer, too: it routes nothing. Without `choices` the
        answer is yes or no; `type="freeform"` asks for words. After `timeout_s` the choice `default` counts,
        or a no with `on_timeout="reject"`. What is asked must be the same whenever the step runs: an answer
        never counts for another question.
        """
        asked = step_question(
            check_call_key(key),
            question,
            choices=choices,
            type=type,
            default=default,
            on_timeout=on_timeout,
            about=about,
            timeout_s=timeout_s,
            remind_s=remind_s,
            metadata=metadata,
        )
        if any(self.redactor.redact(choice.label) != choice.label for choice in asked.choices):
            raise InvalidInput(f"a choice of the question {key!r} has a secret in it; use other words.")
        self.functions.check_open()
        return await self.recorder.ask(key, asked)

    def ask_sync(
        self,
        key: str,
        question: str,
        *,
        choices: Sequence[str] | None = None,
        type: str | None = None,
        about: str = "",
        default: str = "",
        timeout_s: float | None = None,
        on_timeout: str = "none",
        remind_s: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Decision:
        """`ask` for a plain function, which runs in a thread and cannot await."""
        self.functions.check_open()
        asking = self.ask(
            key,
            question,
            choices=choices,
            type=type,
            about=about,
            default=default,
            timeout_s=timeout_s,
            on_timeout=on_timeout,
            remind_s=remind_s,
            metadata=metadata,
        )
        answer: Decision = self.recorder.call_from_thread(asking)
        return answer

    def call_key(self, key: str) -> str:
        """The idempotency key of a call: the same on every attempt, for the service that it calls."""
        return self.recorder.key_of(check_call_key(key))

    @property
    def recorder(self) -> Recorder:
        """Records the calls of the attempt."""
        with _creating:  # a plain function may make its first calls from several threads
            if self.recorded is None:
                self.recorded = self._record(self._started, self.functions)
        return self.recorded

    async def effect(self, key: str, function: Callable[[], Any], *, only_success: bool = False) -> Any:
        """What `function` returns; it is called at most once for this step and key, on whatever attempt.

        A call that must not be repeated (see `call`), and whose exception is its answer too, unless
        `only_success`: then the effect runs again when the step does.
        """
        self.functions.check_open()
        return await self.recorder.effect(key, function, only_success=only_success)
