"""The effects, limits, old runs, tools and notifications that commands work with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from onward.cli.opening.app import app_of
from onward.cli.opening.database import opened, place_of
from onward.cli.opening.looking import store_with_homes
from onward.config import Settings, load_settings, redactor_of, step_key
from onward.errors import InvalidInput
from onward.wiring import make_courier

if TYPE_CHECKING:
    from onward.agents.lists import ProgramShown
    from onward.agents.tools.toolbox import Toolbox
    from onward.app import Onward
    from onward.cli.options import Common
    from onward.cli.print.output import Output
    from onward.engine.control.retention import Collector
    from onward.engine.stop import StopSwitch
    from onward.notify.courier import Courier
    from onward.operations.local.database import LocalLimits
    from onward.operations.local.effects import LocalEffects
    from onward.store.port.store import Store


@asynccontextmanager
async def collector_of(
    common: Common, warn: Callable[[str], None], *, keep_files: bool
) -> AsyncIterator[Collector]:
    """What a command deletes runs with."""
    from onward.clock import SystemClock
    from onward.engine.control.retention import Collector
    from onward.wiring import old_trees

    async with store_with_homes(common) as (store, homes):
        yield Collector(store, SystemClock(), None if keep_files else homes, warn, old_trees())


@asynccontextmanager
async def effects_of(common: Common) -> AsyncIterator[LocalEffects]:
    """The effects of the database that is named; inside a step, one must be."""
    from onward.clock import SystemClock, SystemIds
    from onward.engine.effects import AtMostOnce
    from onward.operations.local.effects import LocalEffects

    settings = load_settings(db=common.db, app=common.app)
    if step_key() is not None and not settings.is_db_given and settings.app is None:
        raise InvalidInput(
            "this step's commands are not told which database its run is in; "
            'put "ONWARD_DB" into tool_env in onward.toml, or say --db.'
        )
    async with opened(place_of(common), makes=True) as store:
        yield LocalEffects(
            AtMostOnce(
                store.effects,
                SystemClock(),
                SystemIds(),
                store.leases.lease_s,
                redactor=redactor_of(settings),
            )
        )


@asynccontextmanager
async def limits_of(common: Common, *, makes: bool = False) -> AsyncIterator[LocalLimits]:
    """The limits of the database that is named; a command that sets one `makes` it."""
    from onward.clock import SystemClock
    from onward.operations.local.database import LocalLimits

    async with opened(place_of(common), makes=makes) as store:
        yield LocalLimits(store, SystemClock())


def courier_of(
    app: Onward,
    store: Store,
    settings: Settings,
    *,
    warn: Callable[[str], None],
    stop: StopSwitch,
    count: Callable[[str], None] = lambda result: None,
) -> Courier | None:
    """What delivers notifications while a command executes runs; None without `[notify]`."""
    db = app.store if isinstance(app.store, str) else None
    courier = make_courier(
        store,
        settings,
        warn=warn,
        redactor=app.redactor,
        db=db,
        count=count,
        is_hurried=lambda: stop.is_now,
    )
    if courier is not None:
        stop.listen(courier.hurry)
    return courier


@asynccontextmanager
async def toolbox_of(common: Common, out: Output) -> AsyncIterator[Toolbox]:
    """The tools of agents, as a run here would have them."""
    from onward.wiring import make_mcp, make_toolbox

    settings = load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files)
    app = app_of(settings)
    mcp = make_mcp(settings, app.redactor, warn=out.note)
    try:
        yield make_toolbox(
            settings, redactor=app.redactor, functions=app.tools, mcp=mcp, runs=app.runs_directory
        )
    finally:
        if mcp is not None:
            await mcp.close()


def programs_of(settings: Settings) -> list[ProgramShown]:
    """The programs that may work as agents, and where they are on this machine."""
    from onward.wiring import programs_here

    return programs_here(settings)
