"""What goes wrong with a run's log, and with the database that it is in."""

from __future__ import annotations

from onward.errors.root import OnwardError


class LeaseLost(OnwardError):
    """Another process holds the run now; this holder's state is out of date."""

    def __init__(self, run_id: str, token: int) -> None:
        self.run_id, self.token = run_id, token
        super().__init__(
            f"the lease of run {run_id} with token {token} is lost; another process holds the run."
        )


class StaleHistory(OnwardError):
    """The log grew since it was read; read the tail and plan again."""

    def __init__(self, run_id: str, after: int) -> None:
        self.run_id, self.after = run_id, after
        super().__init__(f"run {run_id} has grown past event {after}; read the tail and plan again.")


class HistoryCorrupt(OnwardError):
    """A run's log does not decode, fold or chain; the event is named and nothing was repaired."""

    def __init__(self, run_id: str, seq: int, why: str) -> None:
        self.run_id, self.seq, self.why = run_id, seq, why
        super().__init__(
            f"event {seq} of run {run_id} is damaged: {why}. Nothing was changed; "
            f"`onward verify {run_id}` shows how far the log is intact."
        )


class StoreError(OnwardError):
    """The database failed; nothing that was acknowledged is lost."""

    run_id: str | None = None
    """The run whose claim failed, if it was one."""


class StoreUnavailable(StoreError):
    """The database cannot be opened or reached, or stayed locked."""


class NoDatabase(StoreUnavailable):
    """There is no database yet, and reading runs does not create one."""

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(
            f"there is no database {place} yet; `onward run` creates it, or name another with --db."
        )


class StoreGone(StoreError):
    """A file of the database was deleted or replaced while it was in use; a retry does not help."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path} was deleted or replaced while it was in use, and writes to it would be lost; "
            "put it back if you can, and start again."
        )


class StoreFull(StoreError):
    """There is no space left for the database."""


class StoreReadOnly(StoreError):
    """The database cannot be written."""


class StoreIO(StoreError):
    """The disk or the connection failed halfway."""


class StoreCorrupt(StoreError):
    """The file is not a database, or it is damaged."""


class RunUnreadable(StoreCorrupt):
    """The next due run is damaged and cannot be read; others can be claimed."""

    def __init__(self, run_id: str, why: object) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id} is due but cannot be read: {why}")


class SchemaTooNew(StoreError):
    """The database was written by a newer Onward."""

    def __init__(self, found: int, known: int) -> None:
        self.found, self.known = found, known
        super().__init__(
            f"the database has schema {found}, and this version of Onward supports schemas up to {known}; "
            "upgrade Onward to use it."
        )


class SchemaInUse(StoreError):
    """The database must be migrated, and a process that knows only the older schema holds runs in it."""

    def __init__(self, found: int, wanted: int, holder: str) -> None:
        self.found, self.wanted, self.holder = found, wanted, holder
        super().__init__(
            f"the database has schema {found} and this Onward needs {wanted}, but {holder}, of an older "
            "version, holds runs in it; stop that process first, then try again."
        )
