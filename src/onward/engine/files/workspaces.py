"""The work trees of runs: one for the run, and one for each of its branches that does something.

A run without a workspace never comes here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from onward.engine.control.requests import StartRequest
from onward.engine.files.run_files import RunFiles
from onward.errors import GitKilled, InvalidInput, WorkspaceFailed
from onward.machine.definition import Definition
from onward.machine.plan.route import MET
from onward.model.events import IN_PLACE, WORKSPACE_MODES, WORKTREE, Merged, Tree, Workspace, branch_name
from onward.model.ids import branch_of, called
from onward.model.run import Parallel, Run
from onward.pipeline.build import Pipeline
from onward.receipts.folder import WORKSPACE, step_name
from onward.threads import in_thread
from onward.workspace.port import Check, TreePlace, Trees, unchecked

SHARED = "shared"
TRIES = 3
"""Of what is done with git, when a signal ends it."""

T = TypeVar("T")
StillOurs = Callable[[], Awaitable[None]]
"""Asks the store whether the run is held still; LeaseLost if it is not."""


class Workspaces:
    """Makes, records, restores, merges and removes work trees, as the state of a run says."""

    def __init__(self, trees: Trees | None, files: RunFiles | None, warn: Callable[[str], None]) -> None:
        self._trees, self._files, self._warn = trees, files, warn

    # -- before a run exists -------------------------------------------------------------------------

    async def asked(self, pipeline: Pipeline, start: StartRequest, run_id: str) -> Workspace | None:
        """The workspace that a new run is asked to have; refuses one that could not be used."""
        directory = _directory(pipeline, start)
        if directory is None:
            return None
        mode = start.workspace_mode or pipeline.graph.text("workspace_mode") or WORKTREE
        if mode not in WORKSPACE_MODES:
            raise InvalidInput(f"the workspace mode is {mode!r}; write one of {', '.join(WORKSPACE_MODES)}.")
        trees = self._git()
        repository, found = await in_thread(trees.find, directory)
        if mode == IN_PLACE:
            place = TreePlace(run_id, 0, repository, repository)
            try:
                recorded = await in_thread(trees.record, place, "start", found)
            except WorkspaceFailed as error:
                raise InvalidInput(str(error)) from error
            return Workspace(repository=repository, start=recorded or found, mode=mode)
        await self._check_room(trees, repository, run_id, is_new=start.terms.key is None)
        begin = Tree(head=found.head, commit=found.commit)
        return Workspace(repository=repository, start=begin, keep=start.keep_workspace)

    async def check_fork(self, run: Run, run_id: str) -> None:
        """Refuse a fork whose work tree could not be made."""
        if run.workspace is not None:
            await self._check_room(self._git(), run.workspace.repository, run_id, is_new=True)

    async def _check_room(self, trees: Trees, repository: str, run_id: str, *, is_new: bool) -> None:
        if self._files is None:
            raise InvalidInput(
                "the run's work tree needs a directory for run files; name one with --runs, or work in place "
                "with workspace_mode=in_place."
            )
        branch = branch_name(run_id)
        try:
            is_taken = is_new and await in_thread(trees.has_branch, repository, branch)
        except WorkspaceFailed as error:
            raise InvalidInput(str(error)) from error
        if is_taken:
            raise InvalidInput(
                f"{repository} already has a branch {branch}; choose another run id, "
                f"or delete it: git branch -D {branch}."
            )

    # -- while a run is driven -----------------------------------------------------------------------

    async def open(self, run: Run) -> None:
        """Have the run's work tree before anything is executed, restored if that was asked for."""
        if self._files is not None:
            self._files.own(run)
        await _insist(self._git().make, self._place(run, ""), _known(run, ""))
        if run.restore_workspace:
            for path, branch in run.branches.items():
                if not branch.ended and (not path or _is_there(self._place(run, path))):
                    await self._restore(run, path)

    async def _restore(self, run: Run, path: str) -> None:
        saved = await in_thread(self._git().restore, self._place(run, path), _known(run, path))
        if saved:
            self._warn(
                f"the workspace of run {called(run.id)} was restored to its last checkpoint; its previous "
                f"state is kept as {saved}."
            )

    async def directory(self, definition: Definition, run: Run, path: str) -> str:
        """Where the steps of a line work; a branch's tree is made when its first step begins."""
        line = _line(definition, run, path)
        place = self._place(run, line)
        if line:
            await _insist(self._git().make, place, _known(run, line))
        return place.directory

    async def record(self, definition: Definition, run: Run, step: str) -> Tree | None:
        """The work tree after a step, kept under a ref; None if that is known already."""
        path = branch_of(step)
        place = self._place(run, _line(definition, run, path))
        return await _insist(self._git().record, place, step, _known(run, path))

    async def merge(
        self, definition: Definition, run: Run, parallel: Parallel, still_ours: StillOurs
    ) -> Merged:
        """The work of branches that succeeded, taken over in their order; then their trees are gone.

        `still_ours` is asked while no other process can change the trees: who lost the lease changes none.
        """
        check = _from_a_thread(still_ours)
        trees, path = self._git(), branch_of(parallel.step)
        line = _line(definition, run, path)
        place, fork = self._place(run, line), _known(run, path)
        own = [name for name in parallel.branches if _line(definition, run, name) == name]
        done = [name for name in own if run.branches[name].ended in MET]
        merged = Merged()
        if done:
            if line:
                await _insist(trees.make, place, fork)
            work = [(name.removeprefix(f"{parallel.step}."), _known(run, name)) for name in done]
            merged = await _insist(trees.merge, place, fork, work, check)
        tree = None
        if not line or _is_there(place):
            tree = await _insist(trees.record, place, parallel.step, fork)
        await self._remove(run, own, check)
        return replace(merged, tree=tree)

    async def close(self, run: Run) -> None:
        """A run that is over needs no work tree any more; its branch and its refs stay."""
        if run.workspace is None or run.workspace.keep or run.workspace.mode == IN_PLACE:
            return
        try:
            await self._remove(run, ("",))
            root = self._place(run, "")
            for directory in _beside(root):  # of branches that were never joined
                place = replace(root, directory=_own(directory), branch="")
                known = _known(run, "")
                self._tell_saved(place, await _insist(self._git().remove, place, known))
        except (WorkspaceFailed, InvalidInput) as error:
            self._warn(f"the work tree of run {called(run.id)} could not be removed: {error}")

    async def _remove(self, run: Run, paths: Sequence[str], check: Check = unchecked) -> None:
        for path in paths:
            place = self._place(run, path)
            if _is_there(place):
                saved = await _insist(self._git().remove, place, _known(run, path), check)
                self._tell_saved(place, saved)

    def _tell_saved(self, place: TreePlace, ref: str) -> None:
        if ref:
            self._warn(f"{place.directory} was removed; its unrecorded changes are kept as {ref}.")

    def _git(self) -> Trees:
        if self._trees is None:
            raise InvalidInput("this process cannot use workspaces: git is not set up.")
        return self._trees

    def _place(self, run: Run, path: str) -> TreePlace:
        workspace = run.workspace
        assert workspace is not None
        repository, stamp = workspace.repository, run.created_at_us
        if workspace.mode == IN_PLACE:
            return TreePlace(run.id, stamp, repository, repository)
        if self._files is None:
            raise WorkspaceFailed("there is no directory for runs here; name the earlier one with --runs.")
        name = f"{WORKSPACE}-{step_name(path)}" if path else WORKSPACE
        folder = self._files.folder
        directory = _own(os.path.join(os.path.realpath(folder.root), folder.home(run.id), name))
        return TreePlace(run.id, stamp, repository, directory, "" if path else branch_name(run.id))


