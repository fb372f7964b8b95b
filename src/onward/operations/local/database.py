"""What is set in a database for all runs: registered pipelines, and limits with their usage."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from onward.clock import Clock
from onward.engine.control.limits import LimitChanges
from onward.engine.journal import Journal
from onward.engine.sources import Registry
from onward.errors import InvalidInput, InvalidPipeline, PipelineNotFound
from onward.model.ids import Wanted, check_pipeline_name
from onward.model.limits import (
    CALLS_PER_CHAT_RUN,
    CALLS_PER_RUN,
    CHAT_TOKENS,
    DAY,
    MEASURES,
    SCOPE_KINDS,
    check_name,
    check_scope,
    day_of,
    kind_of,
)
from onward.operations import requests
from onward.operations.local.submit import check_sent
from onward.pipeline.build import build
from onward.pipeline.inputs import inputs_of
from onward.pipeline.source import Diagnostic
from onward.read.lookup import find_run
from onward.read.view import instant
from onward.store.port.limits import Scope, Spent, UsageKind
from onward.store.port.retention import NewSource, RegisteredPipeline, RegisteredVersion
from onward.store.port.store import Store

if TYPE_CHECKING:
    from onward.replies import database as shapes


class LocalPipelines(msgspec.Struct, frozen=True):
    """The registered pipelines of one store."""

    registry: Registry
    clock: Clock

    async def list_pipelines(self, request: requests.ListPipelines) -> shapes.PipelineList:
        """Registered pipelines, by name."""
        limit = request.limit
        found = await self.registry.store.pipelines.list(after=request.cursor or "", limit=limit)
        cursor = found[-1].name if found and len(found) == limit else None
        return {"pipelines": [_view_pipeline(one) for one in found], "cursor": cursor}

    async def show_pipeline(self, request: requests.GetPipeline) -> shapes.PipelinePage:
        """A registered pipeline with the source of one version."""
        name = check_pipeline_name(request.name)
        version = await self.registry.version(Wanted(name, request.version))
        pipeline = await self.registry.pipeline(name)
        versions = await self.registry.store.pipelines.versions(name, limit=request.limit)
        source = await self.registry.source(version)
        return {
            **_view_pipeline(pipeline),
            "version": version.version,
            "source": source,
            "inputs": _inputs(source, name),
            "versions": [_view_version(one) for one in versions],
        }

    async def check_pipeline(self, request: requests.CheckPipeline) -> shapes.PipelineChecked:
        """Check a source as it would be before it is added. Nothing is stored or executed."""
        try:
            pipeline = self.registry.check(request.source, request.file)
        except InvalidPipeline as error:
            found = [_view_diagnostic(one) for one in error.diagnostics]
            return {"is_valid": False, "name": None, "nodes": 0, "diagnostics": found}
        return {
            "is_valid": True,
            "name": pipeline.name,
            "nodes": len(pipeline.graph.nodes),
            "diagnostics": [_view_diagnostic(one) for one in pipeline.warnings],
        }

    async def add_pipeline(self, request: requests.AddPipeline) -> shapes.PipelineAdded:
        """Check a source, and store it as the next version of its name, unless it is one already."""
        by = _check_who(request.by)
        pipeline = self.registry.check(request.source, request.file)
        if not request.may_run_commands:
            check_sent(pipeline.graph)
        name = _pipeline_name(request.name, pipeline.name)
        file = (request.path or request.file).encode(errors="replace").decode()
        new = NewSource(name, pipeline.hash, request.source.encode(), file, by)
        at_us = self.clock.now_us()
        added = await self.registry.store.pipelines.add(new, at_us=at_us, enables=request.enable)
        version = added.version
        return {
            **_view_pipeline(added.pipeline),
            "version": version.version,
            # Also if the reply to the first try was lost, and this is the answer to the second.
            "is_new": (version.added_by, version.added_at_us) == (by, at_us),
            "pipeline_hash": version.hash,
            "warnings": [str(warning) for warning in pipeline.warnings],
        }

    async def enable_pipeline(self, request: requests.EnablePipeline) -> shapes.PipelineListed:
        """Let new runs get this version."""
        by, name = _check_who(request.by), check_pipeline_name(request.name)
        # One whose source was collected while the name was removed could start no run.
        await self.registry.source(await self.registry.version(Wanted(name, request.version)))
        changed = await self.registry.store.pipelines.enable(
            name, request.version, by=by, at_us=self.clock.now_us()
        )
        if changed is None or changed.enabled is None:  # it was removed just now
            raise PipelineNotFound(name)
        return _view_pipeline(changed)

    async def remove_pipeline(self, request: requests.RemovePipeline) -> shapes.PipelineRemoved:
        """Take a name away from new runs."""
        by, name = _check_who(request.by), check_pipeline_name(request.name)
        await self.registry.pipeline(name)
        removed = await self.registry.store.pipelines.remove(name, by=by, at_us=self.clock.now_us())
        assert removed is not None  # names never go
        return {
            "name": removed.name,
            "newest": removed.newest,
            "removed_by": removed.changed_by,
            "removed_at": instant(removed.changed_at_us),
        }


def _pipeline_name(given: str | None, own: str) -> str:
    """The name that is given, or else the pipeline's own: that of the graph, or of the file."""
    if given is not None:
        return check_pipeline_name(given)
    try:
        return check_pipeline_name(own)
    except InvalidInput as error:
        raise InvalidInput(
            f"its own name {str(error).rstrip('.')}; or give it another with --name."
        ) from None


