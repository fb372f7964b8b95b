"""The operations that a command asks, on the database and the app that its flags name.

First the app and the database, then what opens the groups of operations: to look at runs, to create runs and
register pipelines, and to work with effects, limits, old runs, tools and notifications. What each group needs
is imported when it is opened, so that a command loads nothing that it does not use.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from onward.config import (
    ADDRESS,
    CONFIG_FILE,
    DIRECTORY,
    Project,
    ServerPlace,
    Settings,
    chosen_token,
    load_server,
    load_settings,
    place_in,
    redactor_of,
    step_key,
    tool_environment,
)
from onward.errors import InvalidInput, NoDatabase, told
from onward.wiring import POSTGRES, PROJECT_RUNS, is_there, make_courier, open_reader, open_store

if TYPE_CHECKING:
    from types import ModuleType

    from onward.agents.lists import ProgramShown
    from onward.agents.tools.toolbox import Toolbox
    from onward.app import Onward
    from onward.cli.options import Common
    from onward.cli.output import Output
    from onward.engine.control.retention import Collector
    from onward.engine.leftovers import Leftovers
    from onward.engine.sources import Registry, Sources
    from onward.engine.stop import StopSwitch
    from onward.notify.courier import Courier
    from onward.operations.here.directories import RunDirectories, RunLogs
    from onward.operations.local.access import Access, LocalAccess
    from onward.operations.local.database import LocalLimits, LocalPipelines
    from onward.operations.local.effects import LocalEffects
    from onward.operations.local.lists import LocalNotifications
    from onward.operations.local.submit import LocalSubmit
    from onward.operations.protocol import ListOperations, LookOperations, MessageOperations, Operations
    from onward.operations.remote import RemoteLogs
    from onward.receipts.run_directory import Homes
    from onward.store.port.principals import Principal
    from onward.store.port.store import Store
    from onward.store.reader import Reader


T = TypeVar("T")

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def sources_of(app: Onward, store: Store) -> Sources:
    """Where the definitions of stored runs come from, prepared as this app prepares them."""
    from onward.engine.sources import Sources
    from onward.pipeline.graph import BUILT_IN_TYPES

    return Sources(store.blobs, app.transforms, {*app.handlers, *BUILT_IN_TYPES}, app.rules)


def common_app(common: Common) -> Onward:
    """The app that the flags of every command mean."""
    return app_of(load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files))


def app_of(settings: Settings) -> Onward:
    """The app that the settings name, or one without handlers; a given database overrides the app's own."""
    from onward.app import Onward

    app = Onward(settings.db) if settings.app is None else loaded_app(settings, settings.app)
    if settings.is_db_given:
        app.store = settings.db
    app.runs = settings.runs or app.runs
    if app.runs is None and isinstance(app.store, str) and app.store.startswith(POSTGRES):
        app.runs = settings.project.path(PROJECT_RUNS)
    app.files = settings.files or app.files
    app.blocked_s = app.blocked_s if settings.blocked_s is None else settings.blocked_s
    redactor = redactor_of(settings)
    if not settings.redact.off:
        redactor.take(app.redactor)
    app.redactor = redactor
    return app


def loaded_app(settings: Settings, name: str) -> Onward:
    """The app that the settings name; what the project's file names is meant from the project's directory."""
    project = settings.project if settings.is_app_of_project else Project(settings.app_directory or "")
    if not project.directory:
        return load_app(name, os.getcwd())
    app = load_app(name, project.directory)
    app.store = place_in(project, app.store) if isinstance(app.store, str) else app.store
    app.runs = None if app.runs is None else project.path(app.runs)
    return app


