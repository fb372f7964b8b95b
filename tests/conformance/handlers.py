"""Handlers that follow a script and record their calls in a ledger outside of any store.

    ledger = Ledger()
    agent = Scripted({"review": [Result.retry("not yet"), Result.success()]}, ledger)

The nth execution of a node takes its nth act, and the last one repeats; a node without a script succeeds. The
number of the execution comes from the run's log, as for any handler. A test compares the ledger with the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from onward.handlers.port import StepContext
from onward.model.result import Result

Act = Result | BaseException | Callable[[StepContext], Awaitable[Result]]


class Call(msgspec.Struct, frozen=True):
    """One call of a handler."""

    run_id: str
    step: str
    node: str
    attempt: int
    idempotency_key: str
    fidelity: str
    thread: str


class Ledger:
    """Every call of a handler, in order. It does not depend on the store."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def note(self, step: StepContext) -> None:
        """Record a call."""
        self.calls.append(
            Call(
                run_id=step.run_id,
                step=step.step,
                node=step.node.id,
                attempt=step.attempt,
                idempotency_key=step.idempotency_key,
                fidelity=step.fidelity,
                thread=step.thread,
            )
        )

    @property
    def steps(self) -> list[str]:
        """The steps that were executed, once per call."""
        return [call.step for call in self.calls]

    def attempts(self, node: str) -> list[int]:
        """The attempt numbers with which a node was called."""
        return [call.attempt for call in self.calls if call.node == node]


class Scripted:
    """A handler that follows its script."""

    keeps_time = False

    def __init__(
        self, script: Mapping[str, Sequence[Act]] | None = None, ledger: Ledger | None = None
    ) -> None:
        self.script, self.ledger = dict(script or {}), ledger or Ledger()

    async def run(self, step: StepContext) -> Result:
        self.ledger.note(step)
        acts = self.script.get(step.node.id)
        if not acts:
            return Result.success()
        act = acts[min(step.execution, len(acts)) - 1]
        if isinstance(act, BaseException):
            raise act
        return act if isinstance(act, Result) else await act(step)


class Doorway:
    """An act that waits inside its step until it is opened, so that a test can act meanwhile."""

    def __init__(self, result: Result | None = None) -> None:
        self._result = result or Result.success()
        self._entered, self._opened = asyncio.Event(), asyncio.Event()
        self.was_cancelled = False

    async def __call__(self, step: StepContext) -> Result:
        self._entered.set()
        try:
            await self._opened.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return self._result

    async def entered(self) -> None:
        """Wait until a step is inside."""
        await self._entered.wait()

    def open(self) -> None:
        """Let the step inside continue, and all later ones."""
        self._opened.set()
