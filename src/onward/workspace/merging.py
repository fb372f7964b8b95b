"""Merging the work of branches, in memory: nothing is written into a work tree."""

from __future__ import annotations

from collections.abc import Sequence

from onward.errors import WorkspaceFailed
from onward.model.events import Conflict, Tree
from onward.workspace.git import Git

CONFLICTS = 1


def merge_all(
    git: Git, head: str, content: str, fork: Tree, branches: Sequence[tuple[str, Tree]]
) -> tuple[str, str, list[Conflict]]:
    """HEAD and files after merging, in order, every branch without conflicts; and the conflicts of the
    others.

    A branch has its own commits, files that it did not commit, or both. Files are merged as each branch left
    them, committed or not, against their state at the fan-out; commits become a merge of heads.
    """
    conflicts = []
    for name, tree in branches:
        merged, files = _merged_files(git, fork.commit, content, f"{tree.commit}^{{tree}}")
        if merged is None:
            conflicts.append(Conflict(branch=name, files=files))
            continue
        content = merged
        head = _merged_heads(git, fork.head, head, tree.head, name)
    return head, content, conflicts


def _merged_files(git: Git, base: str, ours: str, theirs: str) -> tuple[str | None, tuple[str, ...]]:
    # merge-tree looks for the base in the history, so give it a history with only that.
    root = git("commit-tree", f"{base}^{{tree}}", "-m", "base")
    sides = [git("commit-tree", side, "-p", root, "-m", "side") for side in (ours, theirs)]
    return _merge_tree(git, *sides)


def _merged_heads(git: Git, fork: str, ours: str, theirs: str, name: str) -> str:
    if theirs == fork or git.ask("merge-base", "--is-ancestor", theirs, ours).code == 0:
        return ours
    if git.ask("merge-base", "--is-ancestor", ours, theirs).code == 0:
        return theirs
    content, _ = _merge_tree(git, ours, theirs)
    if content is None:
        return ours  # its files merge, but its commits do not: the files stay uncommitted
    return git("commit-tree", content, "-p", ours, "-p", theirs, "-m", f"Merge branch {name} of the run")


def _merge_tree(git: Git, ours: str, theirs: str) -> tuple[str | None, tuple[str, ...]]:
    """The merged tree, or the files at fault."""
    said = git.ask("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs)
    if said.code not in (0, CONFLICTS):
        raise WorkspaceFailed(
            f"the branches' work cannot be merged in {git.directory}: {said.last_line.rstrip('.')}; "
            "this needs git 2.38 or later."
        )
    content, *files = said.out.rstrip("\0\n").split("\0")
    return (content, ()) if said.code == 0 else (None, tuple(sorted({name for name in files if name})))
