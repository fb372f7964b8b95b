"""The workspace of a run: the git repository that its steps change, and how far they have come there."""

from __future__ import annotations

import msgspec

WORKTREE, IN_PLACE = "worktree", "in_place"
MODES = (WORKTREE, IN_PLACE)


def branch_name(run_id: str) -> str:
    """The git branch that the commits of a run with a work tree of its own are on."""
    return f"onward/{run_id}"


class Tree(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A work tree as a checkpoint found it.

    `head` is the commit it stood on; `commit` holds all of its files, and is another one where some were not
    committed. `ref` keeps both of them from being collected. `branch` is empty if none was checked out.
    """

    head: str
    commit: str
    ref: str = ""
    branch: str = ""


class Workspace(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Which repository a run works on, whether in a work tree of its own, and the state it begins with."""

    repository: str
    start: Tree
    mode: str = WORKTREE
    keep: bool = False


class Conflict(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A branch whose work conflicts with that of the branches before it, and the files."""

    branch: str
    files: tuple[str, ...]


class Merged(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The result of merging the work of branches: the tree after it, if it changed, and the conflicts."""

    tree: Tree | None = None
    conflicts: tuple[Conflict, ...] = ()


NOTHING_MERGED = Merged()
