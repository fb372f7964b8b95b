"""The database that a command line names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from onward.cli.opening.app import loaded_app
from onward.config import ADDRESS, CONFIG_FILE, Settings, load_settings
from onward.errors import NoDatabase
from onward.wiring import is_there, open_store

if TYPE_CHECKING:
    from onward.cli.options import Common
    from onward.cli.print.output import Output
    from onward.store.port.store import Store


@asynccontextmanager
async def opened(place: str | Store, *, makes: bool = False) -> AsyncIterator[Store]:
    """The store at a place, closed afterwards. A missing one is refused, unless the command `makes` it."""
    if not makes:
        check_there(place)
    store = await open_store(place) if isinstance(place, str) else place
    try:
        yield store
    finally:
        await store.close()


def check_there(place: str | Store) -> None:
    """Refuse a database that does not exist: a typo must not make one."""
    if isinstance(place, str) and not is_there(place):
        raise NoDatabase(place)


def place_of(common: Common) -> str | Store:
    """The database that the flags mean; an app is loaded only if it alone can tell."""
    settings = load_settings(db=common.db, app=common.app)
    if settings.is_db_given or settings.app is None:
        return settings.db
    return loaded_app(settings, settings.app).store


def tell_place(common: Common, out: Output) -> None:
    """Say which database is used, if it was found above the current directory, and which was not trusted."""
    settings = load_settings(db=common.db, app=common.app)
    for marker in settings.project.strangers if not settings.is_db_given else ():
        out.note(f"{marker} belongs to another user and is not used; name a database with --db")
    if settings.is_db_above:
        out.note(f"using {_words(settings)}, found above this directory")


def _words(settings: Settings) -> str:
    """What says where the runs are: the database, or the file that names it or the app that has it."""
    if ADDRESS in settings.db:  # which may have a password
        return f"the database of {settings.project.path(CONFIG_FILE)}"
    if settings.is_app_of_project and not settings.is_db_given:
        return f"the app of {settings.project.path(CONFIG_FILE)}"
    return f"the database {settings.db}"