def load_app(name: str, directory: str) -> Onward:
    """The app `package.module:name`, imported from a directory or an installed package, or `site.py:name`.

    `site.py` is the app in that file, or one without handlers; either serves all flows of the file.
    """
    if name.endswith(".py"):
        from onward.cli.flow_files import app_in_file

        return app_in_file(os.path.join(directory, name))
    module_name, colon, attribute = name.rpartition(":")
    if module_name.endswith(".py") and attribute:
        from onward.flows.load import load_file

        return _app_in(load_file(os.path.join(directory, module_name)), attribute, name)
    if not colon or not module_name or not attribute or "/" in module_name:
        is_word = attribute.isidentifier()
        example = f"{attribute}:app or {attribute}.py" if is_word and not colon else "shop:app or shop.py"
        raise InvalidInput(
            f"--app {name!r} is not the name of an app; write MODULE:NAME or a file, as in {example}."
        )
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name and not module_name.startswith(f"{error.name}."):
            raise InvalidInput(
                f"--app {name}: {module_name} needs the module {error.name!r}, which is missing."
            ) from error
        raise InvalidInput(
            f"--app {name}: there is no module {module_name!r} in {directory} or installed."
        ) from error
    except Exception as error:
        raise InvalidInput(
            f"--app {name}: importing {module_name} failed: {told(error).rstrip('.')}."
        ) from error
    return _app_in(module, attribute, name)


def _app_in(module: ModuleType, attribute: str, name: str) -> Onward:
    from onward.app import Onward

    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Onward):
        return found
    apps = sorted(key for key, value in vars(module).items() if isinstance(value, Onward))
    meant = (
        f"did you mean {module.__name__}:{apps[0]}?" if apps else f"write `{attribute} = Onward(...)` there."
    )
    if found is None:
        raise InvalidInput(f"--app {name}: module {module.__name__} has no {attribute!r}; {meant}")
    raise InvalidInput(f"--app {name} has the type {type(found).__name__} and is not an Onward app; {meant}")


def token_place(settings: Settings, what: str = "token") -> str:
    """The file with the token of this machine: beside the database, or in the project for one elsewhere.

    Beside it, with `what` as `server`, a server that runs here writes its address.
    """
    if ADDRESS in settings.db or settings.db == ":memory:":
        return settings.project.path(os.path.join(DIRECTORY, what))
    above, name = os.path.split(os.path.abspath(settings.db))
    return os.path.join(above, what if os.path.basename(above) == DIRECTORY else f"{name}-{what}")


def read_line(place: str) -> str | None:
    """The line in a small file, such as that of a token; None without one."""
    try:
        with open(place, encoding="ascii") as file:
            return file.read(500).strip() or None
    except (OSError, ValueError):
        return None


def write_line(place: str, line: str) -> None:
    """Write a line where only its owner can read it; the file is replaced as a whole."""
    if read_line(place) == line:
        return
    os.makedirs(os.path.dirname(place) or ".", mode=0o700, exist_ok=True)
    beside = f"{place}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with open(os.open(beside, flags, 0o600), "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o600)  # it may have been there, and readable for others
        file.write(f"{line}\n")
    os.replace(beside, place)


def own_files(settings: Settings) -> list[str]:
    """The files of a database, and the directory that Onward made for it."""
    if ADDRESS in settings.db or settings.db == ":memory:":
        return []
    path = os.path.abspath(settings.db)
    above = os.path.dirname(path)
    return [path, *([above] if os.path.basename(above) == DIRECTORY else [])]


def is_file(db: str) -> bool:
    """Whether a database is a file, which is read without waiting for anybody."""
    return not db.startswith(POSTGRES)


async def open_to_read(db: str, build: Callable[[Store], T]) -> Reader[T]:
    """Open the database that a process works on once more, to read beside its event loop."""
    return await open_reader(db, build)


@asynccontextmanager
async def access_of(common: Common, *, makes: bool = False) -> AsyncIterator[LocalAccess]:
    """Who may use the servers of the database that is named; a command that adds a token `makes` it."""
    from onward.clock import SystemClock, SystemIds, new_secret
    from onward.operations.local.access import Access, LocalAccess

    async with opened(place_of(common), makes=makes) as store:
        yield LocalAccess(Access(store, SystemClock(), SystemIds(), new_secret))