def _check_who(by: str) -> str:
    if not (by and by.isprintable()):
        raise InvalidInput(f"{by[:40]!r} cannot be a name; use printable characters.")
    return check_name("the name", by)


def _view_diagnostic(found: Diagnostic) -> shapes.DiagnosticShown:
    return {
        "rule": found.rule,
        "severity": found.severity.value,
        "message": found.message,
        "file": found.file,
        "line": found.line,
        "column": found.column,
        "node": found.node_id,
        "fix": found.fix,
    }


def _view_pipeline(one: RegisteredPipeline) -> shapes.PipelineListed:
    assert one.enabled is not None
    return {
        "name": one.name,
        "enabled": one.enabled,
        "newest": one.newest,
        "changed_by": one.changed_by,
        "changed_at": instant(one.changed_at_us),
    }


def _inputs(source: str, name: str) -> list[shapes.InputDeclared]:
    """What a run of the source is to be given; of one that this version cannot read, nothing is known."""
    try:
        graph = build(source, file=name, rules=()).graph
    except InvalidPipeline:
        return []
    return [
        {
            "name": one.name,
            "type": one.type,
            "about": one.about,
            "choices": list(one.choices),
            "default": one.default,
            "required": one.is_required,
        }
        for one in inputs_of(graph)
    ]


def _view_version(one: RegisteredVersion) -> shapes.PipelineVersion:
    return {
        "version": one.version,
        "pipeline_hash": one.hash,
        "file": one.file,
        "added_by": one.added_by,
        "added_at": instant(one.added_at_us),
    }


RUN_SCOPE = "run"
SCOPES_MAX = 10_000
FIRST_LIMITS = {"chat": {"tokens": CHAT_TOKENS}, RUN_SCOPE: {"calls": CALLS_PER_RUN}}
"""The limits of a new database."""


