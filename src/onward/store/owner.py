"""A process as an owner at a database: its name, what it holds, and how others are refused.

The name of an owner is for people before the slash, and for a liveness check after it. Refusals are the same
words in every store. `exposed_files` says what other users of the machine can read of what is ours.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterable

from onward.errors import Refused
from onward.host import host_identity, is_taken
from onward.store.port.log import Write

IN_MEMORY = "memory"
"""The machine of all owners at a database in memory."""


def owner_name(proof: str) -> str:
    """The owner string of this process; `proof` is what tells later whether it is alive."""
    identity = host_identity()
    return f"{identity.pid}@{identity.host}/{proof}"


def owner_proof(owner: str) -> str:
    """The part that tells whether the owner is alive."""
    return owner.partition("/")[2]


def owner_host(owner: str) -> str:
    """The machine, as it calls itself; empty if the owner does not say."""
    return owner.partition("/")[0].partition("@")[2]


def other_host(owner: str) -> str:
    """The machine, if the owner says that it is another one than this."""
    host = owner_host(owner)
    return "" if host in (IN_MEMORY, host_identity().host) else host


def is_ending(owner: str) -> bool:
    """Whether the process is gone, and only its commands may still be running for a moment."""
    pid, _, host = owner.partition("/")[0].partition("@")
    return host == host_identity().host and pid.isdigit() and not is_taken(int(pid))


def owner_label(owner: str) -> str:
    """The part for people."""
    pid, _, host = owner.partition("/")[0].partition("@")
    return f"process {pid} on {host}" if host else owner


class Holdings:
    """What this process holds: `runs` has the token of each, `effects` the key of each token.
    `is_registered`: others know this process as a worker.

    `owner` is its name; empty as long as it has none, and then it holds nothing. `lease_us` is how long a
    claim or renewal is good for. `now_us` replaces the database's clock where leases are judged.
    """

    def __init__(self, now_us: Callable[[], int | None], lease_us: int, owner: str = "") -> None:
        self.now_us, self.lease_us, self.owner = now_us, lease_us, owner
        self.runs: dict[str, int] = {}
        self.effects: dict[str, str] = {}
        self.is_registered = False

    def note(self, write: Write) -> None:
        """Learn from a write with a row whether this process holds the run now."""
        if write.row is not None and write.row.owner == self.owner:
            self.runs[write.run_id] = write.row.token
        else:
            self.runs.pop(write.run_id, None)


def run_exists(run_id: str) -> Refused:
    """The id of a new run is taken."""
    return Refused("run_exists", f"a run {run_id!r} already exists; choose another --run-id.")


def content_missing(run_id: str) -> Refused:
    """A write relies on content that was stored before, and is not there any more."""
    return Refused(
        "content_missing",
        f"run {run_id} refers to content that is not stored, so nothing was written; try again.",
        details={"run": run_id},
    )


def key_occupied(key: str, run_id: str, owner: str) -> Refused:
    """The exclusive key belongs to another run that is held; names the holder."""
    return Refused(
        "occupied",
        f"{key!r} is in use by run {run_id} ({owner_label(owner)}); wait for it, or pause or cancel it.",
        details={"holder": owner, "run": run_id},
    )


OTHERS = stat.S_IRWXG | stat.S_IRWXO


def exposed_files(paths: Iterable[str]) -> str:
    """What is wrong with the permissions of those paths that are there, and what to run; empty if nothing."""
    found: dict[str, list[str]] = {}
    for path in paths:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue  # there is none
        if mode & OTHERS:
            found.setdefault("700" if stat.S_ISDIR(mode) else "600", []).append(path)
    return "; ".join(
        f"{', '.join(named)} can be read by other users: run `chmod {mode} {shlex.join(named)}`"
        for mode, named in found.items()
    )
