"""What is answered to requests about this machine: plain JSON values, as `--json` prints them."""

from __future__ import annotations

from typing import Any, TypedDict

from onward.replies.steps import CommandEnded, FindingShown


class FilesWritten(TypedDict):
    """The files of a run that were written, and where; one that was as it should be was not."""

    run: str
    directory: str
    written: int
    files: list[str]


class ResumePointShown(TypedDict):
    """Where the run would continue, according to its receipts alone."""

    step: str | None
    action: str
    reason: str


class ReceiptsWritten(FilesWritten):
    """The receipts that the log stands for; what disagreed with it (`found`) and what still does (`left`)."""

    receipts: list[dict[str, Any]]
    found: list[FindingShown]
    left: list[FindingShown]
    resume_point: ResumePointShown


class UnmergedShown(TypedDict):
    """A run that stays because of work that is only in its work tree."""

    run: str
    directory: str
    why: str


class RunsCollected(TypedDict):
    """What went, or with `dry_run` would go. `needed` runs are old enough and stay because of others."""

    dry_run: bool
    runs: list[str]
    events: int
    needed: int
    unmerged: list[UnmergedShown]
    blobs: int
    blob_bytes: int
    directories: int


class RunAtWork(TypedDict):
    """A run that may continue here while its copy goes elsewhere."""

    display_id: str
    status: str


class Exported(TypedDict):
    """What an export holds."""

    runs: list[str]
    events: int
    blobs: int
    effects: int
    messages: int
    bytes: int
    at_work: list[RunAtWork]


class RunImported(TypedDict):
    """A run that arrived, or was there already; `says` tells a person which."""

    run: str
    imported: bool
    status: str
    says: str


class Imported(TypedDict):
    """The runs of an export, and which of them are new here."""

    imported: list[str]
    runs: list[RunImported]


class RunVerified(TypedDict):
    """How many events of a run were found sound, and everything that was not."""

    run: str
    display_id: str
    events: int
    problems: list[str]


class Check(TypedDict):
    """One thing that was checked, and whether it is well."""

    subject: str
    ok: bool
    says: str


class EffectMade(CommandEnded):
    """How a command ended, and whether it was run just now (`made`)."""

    key: str
    made: bool


class LastCheckpoint(TypedDict):
    """The newest checkpoint of a run; `step` is the one that it ends, None for the creation."""

    seq: int
    at: str
    step: str | None


class ResumeOutlook(TypedDict):
    """What a resume begins with.

    `is_asking`: the run only waits for answers. `holder`: the live process that holds it.
    """

    run: str
    display_id: str
    pipeline: str
    is_asking: bool
    holder: str | None
    checkpoint: LastCheckpoint | None
    workdir: str | None
    in_doubt: list[str]
