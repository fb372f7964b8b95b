"""The environment variables of this process. Besides `testing/`, only this module reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from onward.model.values.tool_env import ALWAYS, Variables, is_named

VARIABLES: Mapping[str, str] = os.environ
"""The environment itself and no copy of it."""


def is_debugging() -> bool:
    """Whether errors should come with a traceback."""
    return bool(VARIABLES.get("ONWARD_DEBUG"))


def own_environment() -> dict[str, str]:
    """All variables of this process, for a process that acts on its behalf."""
    return dict(VARIABLES)


def step_key() -> str | None:
    """The idempotency key of the step whose command this process is; None outside a step."""
    return VARIABLES.get("ONWARD_IDEMPOTENCY_KEY") or None


def tool_environment(extra: tuple[str, ...] = ()) -> dict[str, str]:
    """The variables that shell commands get: some always, and those that `extra` names."""
    return {name: value for name, value in VARIABLES.items() if is_named(name, (*ALWAYS, *extra))}


def tool_variables(extra: tuple[str, ...] = ()) -> Variables:
    """The names of the variables that this process has, and of those that shell commands get."""
    return Variables(passed=frozenset(tool_environment(extra)), present=frozenset(VARIABLES))