async def _insist(work: Callable[..., T], *arguments: object) -> T:
    """Work with git, in a thread; repeated if a signal ended git and not us, as at a deployment."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(GitKilled):
            return await in_thread(work, *arguments)
    return await in_thread(work, *arguments)


def _from_a_thread(ask: StillOurs) -> Check:
    loop = asyncio.get_running_loop()

    async def asked() -> None:
        await ask()

    return lambda: asyncio.run_coroutine_threadsafe(asked(), loop).result()


def _own(directory: str) -> str:
    """A step can put a link where its tree was: what that leads to is neither changed nor removed."""
    if os.path.realpath(directory) != directory:
        raise WorkspaceFailed(f"{directory} is not the run's own directory (links are not followed).")
    return directory


def _is_there(place: TreePlace) -> bool:
    return os.path.lexists(place.directory)


def _beside(root: TreePlace) -> list[str]:
    """The work trees of a run's branches."""
    around, name = os.path.split(root.directory)
    names = os.listdir(around) if os.path.isdir(around) else []
    return [os.path.join(around, found) for found in sorted(names) if found.startswith(f"{name}-")]


def _directory(pipeline: Pipeline, start: StartRequest) -> str | None:
    """A flag is meant from the current directory, an attribute from the directory of its file."""
    if start.workspace is not None:
        return os.path.abspath(start.workspace)
    written = pipeline.graph.text("workspace")
    beside = os.path.dirname(pipeline.path) if pipeline.path else ""
    return os.path.abspath(os.path.join(beside, written)) if written else None


def _known(run: Run, path: str) -> Tree:
    """What a line's tree was at its last checkpoint."""
    assert run.workspace is not None
    return run.branches[path].tree or run.workspace.start


def _line(definition: Definition, run: Run, path: str) -> str:
    """The line whose tree a line works in: its own, unless the fan-out says that branches share."""
    assert run.workspace is not None
    if run.workspace.mode == IN_PLACE:
        return ""
    for parallel in reversed(run.parallels.values()):
        if path in parallel.branches:
            node = definition.graph.nodes.get(parallel.node)
            if node is not None and node.text("workspace") == SHARED:
                return _line(definition, run, branch_of(parallel.step))
    return path
