"""What the engine needs from work trees. Every call blocks: make it in a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from onward.model.events import Merged, Tree

Check = Callable[[], None]
"""Called while the run's trees are locked, right before a change; raises to forbid it."""


def unchecked() -> None:
    """A check that always allows the change."""


class TreePlace(msgspec.Struct, frozen=True):
    """One work tree of one run. `stamp` distinguishes runs of the same id in different databases.

    `branch` is the work tree's own git branch. Without one, its HEAD is detached; in a person's own tree, it
    is on whatever they have checked out.
    """

    run: str
    stamp: int
    repository: str
    directory: str
    branch: str = ""

    @property
    def is_in_place(self) -> bool:
        return self.directory == self.repository


class Trees(Protocol):
    """Work trees. A call that fails raises `WorkspaceFailed` and has deleted nothing.

    Every call except `restore` may be repeated after a signal ended it (`GitKilled`).
    """

    def find(self, directory: str) -> tuple[str, Tree]:
        """The top of the repository of a directory, and its state; `InvalidInput` if there is none."""
        ...

    def has_branch(self, repository: str, branch: str) -> bool:
        """Whether the repository has such a branch."""
        ...

    def make(self, place: TreePlace, tree: Tree) -> None:
        """Create the work tree with the state `tree`; one that exists is left as it is."""
        ...

    def record(self, place: TreePlace, name: str, known: Tree | None) -> Tree | None:
        """Record the state of the work tree under a ref; None if it equals `known`."""
        ...

    def restore(self, place: TreePlace, tree: Tree) -> str:
        """Restore the state `tree`; returns the ref that has the replaced state, if anything was replaced."""
        ...

    def merge(
        self, place: TreePlace, fork: Tree, branches: Sequence[tuple[str, Tree]], check: Check = unchecked
    ) -> Merged:
        """Merge what each branch changed since `fork`, one by one; branches that conflict stay out."""
        ...

    def changed(self, place: TreePlace, known: Tree) -> Sequence[str]:
        """The files that differ from `known`, removed ones too; `.git/HEAD` if it moved."""
        ...

    def remove(self, place: TreePlace, known: Tree | None, check: Check = unchecked) -> str:
        """Remove the work tree; if it differs from `known`, its state is saved under the returned ref."""
        ...


class OldTrees(Protocol):
    """Work trees of runs that are being deleted. Every call blocks."""

    def work_in(self, run_id: str, directory: str) -> str:
        """Why this work tree must stay: what it holds that is nowhere else; empty if it may go."""
        ...

    def remove(self, directory: str) -> None:
        """Remove the work tree and its entry in the repository; `WorkspaceFailed` if that fails."""
        ...
