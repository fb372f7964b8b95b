"""Values that are the same whenever a flow runs: the time, chance, the run itself, and changes of its code.

None of them is recorded. The time is that of the branch's last answer. Chance is seeded with the place in
the history and the run that wrote what comes next there: in a fork, what the other run drew stays drawn.
"""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from uuid import UUID

import msgspec
from blake3 import blake3

from onward.flows.running import scope_here
from onward.flows.scope import Scope


def now() -> datetime:
    """The time of the last answer in this branch of the flow, in UTC: the same each time the flow runs."""
    return datetime.fromtimestamp(_going("now()").last_us / 1_000_000, UTC)


def uuid() -> UUID:
    """A random UUID that is the same each time the flow runs."""
    return UUID(bytes=_drawn(_going("uuid()"), "uuid", 16), version=4)


class Current(msgspec.Struct, frozen=True):
    """The run of a flow: its id, its attempt, and random numbers, the same each time the flow runs."""

    run_id: str
    attempt: int
    random: Random


def current() -> Current:
    """The run of the current flow."""
    scope = _going("current()")
    assert scope.flow is not None
    step = scope.flow.step
    return Current(step.run_id, step.attempt, Random(_drawn(scope, "random", 32)))


def patch(name: str) -> bool:
    """Whether to run the code guarded by `name`: false where the history was recorded without it.

    With `if patch("two-reviews"): …`, existing runs keep their old calls. It is recorded with the next
    call of its branch.
    """
    scope = _going("patch()")
    past = scope.ahead()
    is_own = past is not None and scope.at < len(scope.past) and past is scope.past[scope.at]
    written = name if past is None or is_own else f"{scope.path}|{name}"
    if past is not None and written not in past.patches:
        return False
    if name not in scope.patches:
        scope.patches = (*scope.patches, name)
    return True


def _going(what: str) -> Scope:
    """The scope of the current code; a flow that ends gets no more values."""
    scope = scope_here(what)
    assert scope.flow is not None
    scope.flow.check_going(scope, what)
    return scope


def _drawn(scope: Scope, what: str, length: int) -> bytes:
    """Bytes that depend on the place in the history, and on the run that wrote what comes next there."""
    assert scope.flow is not None
    step, past = scope.flow.step, scope.ahead()
    run_id = step.run_id if past is None else past.run_id
    scope.drawn += 1
    seed = f"{run_id}\n{step.step}\n{scope.path}\n{scope.begun}\n{scope.drawn}\n{what}"
    return blake3(seed.encode()).digest(length=length)
