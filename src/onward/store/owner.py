"""How a process is named where it owns a run: for people before the slash, for a liveness check behind it."""

from __future__ import annotations

from onward.host import host_identity, is_taken


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


def is_ending(owner: str) -> bool:
    """Whether the process is gone, and only its commands may still be running for a moment."""
    pid, _, host = owner.partition("/")[0].partition("@")
    return host == host_identity().host and pid.isdigit() and not is_taken(int(pid))


def owner_label(owner: str) -> str:
    """The part for people."""
    pid, _, host = owner.partition("/")[0].partition("@")
    return f"process {pid} on {host}" if host else owner