class LocalLimits(msgspec.Struct, frozen=True):
    """Looks at the limits of one store, and changes them."""

    store: Store
    clock: Clock

    async def list_limits(self, request: requests.ListLimits) -> shapes.LimitList:
        """Every scope with a limit or spending."""
        (runs,) = await self.store.limits.read([RUN_SCOPE])
        is_unset = runs.own[MEASURES.index("calls")] in (None, CALLS_PER_RUN)
        return {
            "scopes": [_view_scope(one) for one in await self.store.limits.list(limit=request.limit)],
            "chat_run_calls": CALLS_PER_CHAT_RUN if is_unset else None,
        }

    async def set_limit(self, request: requests.SetLimit) -> shapes.LimitChanged:
        """Set one limit; runs that it held try again."""
        return await self._change(request.scope, {request.measure: request.value}, request.by)

    async def reset_limits(self, request: requests.ResetLimits) -> shapes.LimitChanged:
        """Forget the limits that were set for a scope. Those of every chat and run are then as at first."""
        first = FIRST_LIMITS.get(request.scope, {})
        return await self._change(request.scope, {**dict.fromkeys(MEASURES), **first}, request.by)

    async def get_usage(self, request: requests.GetUsage) -> shapes.UsageList:
        """What was spent."""
        found = await self.store.limits.usage(UsageKind(request.by), limit=request.limit)
        return {"by": request.by, "usage": [_view_spent(one) for one in found]}

    async def _change(self, scope: str, changes: dict[str, int | None], by: str) -> shapes.LimitChanged:
        changing = LimitChanges(self.store, self.clock)
        changed, lifted = await changing.change(await self._scope(scope), changes, by=by)
        kept = await self._concerned(changed)
        apart = [one for one in kept if one.id != changed.id and _has_own(one, changes)]
        spent_up = [one for one in kept if one not in apart and _is_spent_up(one, changes)]
        return {
            "scope": _view_scope(changed),
            "lifted": list(lifted),
            "spent_up": [_view_scope(one) for one in spent_up],
            "apart": [_view_scope(one) for one in apart],
        }

    async def _concerned(self, changed: Scope) -> Sequence[Scope]:
        """The scope, or all those of the kind that it is the default of, without the days that are over.

        Runs are left out: most of them have ended.
        """
        if changed.id not in SCOPE_KINDS:
            return [changed]
        if changed.id == RUN_SCOPE:
            return [
                one for one in await self._listed(RUN_SCOPE) if any(limit is not None for limit in one.own)
            ]
        today = f"{DAY}/{day_of(self.clock.now_us())}"
        return [one for one in await self._listed(changed.id) if changed.id != DAY or one.id >= today]

    async def _listed(self, kind: str) -> Sequence[Scope]:
        listed = await self.store.limits.list(limit=SCOPES_MAX)
        return [one for one in listed if kind_of(one.id) == kind and one.id != kind]

    async def _scope(self, text: str) -> str:
        """The scope that is meant. A run may be named in short; its calls may be charged to another."""
        scope = check_scope(text)
        if not scope.startswith("run/"):
            return scope
        found = await find_run(self.store.runs, scope.removeprefix("run/"))
        run = (await Journal(self.store.log, self.clock).load(found.row.id)).run
        return f"run/{run.charged_to or run.id}"


def _view_spent(spent: Spent) -> shapes.UsageShown:
    return {
        "what": spent.what,
        "input": spent.input,
        "output": spent.output,
        "cached": spent.cached,
        "tokens": spent.tokens,
        "cost_micro": spent.cost_micro,
        "calls": spent.calls,
        "estimated": spent.estimated,
    }


def _has_own(scope: Scope, changes: Collection[str]) -> bool:
    """Whether a scope has a limit of its own on one of these measures."""
    return any(own is not None and name in changes for name, own in zip(MEASURES, scope.own, strict=True))


def _is_spent_up(scope: Scope, changes: Collection[str]) -> bool:
    """Whether the limit on one of these measures leaves nothing."""
    figures = zip(MEASURES, scope.limit, scope.spent, strict=True)
    return any(name in changes and 0 < limit <= spent for name, limit, spent in figures)


def _view_measure(limit: int, own: int | None, spent: int, reserved: int) -> shapes.MeasureShown:
    return {"limit": limit or None, "is_own": own is not None, "spent": spent, "reserved": reserved}


def _view_scope(scope: Scope) -> shapes.ScopeShown:
    figures = zip(scope.limit, scope.own, scope.spent, scope.reserved, strict=True)
    tokens, cost, calls = (_view_measure(*one) for one in figures)
    return {
        "scope": scope.id,
        "kind": kind_of(scope.id),
        "tokens": tokens,
        "cost_micro": cost,
        "calls": calls,
        "warned": list(scope.warned),
    }
