"""The database and the app that a command is about."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from onward.config import Settings, load_settings, tool_environment
from onward.errors import InvalidInput, NoDatabase
from onward.wiring import is_there, open_store

if TYPE_CHECKING:
    from onward.app import Onward
    from onward.cli.options import Common
    from onward.engine.step.leftovers import Leftovers
    from onward.operations.local.lists import LocalLists
    from onward.operations.local.look import LocalLook
    from onward.receipts.homes import Homes
    from onward.store.port.store import Store


@asynccontextmanager
async def store_to_look_at(common: Common) -> AsyncIterator[Store]:
    """The store of a command that changes nothing: it makes no file, and needs no engine."""
    settings = load_settings(db=common.db, app=common.app)
    place = _place(settings)
    if isinstance(place, str) and not is_there(place):
        raise NoDatabase(place)
    store = await open_store(place) if isinstance(place, str) else place
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def lists_of(common: Common) -> AsyncIterator[LocalLists]:
    """The lists of a command that looks over all runs."""
    from onward.operations.local.lists import LocalLists

    async with store_to_look_at(common) as store:
        yield LocalLists(store)


@asynccontextmanager
async def look_of(common: Common) -> AsyncIterator[LocalLook]:
    """What a command looks at one run with."""
    from onward.clock import SystemClock
    from onward.operations.local.look import LocalLook

    async with store_to_look_at(common) as store:
        yield LocalLook(store, SystemClock(), lambda: _leftovers(store, common))


def _leftovers(store: Store, common: Common) -> Leftovers:
    """Looks for what steps left where a resume by the same command line would."""
    from onward.engine.step.leftovers import Leftovers
    from onward.receipts.homes import Homes
    from onward.wiring import own_paths
    from onward.workspace.trees import GitTrees

    app = app_of(load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files))
    runs = app.runs_directory
    own = own_paths(app.store if isinstance(app.store, str) else None, runs)
    folder = None if runs is None else Homes(os.path.abspath(runs), store.identity)
    return Leftovers(store, folder, GitTrees(tool_environment(), own), own)


@asynccontextmanager
async def store_with_homes(common: Common) -> AsyncIterator[tuple[Store, Homes | None]]:
    """The store of a command that also looks at the directories of its runs, which may be none."""
    app = app_of(load_settings(db=common.db, app=common.app, runs=common.runs))
    if isinstance(app.store, str) and not is_there(app.store):
        raise NoDatabase(app.store)
    store = await open_store(app.store) if isinstance(app.store, str) else app.store
    try:
        yield store, _homes(app.runs_directory, store)
    finally:
        await store.close()


def _homes(runs: str | None, store: Store) -> Homes | None:
    from onward.receipts.homes import Homes

    return Homes(os.path.abspath(runs), store.identity) if runs is not None and os.path.isdir(runs) else None


def _place(settings: Settings) -> str | Store:
    if settings.is_db_given or settings.app is None:
        return settings.db
    return load_app(settings.app).store


def app_of(settings: Settings) -> Onward:
    """The app that is named, or one without handlers; a database that is given wins over the app's own."""
    from onward.app import Onward

    app = Onward(settings.db) if settings.app is None else load_app(settings.app)
    if settings.is_db_given:
        app.store = settings.db
    app.runs = settings.runs or app.runs
    app.files = settings.files or app.files
    return app


def load_app(name: str) -> Onward:
    """The app `package.module:name`, imported from the current directory or from what is installed."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise InvalidInput(f"--app {name!r} is not package.module:name.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name and not module_name.startswith(f"{error.name}."):
            raise InvalidInput(
                f"--app {name}: {module_name} needs the module {error.name!r}, which is missing."
            ) from error
        raise InvalidInput(
            f"--app {name}: there is no module {module_name!r} here or among what is installed."
        ) from error
    except Exception as error:
        raise InvalidInput(
            f"--app {name}: importing {module_name} failed: {type(error).__name__}: {error}."
        ) from error
    return _app_in(module, attribute, name)


def _app_in(module: object, attribute: str, name: str) -> Onward:
    from onward.app import Onward

    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Onward):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        raise InvalidInput(
            f"--app {name} is {what}, not an Onward app; write `{attribute} = Onward(...)` there."
        )
    return found
