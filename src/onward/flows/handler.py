"""What serves the nodes of flows: it runs the function, and says how that ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from onward.errors import FlowChanged, InvalidInput, OnwardError, StepFailed, said, told
from onward.flows.define import Flow
from onward.flows.running import FlowRun
from onward.handlers.port import StepContext
from onward.model.events import StepStatus
from onward.model.result import Result
from onward.model.stored import as_stored

FLOW_CHANGED = "flow_changed"


class FlowHandler(msgspec.Struct, frozen=True):
    """Runs a flow. Whatever ends it, the answers of its calls are kept."""

    flow: Flow[Any, Any]
    keeps_time: bool = False
    stands_in: Mapping[str, Callable[..., Any]] | None = None
    """What is called in place of the functions of steps, by their names: for tests."""

    async def run(self, step: StepContext) -> Result:
        """One attempt: the function from its beginning, with the answers that its history has."""
        flow = self.flow
        try:
            arguments = flow.arguments(step.values)
        except InvalidInput as error:
            return self._failed(said(error))
        run = FlowRun(flow.name, step, self.stands_in)
        try:
            value = await run.run(flow.begun(arguments))
        except FlowChanged as error:
            return self._failed(said(error), stop=FLOW_CHANGED)
        except StepFailed as error:
            step.output.raised(error)
            return self._failed(said(error))
        except OnwardError:
            raise  # of ours: the engine knows what it means
        except Exception as error:
            step.output.raised(error)
            return self._failed(told(error))
        try:
            stored = as_stored(value, f"the result of flow {flow.name!r}")
        except InvalidInput as error:
            return self._failed(said(error))
        return Result(context_updates={f"{step.node.id}.result": stored})

    def _failed(self, why: str, *, stop: str = "") -> Result:
        return Result(
            status=StepStatus.FAIL, failure_reason=why, retryable=False, keeps_calls=True, stop=stop
        )
