"""The composition root: the only module that names concrete adapters together.

In order: where a database is and which paths belong to it, its store, where warnings go (without the secrets
that may be in them), the engine with the system's clock and the built-in handlers, what creates runs without
an engine, agents and their tools as the settings describe them, and what delivers notifications.

Adapters are imported inside functions: a command that only looks at runs does not wait for those that it
does not need.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from onward.config import (
    Settings,
    file_mode,
    own_environment,
    proxy_for,
    read_secret,
    tool_environment,
    tool_variables,
)
from onward.errors import InvalidInput, StoreReadOnly
from onward.model.values import LEASE, is_named
from onward.store.port.store import Store
from onward.store.reader import Reader

if TYPE_CHECKING:
    from onward.agents.lists import ProgramShown
    from onward.agents.models import Models
    from onward.agents.prices import Prices
    from onward.agents.programs.program import Program
    from onward.agents.providers import Keys
    from onward.agents.tools.mcp.source import McpTools
    from onward.agents.tools.port import AgentTool, ToolSource
    from onward.agents.tools.toolbox import Toolbox
    from onward.engine.control.create import Submitting
    from onward.engine.control.requests import StartRequest
    from onward.engine.engine import Engine, Extensions
    from onward.engine.files.run_files import RunFiles
    from onward.engine.sources import Sources
    from onward.handlers.port import Handler
    from onward.model.events import Workspace
    from onward.model.settings import NotifySettings
    from onward.notify.courier import Courier, Sender
    from onward.observe.traces import Traces
    from onward.pipeline.build import Pipeline
    from onward.redact.redactor import Redactor
    from onward.workspace.port import OldTrees


T = TypeVar("T")
POSTGRES = ("postgres://", "postgresql://")
PROJECT_RUNS = os.path.join(".onward", "runs")


def check_address(db: str) -> None:
    """Refuse an address of an unknown kind, which would create odd files if it were used as a path."""
    scheme, colon, _ = db.partition(":")
    if colon and scheme in ("postgres", "postgresql") and not db.startswith(POSTGRES):
        raise InvalidInput(f"the database {db!r} is not a valid address; write postgresql://HOST/NAME.")
    if "://" in db and not db.startswith((*POSTGRES, "sqlite://")):
        raise InvalidInput(
            f"{scheme}://… is not a known kind of database; write postgresql://HOST/NAME, or a path."
        )


def is_there(db: str) -> bool:
    """Whether there is a database to open; creates no file."""
    check_address(db)
    return db.startswith(POSTGRES) or os.path.lexists(db.removeprefix("sqlite://"))


def runs_of(db: str) -> str | None:
    """Where the runs of a database have their directories: next to it; for a server, in the project."""
    if db == ":memory:":
        return None
    if db.startswith(POSTGRES):
        return PROJECT_RUNS
    path = os.path.abspath(db.removeprefix("sqlite://"))
    above = os.path.dirname(path)
    return os.path.join(above, "runs") if os.path.basename(above) == ".onward" else f"{path}-runs"


def own_paths(db: str | None, runs: str | None) -> list[str]:
    """The paths that Onward itself writes: the directories of runs, and the files of a SQLite database."""
    own = [] if runs is None else [os.path.abspath(runs)]
    if db is not None and db != ":memory:" and not db.startswith(POSTGRES):
        path = os.path.abspath(db.removeprefix("sqlite://"))
        own += [path + end for end in ("", "-wal", "-shm", "-workers")]
    return own


def outside_work(runs: str | None) -> list[str]:
    """Paths that are never a step's work, even inside the repository: the runs, and the database there."""
    if runs is None:
        return []
    root = os.path.realpath(runs)
    around = os.path.dirname(root)
    if os.path.basename(around) == ".onward":
        return [around]
    if not root.endswith("-runs"):
        return [root]
    return [root, *(root.removesuffix("-runs") + end for end in ("", "-wal", "-shm", "-workers"))]


def database_variable(db: str | None, tool_env: tuple[str, ...]) -> dict[str, str]:
    """ONWARD_DB for commands: always for a file; for a server, whose address has a password, if allowed."""
    if db is None or db == ":memory:" or (db.startswith(POSTGRES) and not is_named("ONWARD_DB", tool_env)):
        return {}
    return {"ONWARD_DB": db if db.startswith(POSTGRES) else os.path.abspath(db.removeprefix("sqlite://"))}


