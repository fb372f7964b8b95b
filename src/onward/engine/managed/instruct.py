"""A manager's instructions: the agent is asked in its own task, so a slow model delays nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from onward.clock import Clock
from onward.engine.managed.child import ManagedRuns
from onward.engine.managed.settings import MANAGER
from onward.errors import Refused
from onward.handlers.port import Handler, StepContext
from onward.machine.decide.requests import STEERING_CHARACTERS_MAX
from onward.model.events import StepStatus
from onward.model.run import Run

INSTRUCTION = "stack.steer"  # where an agent may put an instruction that is longer than a response


class Instructor:
    """Asks for one instruction at a time, and not for another before the child has taken it."""

    def __init__(
        self, runs: ManagedRuns, clock: Clock, agent: Handler, step: StepContext, cooldown_s: float
    ) -> None:
        self._runs, self._clock, self._agent, self._step = runs, clock, agent, step
        self._cooldown_s, self._asked_s = cooldown_s, clock.awake_s()
        self._asking: asyncio.Task[None] | None = None
        self._given = 0
        self._trouble = ""

    def consider(self, child: Run, seen: Mapping[str, Any]) -> None:
        """Ask, if the child has nothing to take yet and the last question is long enough ago."""
        is_asking = self._asking is not None and not self._asking.done()
        if is_asking or child.steering or self._clock.awake_s() - self._asked_s < self._cooldown_s:
            return
        self._asked_s = self._clock.awake_s()
        self._asking = asyncio.create_task(self._instruct(child.id, seen))

    async def _instruct(self, child: str, seen: Mapping[str, Any]) -> None:
        """Ask and steer. If the model fails, the child continues, and the failure is noted."""
        asking = self._step.asking(seen, execution=self._given + 1)
        try:
            said = await self._agent.run(asking)
            if said.status not in (StepStatus.SUCCESS, StepStatus.PARTIAL_SUCCESS):
                self._trouble = f"no instruction could be given: {said.failure_reason}"
                return
            updates = said.context_updates
            text = str(updates.get(INSTRUCTION) or updates.get("last_response") or "").strip()
            if text:
                await self._runs.steer(child, text[:STEERING_CHARACTERS_MAX], by=MANAGER)
                self._given += 1
        except Refused:
            return  # the child has ended meanwhile
        except Exception as error:
            self._trouble = f"no instruction could be given: {type(error).__name__}: {error}"

    def notes(self) -> list[str]:
        """What there is to say about it."""
        given = [f"steered {self._given} times"] if self._given else []
        return given + ([self._trouble] if self._trouble else [])

    async def end(self) -> None:
        """End the question that is under way, if there is one."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
