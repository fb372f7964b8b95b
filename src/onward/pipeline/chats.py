"""What a pipeline says about chats: which of its steps a resume needs, and what messages do to its runs."""

from __future__ import annotations

from onward.errors import ConditionError
from onward.pipeline.condition import Condition, parse_condition
from onward.pipeline.value import Value, as_boolean, as_text

REQUIRED = "required_for_resume"
ON_MESSAGE, ON_MESSAGE_RULES = "on_message", ("auto", "ask", "never")
WHILE_RUNNING, WHILE_RUNNING_RULES = "while_running", ("queue", "steer")
_NEVER_KNOWN = ("outcome", "preferred_label")


def as_requirement(value: Value) -> bool | Condition:
    """Whether a step must have finished before its run is resumed: always, never, or where a condition holds.

    A word by itself is no condition here: it would hold for a value that nothing sets.
    """
    if isinstance(value, bool) or as_text(value).strip() in ("true", "false"):
        return as_boolean(value)
    expected = "true, false, or a condition on inputs such as intent=build"
    try:
        found = parse_condition(as_text(value))
    except ConditionError as error:
        raise ValueError(f"{expected}: {error.message}") from None
    if not found.clauses or any(not one.operator or one.key in _NEVER_KNOWN for one in found.clauses):
        raise ValueError(expected)
    return found
