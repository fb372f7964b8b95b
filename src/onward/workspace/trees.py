"""Work trees with git: each recorded state is a commit under `refs/onward/<run>/`.

`GitOldTrees` looks at the work trees of runs that are about to be deleted: does one hold work that is nowhere
else?
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from onward.errors import InvalidInput, WorkspaceFailed
from onward.model.events import Merged, Tree, branch_name
from onward.workspace.git import Git, locked, merge_all
from onward.workspace.port import Check, TreePlace, unchecked

HASH_SHOWN = 12
_NOT_IN_REFS = re.compile(r"[^A-Za-z0-9_]+")


class _Found(msgspec.Struct, frozen=True):
    """The current state of a work tree: `content` is the tree object with all of its files."""

    head: str
    branch: str
    content: str

    def is_at(self, head: str, branch: str, content: str) -> bool:
        return (self.head, self.branch, self.content) == (head, branch, content)


@dataclass(frozen=True, slots=True)
class GitTrees:
    """Work trees of real repositories. `outside`: directories whose content is never a step's work."""

    environment: Mapping[str, str]
    outside: Sequence[str] = ()

    def find(self, directory: str) -> tuple[str, Tree]:
        if not os.path.isdir(directory):
            raise InvalidInput(f"the workspace {directory} is not a directory; name a git repository.")
        git = Git(directory, self.environment, looks_up=True)
        try:
            top = git.ask("rev-parse", "--show-toplevel")
            if top.code != 0:
                bare = git.ask("rev-parse", "--is-bare-repository").out.strip() == "true"
                why = "is a bare repository" if bare else "is not in a git repository"
                raise InvalidInput(
                    f"the workspace {directory} {why}; name a directory in a work tree of one."
                )
            if git.ask("rev-parse", "--verify", "-q", "HEAD^{commit}").code != 0:
                raise InvalidInput(
                    f"the workspace {directory} is a repository without a commit; create one first."
                )
            head, branch = _head(git)
        except WorkspaceFailed as error:
            raise InvalidInput(str(error)) from error
        return os.path.realpath(top.out.rstrip("\n")), Tree(head=head, commit=head, branch=branch)

    def has_branch(self, repository: str, branch: str) -> bool:
        return _commit_of(Git(repository, self.environment), f"refs/heads/{branch}") is not None

    # -- having one ----------------------------------------------------------------------------------

    def make(self, place: TreePlace, tree: Tree) -> None:
        with self._alone(place) as lock:
            repository = Git(place.repository, self.environment, lock=lock)
            if place.is_in_place or self._is_made(repository, place):
                return
            self._check_ours(repository, place, tree)
            self._clear(repository, place)
            on = ("-B", place.branch) if place.branch else ("--detach",)
            repository("worktree", "add", "-q", "--no-checkout", *on, "--", place.directory, tree.head)
            git = Git(place.directory, self.environment, lock=lock)
            git("reset", "-q", "--hard", "HEAD")
            if tree.commit != tree.head:
                self._fill(git, self._content(git, place), _content_of(git, tree.commit))
            repository("update-ref", _made(place), tree.commit)

    def _is_made(self, repository: Git, place: TreePlace) -> bool:
        """Whether the work tree exists and is complete; a crash may have left half of one."""
        if not os.path.isdir(place.directory) or _commit_of(repository, _made(place)) is None:
            return False
        top = Git(place.directory, self.environment).ask("rev-parse", "--show-toplevel")
        return top.code == 0 and os.path.realpath(top.out.rstrip("\n")) == os.path.realpath(place.directory)

    def _check_ours(self, repository: Git, place: TreePlace, tree: Tree) -> None:
        """Refuse a branch of another run with the same id; ours is marked before it is created."""
        if _commit_of(repository, tree.commit) is None:
            raise WorkspaceFailed(f"the recorded state {tree.commit} is no longer in {place.repository}.")
        if not place.branch:
            return
        begun = f"refs/onward/{place.run}/begun-{place.stamp}"
        tip = _commit_of(repository, f"refs/heads/{place.branch}")
        if tip is not None and _commit_of(repository, begun) is None:
            raise WorkspaceFailed(
                f"the branch {place.branch} of {place.repository} belongs to another run with this id; "
                f"rename or delete it (`git branch -D {place.branch}`), or choose another run id."
            )
        repository("update-ref", begun, tree.head)
        if tip not in (None, tree.head):
            _save(repository, place, str(tip))

    def _clear(self, repository: Git, place: TreePlace) -> None:
        """Remove the directory; git then prunes its entry."""
        if os.path.lexists(place.directory):
            repository.ask("worktree", "remove", "--force", "--force", "--", place.directory)
            shutil.rmtree(place.directory, ignore_errors=True)
        repository("worktree", "prune")

    # -- keeping what is in it -----------------------------------------------------------------------

    def record(self, place: TreePlace, name: str, known: Tree | None) -> Tree | None:
        with self._open(place) as git:
            found = self._content(git, place)
            if known is not None and _is_known(git, place, found, known):
                return None
            commit = _committed(git, found, f"Workspace of run {place.run} after {name}")
            ref = f"refs/onward/{place.run}/{_NOT_IN_REFS.sub('-', name)}-{commit[:HASH_SHOWN]}"
            git("update-ref", ref, commit)
            return Tree(head=found.head, commit=commit, ref=ref, branch=found.branch)

    def changed(self, place: TreePlace, known: Tree) -> Sequence[str]:
        if not place.is_in_place and not self._is_made(Git(place.repository, self.environment), place):
            return ()  # no step can have started to work in it
        with self._open(place) as git:
            found, before = self._content(git, place), _content_of(git, known.commit)
            names = git("diff-tree", "-r", "-z", "--no-renames", "--name-only", before, found.content)
            moved = [".git/HEAD"] if found.head != known.head else []
            return [*moved, *filter(None, names.split("\0"))]

    def _content(self, git: Git, place: TreePlace) -> _Found:
        """All files except ignored ones, recorded through our own index."""
        head, branch = _head(git)
        index, own = _indexes(git)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{own}.lock")  # left by a git that was killed: nothing else uses this index
        with contextlib.suppress(FileNotFoundError):
            os.unlink(own)
        if os.path.exists(index):
            # With its time: git uses that to see whether a file may have changed in the same instant.
            shutil.copy2(index, own)
        else:
            git("read-tree", "HEAD", index=own)
        git("add", "-A", "--", ".", *self._excluded(place.directory), index=own)
        return _Found(head, branch, git("write-tree", index=own))

    def _excluded(self, directory: str) -> list[str]:
        inside = [path for path in self.outside if path.startswith(f"{directory}{os.sep}")]
        return [f":(exclude,literal,top){os.path.relpath(path, directory)}" for path in inside]

    # -- going back ----------------------------------------------------------------------------------

    def restore(self, place: TreePlace, tree: Tree) -> str:
        with self._open(place) as git:
            wanted, found = _content_of(git, tree.commit), self._content(git, place)
            branch = place.branch or tree.branch if place.is_in_place or place.branch else ""
            if found.is_at(tree.head, branch, wanted):
                return ""
            saved = _save(git, place, _committed(git, found, f"Workspace of run {place.run}, replaced"))
            self._move(git, found, head=tree.head, branch=branch, content=wanted)
            return saved

    def _move(
        self, git: Git, found: _Found, *, head: str, branch: str, content: str, only_if: str = ""
    ) -> None:
        """Change files first and HEAD last, so that a crash between them repeats the change.

        With `only_if`, a branch that is not at that commit any more is left alone.
        """
        expected = (only_if,) if only_if else ()
        self._fill(git, found, content)
        if branch:
            git("update-ref", f"refs/heads/{branch}", head, *expected)
            git("symbolic-ref", "HEAD", f"refs/heads/{branch}")
        else:
            git("update-ref", "--no-deref", "HEAD", head, *expected)
        git("reset", "-q", "--mixed")

    def _fill(self, git: Git, found: _Found, content: str) -> None:
        """Change the files to `content`; our own index, from which `found` comes, knows the old ones."""
        if content != found.content:
            _, own = _indexes(git)
            git("read-tree", "--reset", "-u", content, index=own)

    # -- branches, and the end -----------------------------------------------------------------------

    def merge(
        self, place: TreePlace, fork: Tree, branches: Sequence[tuple[str, Tree]], check: Check = unchecked
    ) -> Merged:
        with self._open(place) as git:
            found = self._content(git, place)
            head, content, conflicts = merge_all(git, found.head, found.content, fork, branches)
            if (head, content) != (found.head, found.content):
                check()
                self._move(git, found, head=head, branch=found.branch, content=content, only_if=found.head)
            return Merged(conflicts=tuple(conflicts))

    def remove(self, place: TreePlace, known: Tree | None, check: Check = unchecked) -> str:
        saved = ""
        with self._alone(place) as lock:
            check()
            repository = Git(place.repository, self.environment, lock=lock)
            if self._is_made(repository, place):
                git = Git(place.directory, self.environment, lock=lock)
                found = self._content(git, place)
                if known is None or not _is_known(git, place, found, known):
                    saved = _save(
                        git, place, _committed(git, found, f"Workspace of run {place.run}, removed")
                    )
            self._clear(repository, place)
            repository.ask("update-ref", "-d", _made(place))
        return saved

    # -- one at a time -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _alone(self, place: TreePlace) -> Iterator[int]:
        common = Git(place.repository, self.environment)("rev-parse", "--git-common-dir")
        folder = os.path.join(place.repository, common, "onward")
        try:
            with locked(os.path.join(folder, f"{place.run}.lock")) as lock:
                yield lock
        except OSError as error:
            raise WorkspaceFailed(
                f"the workspace {place.directory} cannot be used: {error.strerror or error}."
            ) from error

    @contextlib.contextmanager
    def _open(self, place: TreePlace) -> Iterator[Git]:
        if not os.path.isdir(place.directory):
            raise WorkspaceFailed(f"the workspace {place.directory} is gone.")
        with self._alone(place) as lock:
            yield Git(place.directory, self.environment, lock=lock)


