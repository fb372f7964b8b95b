"""What steps in doubt left: looked for on request, and never while a live process holds the run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from onward.clock import file_tick_us
from onward.engine.log import Folded
from onward.errors import InvalidInput, OnwardError, WorkspaceFailed
from onward.machine.decide.calls import is_in_doubt
from onward.model.call import POSITIONAL
from onward.model.events import IN_PLACE, RunClaimed, StepStarted, branch_name
from onward.model.ids import branch_of, idempotency_key
from onward.model.result import Left, LeftEffect, LeftFile
from onward.model.run import OpenStep, Run
from onward.pipeline.dot import parse
from onward.read.lookup import newest_first
from onward.read.step import CallSeen, read_calls
from onward.read.view import instant
from onward.receipts.folder import WORKSPACE, Folder, attempt_path, step_name
from onward.receipts.run_directory import Seen, changed_since, files_named, files_of_attempt
from onward.store.codec import unseal
from onward.store.owner import owner_host
from onward.store.port.leases import Effect
from onward.store.port.store import Store
from onward.threads import in_thread
from onward.workspace.port import TreePlace, Trees

if TYPE_CHECKING:
    from onward.replies.runs import LeftFileShown, LeftShown

EFFECTS_MAX = 50
FILES_VIEWED = 100
BEGINNINGS = (StepStarted.__name__, RunClaimed.__name__)


class Leftovers(msgspec.Struct, frozen=True):
    """Looks at what is left. `runs` has the runs' directories; `own` are paths that Onward itself writes."""

    store: Store
    runs: Folder | None
    trees: Trees | None = None
    own: Sequence[str] = ()

    async def of(self, folded: Folded) -> tuple[Left, ...]:
        """What each step in doubt left; nothing while a live process holds the run."""
        if folded.holder is not None and folded.holder.is_alive:
            return ()
        doubtful = [opened for opened in folded.run.open_steps.values() if is_in_doubt(opened)]
        return tuple([await self._of(folded.run, opened) for opened in doubtful])

    async def _of(self, run: Run, opened: OpenStep) -> Left:
        began_at_us, owner = await self._beginning(run, opened)
        handler, command = await self._call(run, opened)
        effects = await self.store.effects.read(idempotency_key(run.id, opened.step), limit=EFFECTS_MAX)
        calls = await self._calls(run, opened)
        left = Left(
            step=opened.step,
            node=opened.node,
            attempt=opened.attempt,
            began_at_us=began_at_us,
            handler=handler,
            command=command,
            effects=(*(_effect(effect, run, opened) for effect in effects), *calls),
        )
        where = None if owner is None else owner_host(owner)
        if where != owner_host(self.store.leases.owner):
            return replace(left, unseen=(f"it ran on {where or 'an unknown machine'}",))
        directory, files = await in_thread(self._own_files, run, opened)
        place, changed = await in_thread(self._changes, run, opened, began_at_us)
        return replace(
            left,
            directory=directory,
            files=files.files,
            place=place,
            changed=changed.files,
            unseen=(*files.unseen, *changed.unseen),
        )

    async def _beginning(self, run: Run, opened: OpenStep) -> tuple[int | None, str | None]:
        """When the step last began, and in which process."""
        at_us: int | None = None
        owner = run.last_worker if run.token == opened.token else None
        async for record in newest_first(partial(self.store.log.read, run.id), run.head, BEGINNINGS):
            event = unseal(record)
            if isinstance(event, StepStarted) and event.step == opened.step:
                at_us = at_us or record.at_us
            elif isinstance(event, RunClaimed) and event.token == opened.token:
                owner = owner or event.worker
            if at_us is not None and owner is not None:
                break
        return at_us, owner

    async def _calls(self, run: Run, opened: OpenStep) -> list[LeftEffect]:
        """The calls of the step that must not be repeated."""
        if opened.calls is None:
            return []
        calls = await read_calls(self.store.log, run.id, after=opened.calls.since, step=opened.step)
        left = [_left_call(call) for call in calls if not call.repeatable and call.state != "error"]
        return sorted(left, key=lambda effect: effect.key)

    async def _call(self, run: Run, opened: OpenStep) -> tuple[str, str]:
        """The handler that was called, and the command if it was one."""
        source = await self.store.blobs.find(run.pipeline_hash)
        try:
            node = parse((source or b"").decode(), file=run.path or run.pipeline).graph.nodes[opened.node]
        except (OnwardError, KeyError):  # a transform may have added it; the rest is still known
            return "", ""
        return node.kind, node.text("tool_command")

    def _own_files(self, run: Run, opened: OpenStep) -> tuple[str | None, Seen]:
        if self.runs is None:
            return None, Seen(unseen=("there is no directory for runs here",))
        path = (run.id, *attempt_path(opened.step, opened.attempt, opened.tries))
        try:
            if path[-1] not in self.runs.names(path[:-1]):
                return None, Seen()
        except OSError as error:
            return None, Seen(unseen=(error.strerror or str(error),))
        directory = self.runs.path(*path)
        return directory, files_of_attempt(directory)

    def _changes(self, run: Run, opened: OpenStep, began_at_us: int | None) -> tuple[str | None, Seen]:
        if began_at_us is None:
            return None, Seen(unseen=("the log does not say when it started",))
        if run.workspace is not None:
            return self._changes_in_tree(run, branch_of(opened.step))
        place, is_certain = (run.workdir, True) if run.workdir is not None else (_project(run), False)
        if place is None:
            return None, Seen(unseen=("its working directory is not known here",))
        place = os.path.realpath(place)  # links below it are not followed
        seen = changed_since(place, began_at_us - file_tick_us(), own=self._not_the_steps())
        if is_certain:
            return place, seen
        return place, Seen(seen.files, (*seen.unseen, f"it may have worked outside {place}"))

    def _changes_in_tree(self, run: Run, branch_id: str) -> tuple[str | None, Seen]:
        """Against the last checkpoint: the tree may have been made after the step was planned."""
        assert run.workspace is not None
        repository, is_in_place = run.workspace.repository, run.workspace.mode == IN_PLACE
        if self.trees is None or (self.runs is None and not is_in_place):
            return None, Seen(unseen=("the run's work tree cannot be found from here",))
        directory, branch_id = (
            (repository, "") if self.runs is None or is_in_place else _tree(self.runs, run, branch_id)
        )
        branch = "" if branch_id or is_in_place else branch_name(run.id)
        place = TreePlace(run.id, run.created_at_us, repository, directory, branch)
        try:
            names = self.trees.changed(place, run.branches[branch_id].tree or run.workspace.start)
        except (WorkspaceFailed, InvalidInput) as error:
            return directory, Seen(unseen=(str(error),))
        return directory, Seen(files_named(directory, names))

    def _not_the_steps(self) -> list[str]:
        own = [*self.own, *([self.runs.root] if self.runs is not None else [])]
        return [os.path.realpath(path) for path in own]