async def server_link(common: Common) -> str:
    """A link that signs in once at the server of this machine, with its token."""
    settings = load_settings(db=common.db, app=common.app)
    address = read_line(token_place(settings, "server"))
    if address is None:
        raise InvalidInput("no server is running here; `onward serve` starts one, and prints a link.")
    async with access_of(common) as access:
        return (
            f"{address}/sign-in#{await access.access.make_code(await machine_token(settings, access.access))}"
        )


async def machine_token(settings: Settings, access: Access) -> Principal:
    """The token of this machine: that which its operator chose, or one in a file, made if there is none."""
    chosen = chosen_token()
    if chosen is not None:
        return await access.take_chosen(chosen)
    place = token_place(settings)
    made = await access.local_token(read_line(place))
    write_line(place, made.text)
    return made.principal


@asynccontextmanager
async def opened(place: str | Store, *, makes: bool = False) -> AsyncIterator[Store]:
    """The store at a place, closed afterwards. A missing one is refused, unless the command `makes` it."""
    if not makes:
        check_there(place)
    store = await open_store(place) if isinstance(place, str) else place
    try:
        yield store
    finally:
        await store.close()


def check_there(place: str | Store) -> None:
    """Refuse a database that does not exist: a typo must not make one."""
    if isinstance(place, str) and not is_there(place):
        raise NoDatabase(place)


def place_of(common: Common) -> str | Store:
    """The database that the flags mean; an app is loaded only if it alone can tell."""
    settings = load_settings(db=common.db, app=common.app)
    if settings.is_db_given or settings.app is None:
        return settings.db
    return loaded_app(settings, settings.app).store


def tell_place(common: Common, out: Output) -> None:
    """Say which database is used, if it was found above the current directory, and which was not trusted."""
    settings = load_settings(db=common.db, app=common.app)
    for marker in settings.project.strangers if not settings.is_db_given else ():
        out.note(f"{marker} belongs to another user and is ignored; name a database with --db")
    if settings.is_db_above:
        out.note(f"using {_words(settings)}, found above this directory")


def _words(settings: Settings) -> str:
    """What says where the runs are: the database, or the file that names it or the app that has it."""
    if ADDRESS in settings.db:  # which may have a password
        return f"the database of {settings.project.path(CONFIG_FILE)}"
    if settings.is_app_of_project and not settings.is_db_given:
        return f"the app of {settings.project.path(CONFIG_FILE)}"
    return f"the database {settings.db}"


def server_of(common: Common) -> ServerPlace | None:
    """The server that a command asks; None if it works on a database."""
    return load_server(common.server, common.profile, is_db_given=common.db is not None)


@asynccontextmanager
async def remote_of(common: Common, place: ServerPlace) -> AsyncIterator[Operations]:
    """The operations of a server. Without a token of one's own, that of this machine is sent, to itself."""
    from onward.clock import SystemClock, SystemIds
    from onward.operations.remote import Server, connected

    token = place.token or _own_token(common, place.url)
    async with connected(Server(place.url, token), SystemClock(), SystemIds()) as operations:
        yield operations


def _own_token(common: Common, url: str) -> str:
    """The token of this machine, which is for a server on it alone; none if there is none."""
    is_here = urlsplit(url).hostname in LOOPBACK
    return (read_line(token_place(load_settings(db=common.db, app=common.app))) or "") if is_here else ""


@asynccontextmanager
async def lists_of(common: Common) -> AsyncIterator[ListOperations]:
    """The lists of a command that looks over all runs; it needs no app."""
    from onward.operations.local.lists import LocalLists

    if (server := server_of(common)) is not None:
        async with remote_of(common, server) as operations:
            yield operations.lists
        return
    async with opened(place_of(common)) as store:
        yield LocalLists(store)


@asynccontextmanager
async def look_of(common: Common) -> AsyncIterator[LookOperations]:
    """What a command looks at one run with; the app is loaded only for what needs it."""
    from onward.clock import SystemClock
    from onward.operations.local.look import LocalLook

    if (server := server_of(common)) is not None:
        async with remote_of(common, server) as operations:
            yield operations.look
        return
    async with opened(place_of(common)) as store:
        yield LocalLook(
            store,
            SystemClock(),
            lambda: _leftovers(store, common_app(common)),
            lambda: sources_of(common_app(common), store),
        )


