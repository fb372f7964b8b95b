"""Every call of git, so that all of them are equally careful, and merges of the work of branches.

Arguments are lists, never text for a shell. Git runs no hooks and no file-system monitor of the repository,
never asks for a password, and starts nothing in the background. A merge happens in memory: nothing is written
into a work tree.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from onward.errors import GitKilled, WorkspaceFailed
from onward.model.events import Conflict, Tree

TIMEOUT_S = 300.0
LOCK_POLL_S = 0.02
WORDS_MAX = 300
_CAREFUL = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false", "-c", "core.quotePath=false", "-c", "advice.detachedHead=false"),
)
_QUIET = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "LC_ALL": "C",
    "GIT_AUTHOR_NAME": "Onward",
    "GIT_AUTHOR_EMAIL": "onward@localhost",
    "GIT_COMMITTER_NAME": "Onward",
    "GIT_COMMITTER_EMAIL": "onward@localhost",
}


class GitAnswer(msgspec.Struct, frozen=True):
    """What git answered."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        lines = [line for line in (self.err or self.out).splitlines() if line.strip()]
        return lines[-1].strip()[:WORDS_MAX] if lines else f"exit code {self.code}"


class Git(msgspec.Struct, frozen=True):
    """Git in one directory, which must itself be a work tree unless `looks_up`."""

    directory: str
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    timeout_s: float = TIMEOUT_S
    looks_up: bool = False
    lock: int | None = None

    def __call__(self, *arguments: str, index: str | None = None) -> str:
        """What git prints, without the final newline; WorkspaceFailed quotes its last line if it fails."""
        said = self.ask(*arguments, index=index)
        if said.code != 0:
            raise WorkspaceFailed(
                f"git {arguments[0]} in {self.directory} failed: {said.last_line.rstrip('.')}."
            )
        return said.out.rstrip("\n")

    def ask(self, *arguments: str, index: str | None = None) -> GitAnswer:
        """Like a call, but a failure is a value too; GitKilled if a signal ended git."""
        environment = {**self.environment, **_QUIET}
        if not self.looks_up:
            # If the .git of a work tree is gone, git must not use the repository around it.
            environment["GIT_CEILING_DIRECTORIES"] = os.path.dirname(self.directory)
        if index is not None:
            environment["GIT_INDEX_FILE"] = index
        command = ["git", *_CAREFUL, *arguments]
        try:
            done = subprocess.run(
                command,
                cwd=self.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self.timeout_s,
                pass_fds=() if self.lock is None else (self.lock,),
                process_group=0,  # a Ctrl-C asks us to stop after the step, which needs this git
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise WorkspaceFailed(
                f"git {arguments[0]} in {self.directory} did not end within {self.timeout_s:g} s."
            ) from None
        except OSError as error:
            raise WorkspaceFailed(
                f"git cannot run in {self.directory}: {error.strerror or error}."
            ) from error
        if done.returncode < 0:
            raise GitKilled(f"git {arguments[0]} in {self.directory} was ended by signal {-done.returncode}.")
        return GitAnswer(
            done.returncode,
            done.stdout.decode(errors="surrogateescape"),
            done.stderr.decode(errors="replace"),
        )


@contextlib.contextmanager
def locked(path: str, timeout_s: float = TIMEOUT_S) -> Iterator[int]:
    """Hold the lock; a child that inherits the descriptor keeps it locked until the child has ended.

    A killed process may leave its git running for a moment: the next holder waits for it.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    pause = threading.Event()
    try:
        for _ in range(int(timeout_s / LOCK_POLL_S)):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pause.wait(LOCK_POLL_S)
        else:
            raise WorkspaceFailed(
                f"another git process is still working for this run after {timeout_s:g} s ({path})."
            )
        yield descriptor
    finally:
        os.close(descriptor)


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
