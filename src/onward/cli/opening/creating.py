"""What commands create runs and register pipelines with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from onward.cli.opening.app import app_of, sources_of
from onward.cli.opening.database import opened
from onward.config import Settings, load_settings, redactor_of

if TYPE_CHECKING:
    from onward.app import Onward
    from onward.cli.options import Common
    from onward.engine.sources import Registry
    from onward.operations.local.database import LocalPipelines
    from onward.operations.local.submit import LocalSubmit


@asynccontextmanager
async def submit_of(common: Common, *, makes: bool = True) -> AsyncIterator[LocalSubmit]:
    """What a command creates runs with. Without an app of the user's, none is made: it would take long."""
    from onward.operations.local.submit import LocalSubmit
    from onward.wiring import make_submitting

    settings = load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files)
    app = None if settings.app is None else app_of(settings)
    async with _registry(settings, app, makes=makes) as registry:
        submitting = make_submitting(
            registry.store,
            registry.sources,
            redactor=redactor_of(settings) if app is None else app.redactor,
            kinds=() if app is None else app.handlers,
            runs=lambda: app_of(settings).runs_directory,
        )
        yield LocalSubmit(registry, submitting)


@asynccontextmanager
async def pipelines_of(common: Common, *, makes: bool = False) -> AsyncIterator[LocalPipelines]:
    """The registered pipelines of the database that is named; a command that adds one `makes` it."""
    from onward.clock import SystemClock
    from onward.operations.local.database import LocalPipelines

    settings = load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files)
    app = None if settings.app is None else app_of(settings)
    async with _registry(settings, app, makes=makes) as registry:
        yield LocalPipelines(registry, SystemClock())


@asynccontextmanager
async def _registry(settings: Settings, app: Onward | None, *, makes: bool) -> AsyncIterator[Registry]:
    """Where definitions come from; without an app, those with the built-in node types."""
    from onward.engine.sources import Registry, Sources
    from onward.pipeline.graph import BUILT_IN_TYPES
    from onward.pipeline.rules.check import RULES, secret_rule

    async with opened(settings.db if app is None else app.store, makes=makes) as store:
        if app is not None:
            yield Registry(store, sources_of(app, store))
            return
        rules = [*RULES, secret_rule(redactor_of(settings).knows)]
        yield Registry(store, Sources(store.blobs, (), BUILT_IN_TYPES, rules))