def _head(git: Git) -> tuple[str, str]:
    """The commit of HEAD, and its branch."""
    branch = git.ask("symbolic-ref", "-q", "--short", "HEAD")
    return git("rev-parse", "--verify", "HEAD^{commit}"), branch.out.strip() if branch.code == 0 else ""


def _commit_of(git: Git, name: str) -> str | None:
    said = git.ask("rev-parse", "--verify", "-q", f"{name}^{{commit}}")
    return said.out.strip() if said.code == 0 else None


def _content_of(git: Git, commit: str) -> str:
    said = git.ask("rev-parse", "--verify", "-q", f"{commit}^{{tree}}")
    if said.code != 0:
        raise WorkspaceFailed(
            f"the recorded state {commit} is no longer in the repository of {git.directory}."
        )
    return said.out.strip()


def _is_known(git: Git, place: TreePlace, found: _Found, known: Tree) -> bool:
    """Whether a tree is as it was recorded; False if the recorded state is lost."""
    content = git.ask("rev-parse", "--verify", "-q", f"{known.commit}^{{tree}}")
    branch = known.branch if place.is_in_place else found.branch
    return content.code == 0 and found.is_at(known.head, branch, content.out.strip())


def _committed(git: Git, found: _Found, message: str) -> str:
    """A commit with these files: HEAD itself if all of them are committed."""
    if found.content == _content_of(git, found.head):
        return found.head
    return git("commit-tree", found.content, "-p", found.head, "-m", message)


