"""The app that a run was executed with, kept for the next `onward resume` of the same user.

It is kept in a file of the user's and not in the database: no row of a database, and no run that was
imported, can name code to execute. Workers and servers never read it. They load the app that their command
line or `onward.toml` names.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec
from blake3 import blake3

from onward.config import ADDRESS, Settings, state_directory
from onward.model.ids import display_id
from onward.wiring import is_there

KEPT_MAX, DROPPED = 1_000, 100
PREFIX_LEAST = 4
"""The beginning of a run's id finds its app if it has as many characters."""


class KeptApp(msgspec.Struct, frozen=True):
    """The app of a run as it was named, from which directory, and the database of the run."""

    run: str
    db: str
    app: str
    directory: str


def keep_app(run_id: str, db: str, app: str, directory: str) -> None:
    """Keep the app of a run that is executed here. If the file cannot be written, nothing is kept."""
    kept = KeptApp(run_id, _database(db), app, directory)
    above = _above()
    path = os.path.join(above, f"{_mark(kept.db)}.{run_id}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    try:
        os.makedirs(above, mode=0o700, exist_ok=True)
        with open(os.open(f"{path}.new", flags, 0o600), "wb") as file:
            file.write(msgspec.json.encode(kept))
        os.replace(f"{path}.new", path)
        _drop_old(above)
    except OSError:
        return


def with_kept_app(settings: Settings, run: str | None) -> Settings:
    """The settings for continuing a run: with its own app, unless a flag or ONWARD_APP names one."""
    if run is None or (settings.app is not None and not settings.is_app_of_project):
        return settings
    here = _database(settings.db)
    kept = _only(run, (one for one in _kept(run) if one.db == here))
    if kept is not None:
        db = settings.db
    elif settings.is_db_given or is_there(settings.db):
        return settings
    else:  # there is no database here: the run may be in that of its app, or of another directory
        kept = _only(run, (one for one in _kept(run) if ADDRESS not in one.db))
        if kept is None:
            return settings
        db = kept.db
    return msgspec.structs.replace(
        settings,
        db=db,
        is_db_given=True,
        app=kept.app,
        app_directory=kept.directory,
        is_app_of_project=False,
    )


def has_kept_app(settings: Settings, run_id: str) -> bool:
    """Whether a resume of the run would find its app by itself."""
    return with_kept_app(settings, run_id) is not settings


def _kept(word: str) -> Iterator[KeptApp]:
    """The apps that were kept for runs with this name: an id, a display id, or the beginning of either."""
    above = _above()
    for name in _names(above):
        _, _, run_id = name.partition(".")
        is_begun = len(word) >= PREFIX_LEAST and (
            run_id.startswith(word) or display_id(run_id).startswith(word)
        )
        if word not in (run_id, display_id(run_id)) and not is_begun:
            continue
        path = os.path.join(above, name)
        try:
            if os.stat(path).st_uid != os.getuid():
                continue
            with open(path, "rb") as file:
                yield msgspec.json.decode(file.read(100_000), type=KeptApp)
        except (OSError, msgspec.MsgspecError):
            continue


def _only(word: str, found: Iterator[KeptApp]) -> KeptApp | None:
    """The one that is meant. A whole id means its run, although others may begin with it."""
    kept = list(found)
    whole = [one for one in kept if one.run == word] or [one for one in kept if display_id(one.run) == word]
    meant = whole or kept
    return meant[0] if len(meant) == 1 else None


def _above() -> str:
    return os.path.join(state_directory(), "apps")


def _names(above: str) -> list[str]:
    try:
        return [name for name in os.listdir(above) if not name.endswith(".new")]
    except OSError:
        return []


def _database(db: str) -> str:
    """The same text for the same database, without its password."""
    if ADDRESS not in db:
        return os.path.realpath(db)
    parts = urlsplit(db)
    return f"{parts.scheme}{ADDRESS}{parts.netloc.rpartition('@')[2]}{parts.path}"


def _mark(db: str) -> str:
    return blake3(db.encode()).hexdigest(length=8)


def _drop_old(above: str) -> None:
    """Drop those of the runs that were executed longest ago, if there are very many."""
    names = _names(above)
    if len(names) > KEPT_MAX:
        paths = sorted((os.path.join(above, name) for name in names), key=os.path.getmtime)
        for path in paths[:DROPPED]:
            os.unlink(path)
