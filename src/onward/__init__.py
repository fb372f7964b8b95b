"""Onward: durable runs for AI agent pipelines.

Finished work is never repeated and acknowledged work is never lost, through crashes, deploys, limits and
closed laptops. Names are imported when they are first used, so that `import onward` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onward.agents.tools.port import ToolUse
    from onward.app import Onward
    from onward.app.queue import Submission
    from onward.engine.control.requests import (
        AutoApprove,
        CallbackInterviewer,
        QueueInterviewer,
        RecordingInterviewer,
    )
    from onward.engine.stop import StopSwitch
    from onward.errors import FlowFailed, StepFailed
    from onward.flows.agents import agent
    from onward.flows.branches import each, gather
    from onward.flows.define import flow, step
    from onward.flows.graphs import GraphResult, graph
    from onward.flows.values import current, now, patch, uuid
    from onward.flows.waits import ask, sleep
    from onward.handlers.function import IsolatedStep
    from onward.handlers.port import StepContext
    from onward.model.events import StepStatus
    from onward.model.gate import Answer, Decision
    from onward.model.result import Result
    from onward.model.run import Gate, Run, RunStatus

_WHERE = {
    "Answer": "onward.model.gate",
    "AutoApprove": "onward.engine.control.requests",
    "CallbackInterviewer": "onward.engine.control.requests",
    "Decision": "onward.model.gate",
    "FlowFailed": "onward.errors",
    "Gate": "onward.model.run",
    "GraphResult": "onward.flows.graphs",
    "IsolatedStep": "onward.handlers.function",
    "Onward": "onward.app",
    "QueueInterviewer": "onward.engine.control.requests",
    "RecordingInterviewer": "onward.engine.control.requests",
    "Result": "onward.model.result",
    "Run": "onward.model.run",
    "RunStatus": "onward.model.run",
    "StepContext": "onward.handlers.port",
    "StepFailed": "onward.errors",
    "StepStatus": "onward.model.events",
    "StopSwitch": "onward.engine.stop",
    "Submission": "onward.app.queue",
    "ToolUse": "onward.agents.tools.port",
    "agent": "onward.flows.agents",
    "ask": "onward.flows.waits",
    "current": "onward.flows.values",
    "each": "onward.flows.branches",
    "flow": "onward.flows.define",
    "gather": "onward.flows.branches",
    "graph": "onward.flows.graphs",
    "now": "onward.flows.values",
    "patch": "onward.flows.values",
    "sleep": "onward.flows.waits",
    "step": "onward.flows.define",
    "uuid": "onward.flows.values",
}
__all__ = [
    "Answer",
    "AutoApprove",
    "CallbackInterviewer",
    "Decision",
    "FlowFailed",
    "Gate",
    "GraphResult",
    "IsolatedStep",
    "Onward",
    "QueueInterviewer",
    "RecordingInterviewer",
    "Result",
    "Run",
    "RunStatus",
    "StepContext",
    "StepFailed",
    "StepStatus",
    "StopSwitch",
    "Submission",
    "ToolUse",
    "agent",
    "ask",
    "current",
    "each",
    "flow",
    "gather",
    "graph",
    "now",
    "patch",
    "sleep",
    "step",
    "uuid",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'onward' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
