"""What commands look at runs with."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from onward.cli.opening.app import common_app, sources_of
from onward.cli.opening.database import opened, place_of
from onward.config import tool_environment

if TYPE_CHECKING:
    from onward.app import Onward
    from onward.cli.options import Common
    from onward.engine.leftovers import Leftovers
    from onward.operations.here.directories import RunDirectories, RunLogs
    from onward.operations.local.chats import LocalMessages
    from onward.operations.local.lists import LocalLists, LocalNotifications
    from onward.operations.local.look import LocalLook
    from onward.receipts.run_directory import Homes
    from onward.store.port.store import Store


@asynccontextmanager
async def lists_of(common: Common) -> AsyncIterator[LocalLists]:
    """The lists of a command that looks over all runs; it needs no app."""
    from onward.operations.local.lists import LocalLists

    async with opened(place_of(common)) as store:
        yield LocalLists(store)


@asynccontextmanager
async def look_of(common: Common) -> AsyncIterator[LocalLook]:
    """What a command looks at one run with; the app is loaded only for what needs it."""
    from onward.clock import SystemClock
    from onward.operations.local.look import LocalLook

    async with opened(place_of(common)) as store:
        yield LocalLook(
            store,
            SystemClock(),
            lambda: _leftovers(store, common_app(common)),
            lambda: sources_of(common_app(common), store),
        )


def _leftovers(store: Store, app: Onward) -> Leftovers:
    """Looks for what steps left where a resume by the same command line would."""
    from onward.engine.leftovers import Leftovers
    from onward.receipts.run_directory import Homes
    from onward.wiring import own_paths
    from onward.workspace.trees import GitTrees

    runs = app.runs_directory
    own = own_paths(app.store if isinstance(app.store, str) else None, runs)
    folder = None if runs is None else Homes(os.path.abspath(runs), store.identity)
    return Leftovers(store, folder, GitTrees(tool_environment(), own), own)


@asynccontextmanager
async def files_of(common: Common) -> AsyncIterator[RunDirectories]:
    """What a command writes the files of runs with."""
    from onward.clock import SystemClock
    from onward.operations.here.directories import RunDirectories

    app = common_app(common)
    async with opened(app.store) as store:
        yield RunDirectories(store, SystemClock(), sources_of(app, store), app.runs_directory)


@asynccontextmanager
async def logs_of(common: Common) -> AsyncIterator[RunLogs]:
    """What a command reads the output of steps with."""
    from onward.clock import SystemClock
    from onward.operations.here.directories import RunLogs

    async with store_with_homes(common) as (store, homes):
        yield RunLogs(store, SystemClock(), homes)


@asynccontextmanager
async def store_with_homes(common: Common) -> AsyncIterator[tuple[Store, Homes | None]]:
    """The store of a command that also looks at the directories of its runs, which may be none."""
    app = common_app(common)
    async with opened(app.store) as store:
        yield store, _homes(app.runs_directory, store)


@asynccontextmanager
async def notifications_of(common: Common) -> AsyncIterator[LocalNotifications]:
    """The notifications of the database that is named."""
    from onward.operations.local.lists import LocalNotifications

    async with opened(place_of(common)) as store:
        yield LocalNotifications(store)


@asynccontextmanager
async def messages_of(common: Common) -> AsyncIterator[LocalMessages]:
    """What is said in the chats of the database that is named."""
    from onward.clock import SystemClock
    from onward.operations.local.chats import LocalMessages

    async with opened(place_of(common)) as store:
        yield LocalMessages(store, SystemClock())


def _homes(runs: str | None, store: Store) -> Homes | None:
    from onward.receipts.run_directory import Homes

    return Homes(os.path.abspath(runs), store.identity) if runs is not None and os.path.isdir(runs) else None
