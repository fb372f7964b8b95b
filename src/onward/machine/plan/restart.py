"""`loop_restart`: the run ends, and a new one, linked to it, begins at the edge's target."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from onward.machine.definition import Definition
from onward.machine.plan.action import Action, Restart
from onward.machine.plan.stops import next_step, stop_with
from onward.model.events.runs import RunCreated, RunFailed
from onward.model.ids import derived_run_id
from onward.model.run import Run
from onward.pipeline.graph import Edge, Node

# How the old run went, which says nothing about the new one.
_OWN_KEYS = frozenset({"outcome", "preferred_label", "last_stage", "last_response"})
_OWN_PREFIXES = ("human.gate.", "parallel.", "internal.", "stack.child.")


def restart(definition: Definition, run: Run, branch_id: str, node: Node) -> Action:
    """End the run here, unless this is a branch or has happened too often."""
    if branch_id:
        detail = f"the loop_restart edge to {node.id} is inside a parallel branch, which cannot end the run"
        return stop_with(run, RunFailed(reason="pipeline_error", detail=detail))
    if run.restarts >= definition.max_restarts:
        detail = f"loop_restart started {run.restarts} runs in a row (max_restarts)"
        return stop_with(run, RunFailed(reason="pipeline_error", detail=detail))
    # Planning this again after a crash gives the same id, and finds the run that was created.
    step = next_step(run, node.id, branch_id)
    return Restart(node.id, derived_run_id(run.created_at_us, f"{run.id}/{step}"))


def restarted(definition: Definition, run: Run, to: str, version: str) -> RunCreated:
    """The first event of the run that takes over: the same pipeline and policy, fresh counters."""
    return RunCreated(
        pipeline=run.pipeline,
        pipeline_hash=run.pipeline_hash,
        start_node=to,
        path=run.path,
        on_owner_loss=run.on_owner_loss,
        exclusive_key=run.exclusive_key,
        simulation=None if run.simulation is None else run.simulation.script,
        simulates_tools=run.simulation is not None and not run.simulation.real_tools,
        version=version,
        priority=run.priority,
        needs=run.needs,
        max_running=run.max_running,
        context=_carried(definition.edge(run.root.edge), run),
        restart_of=run.id,
        restarts=run.restarts + 1,
        managed_by=run.managed_by,
        workdir=run.workdir,
        variables=run.variables,
        workspace=replace(run.workspace, start=run.root.tree) if run.workspace and run.root.tree else None,
        trims_output=run.trims_output,
        tags=run.tags,
        chat=run.chat,
        project=run.project,
        charged_to=run.charged_to or run.id,
        pipeline_version=run.pipeline_version,
    )


def _carried(edge: Edge | None, run: Run) -> dict[str, Any]:
    """What the edge names in `loop_restart_keep`; else everything but the engine's own keys."""
    context = run.context.plain()
    named = edge.text("loop_restart_keep") if edge else ""
    if named:
        keep = {key.strip() for key in named.split(",")}
        return {key: value for key, value in context.items() if key in keep or key.startswith("graph.")}
    return {
        key: value
        for key, value in context.items()
        if key not in _OWN_KEYS and not key.startswith(_OWN_PREFIXES)
    }