def _leftovers(store: Store, app: Onward) -> Leftovers:
    """Looks for what steps left where a resume by the same command line would."""
    from onward.engine.leftovers import Leftovers
    from onward.receipts.run_directory import Homes
    from onward.wiring import own_paths
    from onward.workspace.trees import GitTrees

    runs = app.runs_directory
    own = own_paths(app.store if isinstance(app.store, str) else None, runs)
    folder = None if runs is None else Homes(os.path.abspath(runs), store.identity)
    return Leftovers(store, folder, GitTrees(tool_environment(), own), own)


@asynccontextmanager
async def files_of(common: Common) -> AsyncIterator[RunDirectories]:
    """What a command writes the files of runs with."""
    from onward.clock import SystemClock
    from onward.operations.here.directories import RunDirectories

    app = common_app(common)
    async with opened(app.store) as store:
        yield RunDirectories(store, SystemClock(), sources_of(app, store), app.runs_directory)


@asynccontextmanager
async def logs_of(common: Common, tell: Callable[[str], None]) -> AsyncIterator[RunLogs | RemoteLogs]:
    """What a command reads the output of steps with; `tell` says what a server left out."""
    from onward.clock import SystemClock
    from onward.operations.here.directories import RunLogs

    if (server := server_of(common)) is not None:
        from onward.operations.remote import RemoteLogs

        async with remote_of(common, server) as operations:
            yield RemoteLogs(operations.look, tell)
        return
    async with store_with_homes(common) as (store, homes):
        yield RunLogs(store, SystemClock(), homes)


@asynccontextmanager
async def store_with_homes(common: Common) -> AsyncIterator[tuple[Store, Homes | None]]:
    """The store of a command that also looks at the directories of its runs, which may be none."""
    app = common_app(common)
    async with opened(app.store) as store:
        yield store, _homes(app.runs_directory, store)


@asynccontextmanager
async def notifications_of(common: Common) -> AsyncIterator[LocalNotifications]:
    """The notifications of the database that is named."""
    from onward.operations.local.lists import LocalNotifications

    async with opened(place_of(common)) as store:
        yield LocalNotifications(store)


@asynccontextmanager
async def messages_of(common: Common) -> AsyncIterator[MessageOperations]:
    """What is said in the chats of the database that is named."""
    from onward.clock import SystemClock
    from onward.operations.local.chats import LocalMessages

    if (server := server_of(common)) is not None:
        async with remote_of(common, server) as operations:
            yield operations.messages
        return
    async with opened(place_of(common)) as store:
        yield LocalMessages(store, SystemClock())


def _homes(runs: str | None, store: Store) -> Homes | None:
    from onward.receipts.run_directory import Homes

    return Homes(os.path.abspath(runs), store.identity) if runs is not None and os.path.isdir(runs) else None


@asynccontextmanager
async def submit_of(common: Common, *, makes: bool = True) -> AsyncIterator[LocalSubmit]:
    """What a command creates runs with. Without an app of the user's, none is made: it would take long."""
    from onward.operations.local.submit import LocalSubmit
    from onward.wiring import make_submitting

    settings = load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files)
    app = None if settings.app is None else app_of(settings)
    async with _registry(settings, app, makes=makes) as registry:
        submitting = make_submitting(
            registry.store,
            registry.sources,
            redactor=redactor_of(settings) if app is None else app.redactor,
            kinds=() if app is None else app.handlers,
            runs=lambda: app_of(settings).runs_directory,
        )
        yield LocalSubmit(registry, submitting)


