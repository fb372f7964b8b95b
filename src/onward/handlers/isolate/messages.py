"""The messages between Onward and the process of an isolated function: JSON with closed schemas.

The request comes on standard input. The answer goes to standard output, which the function cannot use: what
it prints goes to standard error.
"""

from __future__ import annotations

from typing import Any

import msgspec

from onward.errors import InvalidInput
from onward.handlers.function import as_result
from onward.model.context import check_updates, plain_text
from onward.model.result import LOG_LINES_MAX, Result

REQUEST_BYTES_MAX = ANSWER_BYTES_MAX = 64 * 1024 * 1024


class Closed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Refuses unknown fields."""


class IsolatedNode(Closed, frozen=True, kw_only=True):
    """The step's node, with its attributes as texts."""

    id: str
    label: str
    attributes: dict[str, str]

    def text(self, key: str, default: str = "") -> str:
        """The attribute as text, or `default` if it was not written."""
        return self.attributes.get(key, default)


class IsolatedStep(Closed, frozen=True, kw_only=True):
    """One attempt of one step for an isolated function: the fields of a StepContext as plain values."""

    run_id: str
    pipeline: str
    step: str
    node: IsolatedNode
    attempt: int
    execution: int
    retries: int
    idempotency_key: str
    goal: str
    prompt: str
    context: dict[str, Any]
    fidelity: str
    thread: str
    steering: tuple[str, ...]
    is_continued: bool
    directory: str | None
    run_directory: str | None
    workdir: str | None
    workspace: str | None
    lines: list[str] = []

    def get(self, key: str, default: Any = None) -> Any:
        """One context value."""
        return self.context.get(key, default)

    def log(self, text: str) -> None:
        """Record a line for people who read the run later; it is stored when the attempt ends."""
        if len(self.lines) <= LOG_LINES_MAX:  # one more than are kept, to say that there were more
            self.lines.append(plain_text(text, "a line for the log"))


class Request(Closed, frozen=True, kw_only=True):
    """Which function to call, where to find modules, and for which step. `by` is the module that calls it."""

    path: list[str]
    by: str = "onward.handlers.isolate.calling"
    module: str
    function: str
    step: IsolatedStep


class Outcome(Closed, frozen=True, kw_only=True):
    """A Result, as far as a function can decide it."""

    status: str
    context_updates: dict[str, Any]
    preferred_label: str
    suggested_next_ids: tuple[str, ...]
    notes: str
    failure_reason: str
    retryable: bool
    log: tuple[str, ...]
    response: str
    is_decided: bool


class Answer(Closed, frozen=True, kw_only=True):
    """The result of the call: an outcome, or an error. `lines` are for the run's log.

    `error` is the type of the error, and `traceback` where it was raised.
    """

    lines: list[str]
    outcome: Outcome | None = None
    raised: str | None = None
    retryable: bool = True
    error: str = ""
    traceback: str = ""

    def __post_init__(self) -> None:
        if (self.outcome is None) == (self.raised is None):
            raise ValueError("an answer is either an outcome or an error")

    @property
    def result(self) -> Result:
        if self.outcome is None:
            return Result.fail(self.raised or "", retryable=self.retryable)
        return Result(**msgspec.structs.asdict(self.outcome))


def outcome_of(returned: object, node_id: str) -> Outcome:
    """What a function returned, if it can be sent; InvalidInput says what is wrong with it."""
    result = as_result(returned, node_id)
    check_updates(result.context_updates)
    told = {name: getattr(result, name) for name in Outcome.__struct_fields__}
    return Outcome(**{**told, "status": result.status.value, "context_updates": dict(result.context_updates)})


def encoded(answer: Answer) -> bytes:
    """The answer to send; one that is too large becomes an error."""
    sent = msgspec.json.encode(answer)
    if len(sent) <= ANSWER_BYTES_MAX:
        return sent
    why = (
        f"it returned {len(sent):,} bytes; at most {ANSWER_BYTES_MAX >> 20} MiB can be returned. "
        "Put large data into step.directory, below artifacts/."
    )
    return msgspec.json.encode(Answer(lines=answer.lines, raised=why, retryable=False))


def asked(request: msgspec.Struct, step: str) -> bytes:
    """The request to send."""
    sent = msgspec.json.encode(request)
    if len(sent) > REQUEST_BYTES_MAX:
        raise InvalidInput(
            f"the context of step {step} is {len(sent):,} bytes of JSON; "
            f"an isolated function gets at most {REQUEST_BYTES_MAX >> 20} MiB. Keep the rest in artifacts."
        )
    return sent