def _project(run: Run) -> str | None:
    """The directory in which commands ran, which is not recorded: a guess.

    It is the current directory, if the pipeline is in it; a wrong guess can at worst find nothing.
    """
    here = os.path.join(os.path.realpath(os.curdir), "")
    is_project = run.path is not None and os.path.realpath(run.path).startswith(here) and here != os.sep
    return here.removesuffix(os.sep) if is_project else None


def _tree(runs: Folder, run: Run, branch_id: str) -> tuple[str, str]:
    """The directory of a branch's work tree; one without its own tree works in that of its parent branch."""
    while branch_id:
        own = runs.path(run.id, f"{WORKSPACE}-{step_name(branch_id)}")
        if os.path.isdir(own):
            return os.path.realpath(own), branch_id
        branch_id = branch_of(branch_id)
    return os.path.realpath(runs.path(run.id, WORKSPACE)), ""


def _effect(effect: Effect, run: Run, opened: OpenStep) -> LeftEffect:
    state = "finished" if effect.result is not None else "begun" if effect.is_alive else "in_doubt"
    key = effect.key.removeprefix(f"{idempotency_key(run.id, opened.step)}/")
    return LeftEffect(key=key, state=state, begun_at_us=effect.begun_at_us)


def _left_call(call: CallSeen) -> LeftEffect:
    state = "finished" if call.state == "ok" else "in_doubt"
    is_agents = POSITIONAL.fullmatch(call.call) is not None  # its name is a tool's, and may recur
    return LeftEffect(
        key=call.call if is_agents else call.name or call.call,
        state=state,
        begun_at_us=call.began_at_us or 0,
        about=f"{call.name} {call.about}".strip() if is_agents else "",
    )


def view_left(left: Left) -> LeftShown:
    """What a step left, in stable names. Of very many files the first are named; `_count` says how many."""
    return {
        "step": left.step,
        "attempt": left.attempt,
        "assessment": left.assessment.value,
        "began_at": instant(left.began_at_us),
        "call": {"handler": left.handler, "command": left.command or None},
        "directory": left.directory,
        "files": _viewed(left.files),
        "files_count": len(left.files),
        "place": left.place,
        "changed": _viewed(left.changed),
        "changed_count": len(left.changed),
        "effects": [
            {
                "key": effect.key,
                "state": effect.state,
                "begun_at": instant(effect.begun_at_us),
                "about": effect.about or None,
            }
            for effect in left.effects
        ],
        "unseen": list(left.unseen),
    }


def _viewed(files: Sequence[LeftFile]) -> list[LeftFileShown]:
    return [{"path": file.path, "bytes": file.bytes} for file in files[:FILES_VIEWED]]
