"""An engine with the system's clock and the built-in handlers, and what creates runs without one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from onward.config.environment import tool_environment, tool_variables
from onward.config.known_secrets import own_redactor
from onward.config.settings import file_mode
from onward.store.port.store import Store
from onward.wiring.places import database_variable, outside_work, own_paths
from onward.wiring.warning import log_warning, redacting

if TYPE_CHECKING:
    from onward.engine.control.requests import Start
    from onward.engine.control.sources import Sources
    from onward.engine.control.submit import Submitting
    from onward.engine.engine import Engine
    from onward.engine.files.run_files import RunFiles
    from onward.engine.loop.parts import Observer
    from onward.engine.loop.serving import Around
    from onward.handlers.output import ShowLine
    from onward.handlers.port import Handler
    from onward.model.workspace import Workspace
    from onward.pipeline.build import Pipeline, Transform
    from onward.pipeline.rules.check import Rule
    from onward.redact.redactor import Redactor
    from onward.workspace.port import OldTrees


def make_engine(
    store: Store,
    *,
    handlers: Mapping[str, Handler] | None = None,
    transforms: Sequence[Transform] = (),
    rules: Sequence[Rule] | None = None,
    observe: Observer | None = None,
    tool_env: tuple[str, ...] = (),
    runs: str | None = None,
    files: str | None = None,
    warn: Callable[[str], None] | None = None,
    db: str | None = None,
    around: Around | None = None,
    show: ShowLine | None = None,
    redactor: Redactor | None = None,
) -> Engine:
    """An engine on the system's clock and dice, with the built-in handlers and the caller's.

    Steps have directories below `runs`; without it, none. `db`: where the store is, for commands.
    `show` gets what commands print, line by line. What the `redactor` knows is stored nowhere; without one,
    that is what the environment has.
    """
    from onward.clock import SystemClock, SystemDice, SystemIds
    from onward.engine.engine import Engine, ignore
    from onward.pipeline.rules.check import RULES
    from onward.workspace.trees import GitTrees

    environment = tool_environment(tool_env) | database_variable(db, tool_env)
    redactor = own_redactor(db) if redactor is None else redactor
    tell = redacting(warn or log_warning, redactor)
    _tell_short_secrets(redactor, tell)
    return Engine(
        store,
        clock=SystemClock(),
        ids=SystemIds(),
        dice=SystemDice(),
        handlers={**_built_in(environment, redactor), **(handlers or {})},
        transforms=transforms,
        rules=RULES if rules is None else rules,
        observe=observe or ignore,
        files=_run_files(store, runs, files, tell),
        trees=GitTrees(tool_environment(tool_env), outside_work(runs)),
        warn=tell,
        around=around,
        own=own_paths(db, runs),
        variables=tool_variables(tool_env),
        show=show,
        redactor=redactor,
    )


def _tell_short_secrets(redactor: Redactor, tell: Callable[[str], None]) -> None:
    for name in redactor.refused:
        tell(
            f"the value of {name} is too short to be redacted, so it may be stored; "
            "use a secret of at least 8 characters."
        )


def _run_files(
    store: Store, runs: str | None, files: str | None, warn: Callable[[str], None] | None
) -> RunFiles | None:
    from onward.engine.files.run_files import RunFiles

    if runs is None:
        return None
    return RunFiles(runs, store.identity, mode=file_mode(files), warn=warn or log_warning)


def make_submitting(
    store: Store,
    sources: Sources,
    *,
    redactor: Redactor,
    kinds: Collection[str] = (),
    runs: Callable[[], str | None],
) -> Submitting:
    """What creates runs in a store without an engine: a quick command does not wait for all its imports.

    What the `redactor` knows is stored nowhere.
    """
    from onward.clock import SystemClock, SystemIds
    from onward.engine.control.create import Creating
    from onward.engine.control.submit import Submitting
    from onward.engine.log.journal import Journal
    from onward.engine.loop.definitions import Definitions

    clock = SystemClock()
    journal = Journal(store.log, clock, redactor)
    workspaces = _LateWorkspaces(store, runs)
    creating = Creating(journal, clock, SystemIds(), Definitions(kinds), sources, workspaces)
    return Submitting(creating, journal, clock)


class _LateWorkspaces(msgspec.Struct, frozen=True):
    """Finds the workspaces of new runs; imported for the first run that has one."""

    store: Store
    runs: Callable[[], str | None]

    async def asked(self, pipeline: Pipeline, start: Start, run_id: str) -> Workspace | None:
        from onward.engine.files.workspaces import Workspaces
        from onward.workspace.trees import GitTrees

        runs = self.runs()
        trees = GitTrees(tool_environment(()), outside_work(runs))
        found = Workspaces(trees, _run_files(self.store, runs, None, None), log_warning)
        return await found.asked(pipeline, start, run_id)


def old_trees() -> OldTrees:
    """Checks and removes the work trees of runs that are deleted."""
    from onward.workspace.old_trees import GitOldTrees

    return GitOldTrees(tool_environment(()))


def _built_in(environment: Mapping[str, str], redactor: Redactor) -> Mapping[str, Handler]:
    from onward.handlers.shell.handler import ToolHandler
    from onward.process import SystemSpawn
    from onward.redact.stream import cleaner_of

    spawn = SystemSpawn(cleaner=cleaner_of(lambda: redactor))
    return {"tool": ToolHandler(spawn, environment=environment)}