async def open_store(db: str, *, lease_s: float | None = None) -> Store:
    """Open the store at a path or address. A driver is imported only when it is used.

    `lease_s` is how long a claim lasts if others cannot see whether its process is alive.
    """
    check_address(db)
    if lease_s is not None:
        LEASE.check(lease_s, "lease_s")
    store = await _opened_store(db, lease_s)
    if await store.backfill.missing():
        from onward.read.backfill import fill_in

        with suppress(StoreReadOnly):  # then there is only what was filled in before
            await fill_in(store)
    return store


async def _opened_store(db: str, lease_s: float | None) -> Store:
    if db.startswith(POSTGRES):
        from onward.store.postgres.adapter import LEASE_S, PostgresStore

        return await PostgresStore.open(db, lease_s=lease_s or LEASE_S)
    if db == ":memory:":
        from onward.store.memory.adapter import MemoryDatabase

        return MemoryDatabase().connect()
    from onward.store.sqlite import adapter

    return adapter.SqliteStore(db.removeprefix("sqlite://"), lease_s=lease_s or adapter.LEASE_S)


async def open_reader(db: str, build: Callable[[Store], T], *, name: str = "onward reader") -> Reader[T]:
    """Open a database that is open already once more, for reading beside the event loop.

    `build` makes what reads, such as operations, in the reader's thread. A file cannot be written through it;
    a server gets connections of its own.
    """
    check_address(db)
    if db == ":memory:":
        raise InvalidInput("a database in memory cannot be opened twice; name a file or a server.")
    return await Reader.start(partial(_opened_to_read, db), build, name=name)


async def _opened_to_read(db: str) -> Store:
    if db.startswith(POSTGRES):
        return await _opened_store(db, None)
    from onward.store.sqlite import adapter

    return adapter.SqliteStore(db.removeprefix("sqlite://"), connect=adapter.connect_to_read)


log_warning = logging.getLogger("onward").warning


def redacting(warn: Callable[[str], None], redactor: Redactor) -> Callable[[str], None]:
    """The same `warn`, but what the redactor knows is not told."""
    return lambda text: warn(redactor.redact(text))


