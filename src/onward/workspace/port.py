"""What the engine asks of work trees. Every call blocks: it belongs into a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from onward.model.workspace import Merged, Tree

Check = Callable[[], None]
"""Asked when nobody else can be at the run's trees, right before they are changed: raises to forbid it."""


def unasked() -> None:
    """The check of who needs no leave."""


@dataclass(frozen=True, slots=True)
class Place:
    """One work tree of one run. `stamp` tells runs of the same id in different databases apart.

    `branch` is the branch of the work tree's own; without one, its HEAD is detached, or, where the tree is a
    person's, on whatever they have checked out.
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
    """Work trees. What cannot be done raises `WorkspaceFailed`, and then nothing was thrown away.

    Each call but `restore` may be made again when a signal ended it (`GitKilled`), to the same end.
    """

    def find(self, directory: str) -> tuple[str, Tree]:
        """The top of the repository that a directory is in, and what it stands at; `InvalidInput` if none."""
        ...

    def has_branch(self, repository: str, branch: str) -> bool:
        """Whether the repository has such a branch."""
        ...

    def make(self, place: Place, tree: Tree) -> None:
        """Have the work tree; one that is there is used as it is, one that is not begins as `tree`."""
        ...

    def record(self, place: Place, name: str, known: Tree | None) -> Tree | None:
        """Keep what is in the work tree under a ref; None if that is what is known already."""
        ...

    def restore(self, place: Place, tree: Tree) -> str:
        """Make the work tree what it was; returns the ref under which what it replaced was saved, if any."""
        ...

    def merge(
        self, place: Place, fork: Tree, branches: Sequence[tuple[str, Tree]], check: Check = unasked
    ) -> Merged:
        """Take over what each branch changed since `fork`, one after the other; what conflicts stays out."""
        ...

    def changed(self, place: Place, known: Tree) -> Sequence[str]:
        """The files that differ from what is known, removed ones too; `.git/HEAD` if it moved."""
        ...

    def remove(self, place: Place, known: Tree | None, check: Check = unasked) -> str:
        """Have no such work tree; what it held beyond `known` is saved under the ref that is returned."""
        ...


class Kept(Protocol):
    """Work trees of runs that are over, on the way out. Every call blocks."""

    def work_in(self, run_id: str, directory: str) -> str:
        """Why this work tree must not go: what it holds that is nowhere else; empty if there is nothing."""
        ...

    def remove(self, directory: str) -> None:
        """Have no such work tree, and let its repository forget it; `WorkspaceFailed` if that fails."""
        ...