@asynccontextmanager
async def pipelines_of(common: Common, *, makes: bool = False) -> AsyncIterator[LocalPipelines]:
    """The registered pipelines of the database that is named; a command that adds one `makes` it."""
    from onward.clock import SystemClock
    from onward.operations.local.database import LocalPipelines

    settings = load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files)
    app = None if settings.app is None else app_of(settings)
    async with _registry(settings, app, makes=makes) as registry:
        yield LocalPipelines(registry, SystemClock())


@asynccontextmanager
async def _registry(settings: Settings, app: Onward | None, *, makes: bool) -> AsyncIterator[Registry]:
    """Where definitions come from; without an app, those with the built-in node types."""
    from onward.engine.sources import Registry, Sources
    from onward.pipeline.graph import BUILT_IN_TYPES
    from onward.pipeline.rules.check import RULES, secret_rule

    async with opened(settings.db if app is None else app.store, makes=makes) as store:
        if app is not None:
            yield Registry(store, sources_of(app, store))
            return
        rules = [*RULES, secret_rule(redactor_of(settings).knows)]
        yield Registry(store, Sources(store.blobs, (), BUILT_IN_TYPES, rules))


@asynccontextmanager
async def collector_of(
    common: Common, warn: Callable[[str], None], *, keep_files: bool
) -> AsyncIterator[Collector]:
    """What a command deletes runs with."""
    from onward.clock import SystemClock
    from onward.engine.control.retention import Collector
    from onward.wiring import old_trees

    async with store_with_homes(common) as (store, homes):
        yield Collector(store, SystemClock(), None if keep_files else homes, warn, old_trees())


@asynccontextmanager
async def effects_of(common: Common) -> AsyncIterator[LocalEffects]:
    """The effects of the database that is named; inside a step, one must be."""
    from onward.clock import SystemClock, SystemIds
    from onward.engine.effects import AtMostOnce
    from onward.operations.local.effects import LocalEffects

    settings = load_settings(db=common.db, app=common.app)
    if step_key() is not None and not settings.is_db_given and settings.app is None:
        raise InvalidInput(
            "the commands of this step were not given the database of their run; "
            'add "ONWARD_DB" to tool_env in onward.toml, or give --db.'
        )
    async with opened(place_of(common), makes=True) as store:
        yield LocalEffects(
            AtMostOnce(
                store.effects,
                SystemClock(),
                SystemIds(),
                store.leases.lease_s,
                redactor=redactor_of(settings),
            )
        )


@asynccontextmanager
async def limits_of(common: Common, *, makes: bool = False) -> AsyncIterator[LocalLimits]:
    """The limits of the database that is named; a command that sets one `makes` it."""
    from onward.clock import SystemClock
    from onward.operations.local.database import LocalLimits

    async with opened(place_of(common), makes=makes) as store:
        yield LocalLimits(store, SystemClock())


def courier_of(
    app: Onward,
    store: Store,
    settings: Settings,
    *,
    warn: Callable[[str], None],
    stop: StopSwitch,
    count: Callable[[str], None] = lambda result: None,
) -> Courier | None:
    """What delivers notifications while a command executes runs; None without `[notify]`."""
    db = app.store if isinstance(app.store, str) else None
    courier = make_courier(
        store,
        settings,
        warn=warn,
        redactor=app.redactor,
        db=db,
        count=count,
        is_hurried=lambda: stop.is_now,
    )
    if courier is not None:
        stop.listen(courier.hurry)
    return courier


@asynccontextmanager
async def toolbox_of(common: Common, out: Output) -> AsyncIterator[Toolbox]:
    """The tools of agents, as a run here would have them."""
    from onward.wiring import make_mcp, make_toolbox

    settings = load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files)
    app = app_of(settings)
    mcp = make_mcp(settings, app.redactor, warn=out.note)
    try:
        yield make_toolbox(
            settings, redactor=app.redactor, functions=app.tools, mcp=mcp, runs=app.runs_directory
        )
    finally:
        if mcp is not None:
            await mcp.close()


def programs_of(settings: Settings) -> list[ProgramShown]:
    """The programs that may work as agents, and where they are on this machine."""
    from onward.wiring import programs_here

    return programs_here(settings)
