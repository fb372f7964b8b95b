"""What can be asked only on this machine."""

from __future__ import annotations

from onward.engine.control.retention import COLLECTABLE, FINAL
from onward.errors import InvalidInput
from onward.operations.requests import ReadPrinted, Request


class WriteFiles(Request, frozen=True, kw_only=True):
    """Write the files of a run from its log, into a directory or the run's own."""

    run: str
    directory: str | None = None


class WriteReceipts(WriteFiles, frozen=True, kw_only=True):
    """Write the files of a run, and make its receipts agree with the log."""


class ReadLogs(ReadPrinted, frozen=True, kw_only=True):
    """What the steps of a run printed, all of it; with `follow`, also what is printed until it stops."""

    follow: bool = False


class CollectRuns(Request, frozen=True, kw_only=True):
    """Delete runs that have ended: completed and cancelled ones, or those in `statuses`.

    The newest `keep` of them stay. Without `older_than_s`, runs go that have not changed for 30 days; with
    `keep`, runs of any age.
    """

    statuses: tuple[str, ...] = tuple(FINAL)
    older_than_s: float | None = None
    keep: int | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        for status in self.statuses:
            if status not in COLLECTABLE:
                raise InvalidInput(
                    f"--status {status!r} cannot be collected, only {', '.join(COLLECTABLE)}; `onward "
                    "cancel` a run that has not ended first."
                )


class ExportRuns(Request, frozen=True, kw_only=True):
    """Whole runs, in one stream of bytes; without names every run of the database.

    Without `with_parents`, a fork is refused if its parent is not named as well.
    """

    runs: tuple[str, ...] = ()
    with_parents: bool = True


class ImportRuns(Request, frozen=True, kw_only=True):
    """Take in the runs of an export.

    `name` is what messages call it. It may unpack to `unpacked_max` GiB, else to a multiple of its size.
    """

    name: str
    paused: bool = False
    unpacked_max: int | None = None


class VerifyRuns(Request, frozen=True, kw_only=True):
    """Prove that what is stored is what the logs say: of one run, or of all."""

    run: str | None = None


class RunEffect(Request, frozen=True, kw_only=True):
    """Run a command at most once for its key.

    `only_success`: a failure is not remembered. `retry`: run it again if it is in doubt. Without `wait`, one
    that is under way elsewhere is refused.
    """

    key: str
    command: tuple[str, ...]
    only_success: bool = False
    retry: bool = False
    wait: bool = True
