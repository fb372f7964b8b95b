"""What serves the nodes of flows: it runs the function, and says how that ended."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import msgspec

from onward.errors import FlowChanged, InvalidInput, OnwardError, StepFailed, said, told
from onward.flows.define import Flow, Step
from onward.flows.running import FlowRun, Stage
from onward.handlers.port import StepContext
from onward.model.events import StepStatus
from onward.model.result import Result
from onward.model.stored import as_stored

FLOW_CHANGED = "flow_changed"


class FlowHandler(msgspec.Struct, frozen=True):
    """Runs a flow. Whatever ends it, the answers of its calls are kept."""

    flow: Flow[Any, Any]
    keeps_time: bool = False
    stage: Stage | None = None
    """That of a test."""

    async def run(self, step: StepContext) -> Result:
        """One attempt: the function from its beginning, with the answers that its history has."""
        flow = self.flow
        try:
            arguments = flow.arguments(step.values)
        except InvalidInput as error:
            return _failed(said(error))
        result = await executed(FlowRun(flow.name, step, self.stage), partial(flow.begun, arguments))
        if result.status is StepStatus.SUCCESS:
            try:
                flow.check_returned(result.context_updates[result_of(step)])
            except InvalidInput as error:
                return _failed(said(error))
        return result

    def check_answers(self, answers: Mapping[str, Any]) -> None:
        """Refuse what a person says that steps in doubt answered, if a step declares something else."""
        for key, answer in answers.items():
            found = self._step(key)
            if found is not None:
                found.check_answer(key, answer)

    def _step(self, key: str) -> Step[Any, Any] | None:
        """The step with this key, if it is where the flow's function finds it."""
        name = key.rpartition("/")[2].partition("#")[0]
        places = self.flow.function.__globals__.values()
        return next((one for one in places if isinstance(one, Step) and one.name == name), None)


class StepHandler(msgspec.Struct, frozen=True):
    """Serves the nodes of a step: a flow of that step alone."""

    step: Step[Any, Any]
    keeps_time: bool = False

    async def run(self, step: StepContext) -> Result:
        """One attempt: the step's parameters come from the context."""
        try:
            arguments = self.step.declared.arguments(f"step {self.step.name!r}", step.values)
        except InvalidInput as error:
            return _failed(said(error))
        return await executed(FlowRun(self.step.name, step), partial(self.step.begun, arguments))


async def executed(run: FlowRun, begin: Callable[[], Coroutine[Any, Any, Any]]) -> Result:
    """How a flow ends, as the result of its step."""
    step = run.step
    try:
        value = await run.run(begin())
    except FlowChanged as error:
        return _failed(said(error), stop=FLOW_CHANGED)
    except StepFailed as error:
        step.output.raised(error)
        return _failed(said(error))
    except OnwardError:
        raise  # of ours: the engine knows what it means
    except Exception as error:
        step.output.raised(error)
        return _failed(told(error))
    try:
        stored = as_stored(value, f"the result of {run.name!r}")
    except InvalidInput as error:
        return _failed(said(error))
    return Result(context_updates={result_of(step): stored})


def result_of(step: StepContext) -> str:
    """Where in the context the node has what its function returned."""
    return f"{step.node.id}.result"


def _failed(why: str, *, stop: str = "") -> Result:
    return Result(status=StepStatus.FAIL, failure_reason=why, retryable=False, keeps_calls=True, stop=stop)