def _save(git: Git, place: TreePlace, commit: str) -> str:
    ref = f"refs/onward/{place.run}/saved-{commit[:HASH_SHOWN]}"
    git("update-ref", ref, commit)
    return ref


def _made(place: TreePlace) -> str:
    """The ref that marks a work tree as complete."""
    name = _NOT_IN_REFS.sub("-", os.path.basename(place.directory))
    return f"refs/onward/{place.run}/made-{name}-{place.stamp}"


def _indexes(git: Git) -> tuple[str, str]:
    """The work tree's index, and our own beside it."""
    folder = git("rev-parse", "--absolute-git-dir")
    return os.path.join(folder, "index"), os.path.join(folder, "onward.index")


class GitOldTrees(msgspec.Struct, frozen=True):
    """Checks work trees of real repositories. Ignored files do not count as work."""

    environment: Mapping[str, str]

    def work_in(self, run_id: str, directory: str) -> str:
        match _mode(os.path.join(directory, ".git")):
            case None:
                return ""
            case mode if not stat.S_ISREG(mode):
                return "is a separate repository"
        git = Git(os.path.realpath(directory), self.environment)
        own = (f"refs/heads/{branch_name(run_id)}", f"refs/onward/{run_id}/")
        try:
            if git("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=none"):
                return "has uncommitted changes"
            holding = git("for-each-ref", "--format=%(refname)", "--contains", "HEAD").splitlines()
        except WorkspaceFailed as error:
            return f"cannot be checked ({str(error).rstrip('.')})"
        if any(ref != own[0] and not ref.startswith(own[1]) for ref in holding):
            return ""
        return "has commits that are not merged"

    def remove(self, directory: str) -> None:
        if _mode(os.path.join(directory, ".git")) is None:
            return
        common = Git(os.path.realpath(directory), self.environment)(
            "rev-parse", "--path-format=absolute", "--git-common-dir"
        )
        Git(common, self.environment)("worktree", "remove", "--force", "--force", "--", directory)


def _mode(path: str) -> int | None:
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
