"""Where a database is, and which paths belong to it."""

from __future__ import annotations

import os

from onward.errors import InvalidInput
from onward.model.values.tool_env import is_named

POSTGRES = ("postgres://", "postgresql://")
PROJECT_RUNS = os.path.join(".onward", "runs")


def check_address(db: str) -> None:
    """Refuse an address of an unknown kind, which would create odd files if it were used as a path."""
    scheme, colon, _ = db.partition(":")
    if colon and scheme in ("postgres", "postgresql") and not db.startswith(POSTGRES):
        raise InvalidInput(f"the database {db!r} is not an address; write postgresql://HOST/NAME.")
    if "://" in db and not db.startswith((*POSTGRES, "sqlite://")):
        raise InvalidInput(
            f"{scheme}://… is not a known kind of database; write postgresql://HOST/NAME, or a path."
        )


def is_there(db: str) -> bool:
    """Whether there is a database to open; creates no file."""
    check_address(db)
    return db.startswith(POSTGRES) or os.path.lexists(db.removeprefix("sqlite://"))


def runs_of(db: str) -> str | None:
    """Where the runs of a database have their directories: next to it; for a server, in the project."""
    if db == ":memory:":
        return None
    if db.startswith(POSTGRES):
        return PROJECT_RUNS
    path = os.path.abspath(db.removeprefix("sqlite://"))
    above = os.path.dirname(path)
    return os.path.join(above, "runs") if os.path.basename(above) == ".onward" else f"{path}-runs"


def own_paths(db: str | None, runs: str | None) -> list[str]:
    """The paths that Onward itself writes: the directories of runs, and the files of a SQLite database."""
    own = [] if runs is None else [os.path.abspath(runs)]
    if db is not None and db != ":memory:" and not db.startswith(POSTGRES):
        path = os.path.abspath(db.removeprefix("sqlite://"))
        own += [path + end for end in ("", "-wal", "-shm", "-workers")]
    return own


def outside_work(runs: str | None) -> list[str]:
    """Paths that are never a step's work, even inside the repository: the runs, and the database there."""
    if runs is None:
        return []
    root = os.path.realpath(runs)
    around = os.path.dirname(root)
    if os.path.basename(around) == ".onward":
        return [around]
    if not root.endswith("-runs"):
        return [root]
    return [root, *(root.removesuffix("-runs") + end for end in ("", "-wal", "-shm", "-workers"))]


def database_variable(db: str | None, tool_env: tuple[str, ...]) -> dict[str, str]:
    """ONWARD_DB for commands: always for a file; for a server, whose address has a password, if allowed."""
    if db is None or db == ":memory:" or (db.startswith(POSTGRES) and not is_named("ONWARD_DB", tool_env)):
        return {}
    return {"ONWARD_DB": db if db.startswith(POSTGRES) else os.path.abspath(db.removeprefix("sqlite://"))}