def make_engine(
    store: Store,
    *,
    handlers: Mapping[str, Handler],
    extensions: Extensions,
    tool_env: tuple[str, ...] = (),
    runs: str | None = None,
    files: str | None = None,
    warn: Callable[[str], None] | None = None,
    db: str | None = None,
    redactor: Redactor,
) -> Engine:
    """An engine on the system's clock and dice, with the built-in handlers and the caller's.

    Steps have directories below `runs`; without it, none. `db`: where the store is, for commands. What the
    `redactor` knows is stored nowhere.
    """
    from onward.clock import SystemClock, SystemDice, SystemIds
    from onward.engine.engine import Engine, Surroundings
    from onward.workspace.trees import GitTrees

    environment = tool_environment(tool_env) | database_variable(db, tool_env)
    tell = redacting(warn or log_warning, redactor)
    _tell_short_secrets(redactor, tell)
    return Engine(
        store,
        clock=SystemClock(),
        ids=SystemIds(),
        dice=SystemDice(),
        handlers={**_built_in(environment, redactor), **handlers},
        extensions=extensions,
        surroundings=Surroundings(
            files=_run_files(store, runs, files, tell),
            trees=GitTrees(tool_environment(tool_env), outside_work(runs)),
            own=own_paths(db, runs),
            variables=tool_variables(tool_env),
            redactor=redactor,
            warn=tell,
        ),
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
    from onward.engine.control.create import Creating, Submitting
    from onward.engine.control.limits import LimitChanges
    from onward.engine.definitions import DefinitionCache
    from onward.engine.journal import Journal

    clock = SystemClock()
    journal = Journal(store.log, clock, redactor)
    workspaces = _LateWorkspaces(store, runs)
    creating = Creating(
        *(journal, clock, SystemIds(), DefinitionCache(kinds), sources, workspaces, store.runs),
        LimitChanges(store, clock),
    )
    return Submitting(creating, journal, clock)


class _LateWorkspaces(msgspec.Struct, frozen=True):
    """Finds the workspaces of new runs; imported for the first run that has one."""

    store: Store
    runs: Callable[[], str | None]

    async def asked(self, pipeline: Pipeline, start: StartRequest, run_id: str) -> Workspace | None:
        from onward.engine.files.workspaces import Workspaces
        from onward.workspace.trees import GitTrees

        runs = self.runs()
        trees = GitTrees(tool_environment(()), outside_work(runs))
        found = Workspaces(trees, _run_files(self.store, runs, None, None), log_warning)
        return await found.asked(pipeline, start, run_id)


def old_trees() -> OldTrees:
    """Checks and removes the work trees of runs that are deleted."""
    from onward.workspace.trees import GitOldTrees

    return GitOldTrees(tool_environment(()))


def _built_in(environment: Mapping[str, str], redactor: Redactor) -> Mapping[str, Handler]:
    from onward.handlers.shell import ToolHandler
    from onward.process import SystemSpawn
    from onward.redact.redactor import cleaner_of

    spawn = SystemSpawn(cleaner=cleaner_of(lambda: redactor))
    return {"tool": ToolHandler(spawn, environment=environment)}


def open_traces(settings: Settings) -> Traces | None:
    """What sends spans to the collector that settings name; None without one."""
    if settings.traces is None:
        return None
    try:
        from onward.observe.traces import Traces
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise InvalidInput(
            "traces is set, and OpenTelemetry is not installed; install it with: pip install 'onward[otel]'"
        ) from None
    return Traces(settings.traces)


def open_models(settings: Settings, redactor: Redactor) -> Models:
    """The models that settings describe; InvalidInput if they do so badly. Nothing is connected yet.

    Every key is known to the `redactor` from the moment it is read.
    """
    from onward.agents.models import Models
    from onward.agents.providers import read_providers
    from onward.clock import SystemClock

    providers = read_providers(settings.providers, base_urls=settings.base_urls)
    keys = open_keys(settings, redactor)
    return Models(providers, keys=keys, clock=SystemClock(), default=settings.model, proxy=proxy_for)


def open_keys(settings: Settings, redactor: Redactor) -> Keys:
    """The keys of providers and servers. Each is known to the `redactor` from the moment it is read."""
    from onward.agents.providers import Keys
    from onward.process import SystemSpawn

    directory = settings.project.path(".")
    return Keys(variables=own_environment, spawn=SystemSpawn(), directory=directory, known_as=redactor.add)


def make_agent(models: Models | None, settings: Settings, toolbox: Toolbox, redactor: Redactor) -> Handler:
    """The handler of agent steps: it asks these models, which may use these tools, or lets programs work."""
    from onward.agents.programs.handler import AgentSteps, ProgramHandler
    from onward.agents.step.handler import AgentHandler
    from onward.clock import SystemClock, SystemDice
    from onward.process import SystemSpawn
    from onward.redact.redactor import cleaner_of

    prices, clock, dice = open_prices(settings), SystemClock(), SystemDice()
    spawn = SystemSpawn(cleaner=cleaner_of(lambda: redactor))
    programs = ProgramHandler(open_programs(settings), spawn, prices, clock, dice, tool_environment)
    return AgentSteps(
        None
        if models is None
        else AgentHandler(models, prices, clock, dice, toolbox, summary_model=settings.summary_model),
        programs,
    )


def open_programs(settings: Settings) -> Mapping[str, Program]:
    """The programs that may work as agents, by name; InvalidInput if settings describe one badly."""
    from onward.agents.programs.program import read_programs

    return read_programs(settings.programs, settings.project.path)


def programs_here(settings: Settings) -> list[ProgramShown]:
    """The programs that may work as agents, and where they are on this machine."""
    from onward.agents.programs.program import list_programs

    path = tool_environment().get("PATH", "")
    return list_programs(open_programs(settings), own=settings.programs, path=path)


def has_programs(settings: Settings) -> bool:
    """Whether a program that works as an agent is described, or found on this machine."""
    return bool(settings.programs) or any(one["found"] for one in programs_here(settings))


def open_prices(settings: Settings) -> Prices:
    """The prices of this version, with those of the settings in their place."""
    from onward.agents.prices import read_prices

    return read_prices(settings.prices)


def make_toolbox(
    settings: Settings,
    *,
    redactor: Redactor,
    functions: Mapping[str, AgentTool] | None = None,
    mcp: McpTools | None = None,
    db: str | None = None,
    runs: str | None = None,
) -> Toolbox:
    """The tools of agents, under the project's rules; InvalidInput if settings describe them badly.

    `functions` are those of an app, `mcp` those of servers. What commands print is redacted. `db` and `runs`
    are where Onward's own files are, which no tool touches.
    """
    from onward.agents.tools.commands import SearchTool, ShellTool
    from onward.agents.tools.files import file_tools
    from onward.agents.tools.functions import FunctionTools
    from onward.agents.tools.toolbox import FixedTools, HookedTools, Toolbox, read_tools
    from onward.handlers.shell import ToolHooks
    from onward.process import SystemSpawn
    from onward.redact.redactor import cleaner_of

    said = read_tools(settings.tools)
    own, environment = own_paths(db, runs), tool_environment(settings.tool_env)
    spawn = SystemSpawn(cleaner=cleaner_of(lambda: redactor))
    tools: list[AgentTool] = [*file_tools(own), SearchTool(spawn, own), ShellTool(spawn, environment)]
    if said.allowed:
        from onward.agents.tools.web import Web, web_tools  # here, for its HTTP client

        tools += web_tools(Web(said.allowed, said.allows_private))
    hooks = ToolHooks(spawn, environment=environment)
    sources: list[ToolSource] = [FixedTools("built-in", tools)]
    if functions is not None:
        sources.append(FunctionTools(functions))
    if mcp is not None:
        sources.append(mcp)
    return Toolbox([HookedTools(source, hooks) for source in sources], said.changed, settings.allowed_tools)


def make_mcp(settings: Settings, redactor: Redactor, *, warn: Callable[[str], None]) -> McpTools | None:
    """The tools of the MCP servers that settings name; None if there are none. Nothing is started yet.

    Every key is known to the `redactor` from the moment it is read. Close it with what uses it.
    """
    if not settings.mcp:
        return None
    from onward.agents.tools.mcp.settings import read_servers
    from onward.agents.tools.mcp.source import McpTools, channel_opener
    from onward.clock import SystemClock
    from onward.model.events import STDERR
    from onward.process import SystemSpawn
    from onward.redact.redactor import cleaner_of

    clock, spawn = SystemClock(), SystemSpawn(cleaner=cleaner_of(lambda: redactor, streams=(STDERR,)))
    open_channel = channel_opener(
        spawn,
        keys=open_keys(settings, redactor),
        clock=clock,
        environment=tool_environment,
        path=settings.project.path,
    )
    return McpTools(read_servers(settings.mcp), open_channel, clock=clock, warn=redacting(warn, redactor))


def make_courier(
    store: Store,
    settings: Settings,
    *,
    warn: Callable[[str], None],
    redactor: Redactor,
    db: str | None = None,
    count: Callable[[str], None] = lambda result: None,
    is_hurried: Callable[[], bool] = lambda: False,
) -> Courier | None:
    """What delivers notifications as `[notify]` says; None if nobody wants any.

    What the `redactor` knows is told to nobody; the secret that signs requests is known to it from now on.
    """
    notify = settings.notify
    if notify is None:
        return None
    from onward.clock import SystemClock, SystemDice
    from onward.notify.courier import Courier

    return Courier(
        store.outbox,
        _sender(notify, settings, redactor, db),
        SystemClock(),
        SystemDice(),
        kinds=notify.on,
        timeout_s=notify.timeout_s,
        warn=redacting(warn, redactor),
        redactor=redactor,
        count=count,
        is_hurried=is_hurried,
    )


def _sender(notify: NotifySettings, settings: Settings, redactor: Redactor, db: str | None) -> Sender:
    from onward.clock import SystemClock
    from onward.notify.senders import CommandSender, UrlSender, key_of
    from onward.process import SystemSpawn
    from onward.redact.redactor import cleaner_of

    if notify.command is not None:
        environment = tool_environment(notify.env) | database_variable(db, notify.env)
        cwd = settings.project.path(".")
        spawn = SystemSpawn(cleaner=cleaner_of(lambda: redactor))
        return CommandSender(
            notify.command, spawn, environment=environment, cwd=cwd, timeout_s=notify.timeout_s
        )
    secret = None
    if notify.secret is not None:
        try:
            secret = key_of(read_secret(notify.secret, settings.project, redactor))
        except ValueError:
            raise InvalidInput(
                f"the secret of [notify], {notify.secret}, is empty or not base64 after whsec_."
            ) from None
    assert notify.url is not None  # one of the two is there
    return UrlSender(notify.url, secret=secret, timeout_s=notify.timeout_s, clock=SystemClock())
