"""Settings and secrets: what flags, the environment and `onward.toml` say; the first of them counts.

Besides `testing/`, only this module reads the environment variables of the process.

A command belongs to a project: the nearest directory, upwards, with `.onward` or `onward.toml`. Its
settings name code to run, and its runs have commands. So a directory above the current one counts only if
it belongs to the user or to root, as in git: others may write into a directory for temporary files.

Begin with `load_settings`, which puts together what the environment and the file say. `redactor_of`
collects the secrets of this process, which must not be stored or shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from onward.errors import InvalidInput
from onward.model.values import (
    ALWAYS_PASSED,
    GRACE,
    KNOWN_PROVIDERS,
    WAIT,
    Seconds,
    Variables,
    is_named,
    shown,
)
from onward.redact.redactor import (
    DATABASE,
    DEFAULT_REDACT,
    Redactor,
    RedactSettings,
    is_secret,
    make_redactor,
    password_of,
    read_redact,
)

if TYPE_CHECKING:
    from onward.model.settings import ChatSettings, NotifySettings


VARIABLES: Mapping[str, str] = os.environ
"""The environment itself and no copy of it."""


def is_debugging() -> bool:
    """Whether errors should come with a traceback."""
    return bool(VARIABLES.get("ONWARD_DEBUG"))


def own_environment() -> dict[str, str]:
    """All variables of this process, for a process that acts on its behalf."""
    return dict(VARIABLES)


def step_key() -> str | None:
    """The idempotency key of the step whose command this process is; None outside a step."""
    return VARIABLES.get("ONWARD_IDEMPOTENCY_KEY") or None


def chosen_token() -> str | None:
    """The token that the operator chose for a server."""
    return VARIABLES.get("ONWARD_TOKEN") or None


def tool_environment(extra: tuple[str, ...] = ()) -> dict[str, str]:
    """The variables that shell commands get: some always, and those that `extra` names."""
    return {name: value for name, value in VARIABLES.items() if is_named(name, (*ALWAYS_PASSED, *extra))}


def tool_variables(extra: tuple[str, ...] = ()) -> Variables:
    """The names of the variables that this process has, and of those that shell commands get."""
    return Variables(passed=frozenset(tool_environment(extra)), present=frozenset(VARIABLES))


DIRECTORY = ".onward"
CONFIG_FILE = "onward.toml"


class Project(msgspec.Struct, frozen=True):
    """A directory, absolute if it is not the current one, and what above was not trusted on the way."""

    directory: str = ""
    strangers: tuple[str, ...] = ()

    def path(self, name: str) -> str:
        """A path as the project means it."""
        return os.path.join(self.directory, name)


HERE = Project()


def find_project(home: str) -> Project:
    """The nearest project, up to the home directory or the root; the current directory if there is none."""
    strangers: list[str] = []
    try:
        here = os.getcwd()
    except FileNotFoundError:
        return HERE
    for directory in _upwards(here, os.path.realpath(home)):
        for name in (DIRECTORY, CONFIG_FILE):
            marker = os.path.join(directory, name)
            if not os.path.exists(marker):
                continue
            if directory == here:
                return HERE
            if _is_trusted(directory) and _is_trusted(marker):
                return Project(directory, tuple(strangers))
            strangers.append(marker)
    return Project(strangers=tuple(strangers))


def _upwards(here: str, home: str) -> Iterator[str]:
    directory = here
    while True:
        yield directory
        above = os.path.dirname(directory)
        if above == directory or os.path.realpath(directory) == home:
            return
        directory = above


def _is_trusted(path: str) -> bool:
    try:
        return os.stat(path).st_uid in (os.getuid(), 0)
    except OSError:
        return False


DEFAULT_DB = f"{DIRECTORY}/onward.db"
ADDRESS = "://"
_PATTERN = re.compile(r"[^\s=,$\[\]]+")
LOG_FORMATS = ("text", "json")
FILE_MODES = ("full", "lazy", "off")


class Settings(msgspec.Struct, frozen=True):
    """Every setting."""

    db: str = DEFAULT_DB
    is_db_given: bool = False
    is_db_above: bool = False
    """Whether it was found in a directory above the current one."""
    app: str | None = None
    project: Project = HERE
    is_app_of_project: bool = False
    app_directory: str | None = None
    """Where the app is imported from, if that is not the current directory or the project's."""
    answers: str | None = None
    grace_s: float = 30.0
    blocked_s: float | None = None
    tool_env: tuple[str, ...] = ()
    runs: str | None = None
    files: str | None = None
    log: str = "text"
    traces: str | None = None
    """The OpenTelemetry collector that gets the spans of runs."""
    notify: NotifySettings | None = None
    model: str | None = None
    """The model of agents that name none."""
    summary_model: str | None = None
    """The model that summarises runs for agents; None: rules do."""
    allowed_tools: tuple[str, ...] = ()
    """The tools of agents that say nothing about tools."""
    tools: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """`[tools]` as it is written; `agents/tools/toolbox.py` reads it when agents get tools."""
    providers: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """`[providers]` as it is written; `agents/providers.py` reads it when a model is needed."""
    programs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """`[programs]` as it is written; `agents/programs/program.py` reads it when an agent may need one."""
    base_urls: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Other addresses of known providers, by their names."""
    has_provider_key: bool = False
    """Whether a variable holds the key of a known provider."""
    prices: Mapping[str, Any] = msgspec.field(default_factory=dict)
    mcp: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """`[mcp]` as it is written; `agents/tools/mcp/settings.py` reads it when agents are served."""
    redact: RedactSettings = DEFAULT_REDACT
    chats: ChatSettings | None = None
    serve: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """`[serve]` as it is written; `server/settings.py` reads it when a server starts."""

    @property
    def has_provider(self) -> bool:
        """Whether a provider of models is set up, so that agents are real."""
        return bool(self.providers or self.base_urls or self.has_provider_key)


def load_settings(
    *,
    db: str | None = None,
    app: str | None = None,
    answers: str | None = None,
    runs: str | None = None,
    files: str | None = None,
    log: str | None = None,
) -> Settings:
    """The settings in effect; the arguments are those of the command line."""
    project = find_project(os.path.expanduser("~"))
    file = read_settings_file(project.path(CONFIG_FILE))
    if db is not None and not db.strip():
        raise InvalidInput("--db is empty; name a database, or leave the flag out.")
    named = db or VARIABLES.get("ONWARD_DB")
    of_project = _path(project, file.get("db"))
    asked = app or VARIABLES.get("ONWARD_APP")
    grace = VARIABLES.get("ONWARD_GRACE") or file.get("grace", 30)
    blocked = VARIABLES.get("ONWARD_BLOCKED") or file.get("blocked")
    agents = agents_table(file.get("agents", {}))
    return Settings(
        db=named or of_project or project.path(DEFAULT_DB),
        is_db_given=bool(named or of_project),
        is_db_above=bool(project.directory and not named and (of_project or not asked)),
        app=asked or _text(file.get("app")),
        project=project,
        is_app_of_project=asked is None and "app" in file,
        answers=answers or VARIABLES.get("ONWARD_ANSWERS") or _text(file.get("answers")),
        grace_s=_seconds("grace", grace, GRACE),
        blocked_s=None if blocked is None else _seconds("blocked", blocked, WAIT),
        tool_env=_patterns(VARIABLES.get("ONWARD_TOOL_ENV"), file.get("tool_env", [])),
        runs=runs or VARIABLES.get("ONWARD_RUNS") or _path(project, file.get("runs")),
        files=file_mode(files or VARIABLES.get("ONWARD_FILES") or _text(file.get("files"))),
        log=_log_format(log or VARIABLES.get("ONWARD_LOG") or _text(file.get("log")) or "text"),
        traces=_collector(VARIABLES.get("ONWARD_TRACES") or _text(file.get("traces"))),
        notify=notify_settings(file["notify"]) if "notify" in file else None,
        model=VARIABLES.get("ONWARD_MODEL") or agent_model(agents),
        summary_model=agent_model(agents, "summary_model"),
        allowed_tools=allowed_tools_of(agents),
        tools=table_of(file.get("tools", {}), "tools"),
        providers=table_of(file.get("providers", {}), "providers"),
        programs=table_of(file.get("programs", {}), "programs"),
        base_urls=_base_urls(),
        has_provider_key=any(VARIABLES.get(known.key_variable) for known in KNOWN_PROVIDERS.values()),
        prices=table_of(file.get("prices", {}), "prices"),
        mcp=table_of(file.get("mcp", {}), "mcp"),
        redact=read_redact(file.get("redact", {}), file=CONFIG_FILE, path=project.path),
        chats=chat_settings(file["chats"]) if "chats" in file else None,
        serve=table_of(file.get("serve", {}), "serve"),
    )


def _base_urls() -> dict[str, str]:
    return {
        name: VARIABLES[known.url_variable]
        for name, known in KNOWN_PROVIDERS.items()
        if VARIABLES.get(known.url_variable)
    }


def file_mode(files: str | None) -> str | None:
    """The mode itself; InvalidInput if it is unknown."""
    if files is not None and files not in FILE_MODES:
        raise InvalidInput(f"files is {files!r}; write one of {', '.join(FILE_MODES)}.")
    return files


def _collector(traces: str | None) -> str | None:
    if traces is not None and not traces.startswith(("http://", "https://")):
        raise InvalidInput(f"traces is {shown(traces)}; write a collector, such as http://127.0.0.1:4318.")
    return traces


def _log_format(log: str) -> str:
    if log not in LOG_FORMATS:
        raise InvalidInput(f"log is {log!r}; write one of {', '.join(LOG_FORMATS)}.")
    return log


LOOPBACK = ("localhost", "127.0.0.1", "::1")


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for an address, as HTTP_PROXY, HTTPS_PROXY and NO_PROXY do.

    An address of this machine itself never has one.
    """
    parts = urlsplit(url)
    host = (parts.hostname or "").rstrip(".")
    if host in LOOPBACK or host.startswith("127.") or host.endswith(".localhost"):
        return None
    for word in _variable("NO_PROXY").split(","):
        name, _, port = word.strip().lower().partition(":")
        name = name.removeprefix("*").removeprefix(".")
        is_named = host == name or host.endswith(f".{name}")
        if word.strip() == "*" or (name and is_named and port in ("", str(parts.port or ""))):
            return None
    return _variable(f"{parts.scheme}_PROXY".upper()) or None


def _variable(name: str) -> str:
    """A variable that some programs write in small letters, and others in capitals."""
    return VARIABLES.get(name.lower()) or VARIABLES.get(name) or ""


def state_directory() -> str:
    """Where this user's programs keep what belongs to the user and this machine, and to no project."""
    above = VARIABLES.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(above, "onward")


class ServerPlace(msgspec.Struct, frozen=True):
    """Where a command asks a server; without a token, that of this machine is meant.

    `named_by` is what named it: a flag, or the variable.
    """

    url: str
    token: str | None
    named_by: str


PROFILES = "~/.config/onward/profiles.toml"


def load_server(server: str | None, profile: str | None, *, is_db_given: bool) -> ServerPlace | None:
    """The server that flags or the environment name; None to work on a database of this machine."""
    if server is not None and profile is not None:
        raise InvalidInput("--server and --profile both name a server; give one of them.")
    flag = "--profile" if profile is not None else "--server"
    if is_db_given and (server or profile):
        raise InvalidInput(f"--db names a database and {flag} a server; give one of them.")
    if profile is not None:
        return _profile(profile)
    if server is not None and not server.strip():
        raise InvalidInput("--server is empty; write one such as http://127.0.0.1:8765.")
    url = server or (None if is_db_given else VARIABLES.get("ONWARD_SERVER"))
    return ServerPlace(url, chosen_token(), flag if server else "ONWARD_SERVER") if url else None


def _profile(name: str) -> ServerPlace:
    path = os.path.expanduser(PROFILES)
    profiles = read_toml(path)
    found = profiles.get(name)
    if not isinstance(found, dict):
        known = ", ".join(sorted(profiles)) or "none"
        raise InvalidInput(f"--profile {shown(name)} is not in {PROFILES}; it has: {known}.")
    url, token = found.get("server"), found.get("token")
    if not isinstance(url, str) or not isinstance(token, str | None):
        raise InvalidInput(
            f"[{name}] of {PROFILES} needs `server`, and optionally `token`, both as text in quotes."
        )
    return ServerPlace(url, token, "--profile")


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _path(project: Project, value: object) -> str | None:
    """A path of the settings' file, which is meant from the file's directory; an address stays as it is."""
    return place_in(project, str(value)) if value else None


def place_in(project: Project, place: str) -> str:
    """A path or an address, as the project means it."""
    return place if ADDRESS in place or place == ":memory:" else project.path(place)


def _seconds(name: str, value: object, bounds: Seconds) -> float:
    try:
        return bounds.read(str(value).removesuffix("s"))
    except ValueError as error:
        raise InvalidInput(f"{name} is {shown(value)}; write {error}.") from None


def _patterns(given: str | None, value: object) -> tuple[str, ...]:
    """Names and patterns of variables: those of the environment, separated by commas, or of the file."""
    where, found = f"tool_env in {CONFIG_FILE}", value
    if given is not None:
        where, found = "ONWARD_TOOL_ENV", [name for name in given.replace(",", " ").split() if name]
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise InvalidInput(f'{where} is {found!r}; write a list of names, as in ["AWS_*", "DEPLOY_KEY"].')
    for name in found:
        if not _PATTERN.fullmatch(name):
            raise InvalidInput(f"{where} has {name!r}, which is not a variable name; write a name, or AWS_*.")
    return tuple(found)


FILE_BYTES_MAX = 1024 * 1024
TABLES = {"serve", "agents", "chats", "providers", "programs", "prices", "tools", "mcp", "notify", "redact"}
KNOWN = {"db", "app", "answers", "tool_env", "grace", "blocked", "runs", "files", "log", "traces"} | TABLES
AGENT_SETTINGS = {"model", "summary_model", "allowed_tools"}
_TEXTS = KNOWN - TABLES - {"grace", "blocked", "tool_env"}


def read_settings_file(path: str) -> Mapping[str, object]:
    """What the file says, with known names only; {} without a file."""
    found = read_toml(path)
    unknown = sorted(found.keys() - KNOWN)
    if unknown:
        raise InvalidInput(
            f"{path} sets {', '.join(unknown)}; known settings are {', '.join(sorted(KNOWN))}."
        )
    for name in sorted(found.keys() & _TEXTS):
        if not isinstance(found[name], str):
            raise InvalidInput(f"{name} in {path} is {found[name]!r}; write text in quotes.")
    return found


def read_toml(path: str) -> Mapping[str, object]:
    """What a file of settings says; {} without a file."""
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}.") from None
    if len(content) > FILE_BYTES_MAX:
        raise InvalidInput(
            f"{path} is larger than {FILE_BYTES_MAX:,} bytes, and should contain only settings."
        )
    import tomllib  # here, because every command reads settings and most directories have no such file

    try:
        found: dict[str, object] = tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not UTF-8; save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path} is not valid TOML: {error}.") from None
    return found


def notify_settings(table: object) -> NotifySettings:
    """What `[notify]` says."""
    from onward.model.settings import read_notify  # here, as most projects want no notifications

    return read_notify(table, CONFIG_FILE)


def chat_settings(table: object) -> ChatSettings:
    """What `[chats]` says."""
    from onward.model.settings import read_chats  # here, as most projects say nothing about chats

    return read_chats(table, file=CONFIG_FILE)


def table_of(value: object, name: str) -> Mapping[str, Any]:
    """A table as it is written; whoever needs it reads it further."""
    if not isinstance(value, dict):
        raise InvalidInput(f"{name} in {CONFIG_FILE} is {shown(value)}; write a table [{name}.NAME].")
    return value


def agents_table(value: object) -> Mapping[str, Any]:
    """`[agents]`, with known names only."""
    if not isinstance(value, dict):
        raise InvalidInput(f"agents in {CONFIG_FILE} is {shown(value)}; write a table [agents].")
    table: Mapping[str, Any] = value
    if unknown := sorted(table.keys() - AGENT_SETTINGS):
        known = ", ".join(sorted(AGENT_SETTINGS))
        raise InvalidInput(
            f"[agents] in {CONFIG_FILE} sets {', '.join(unknown)}; known settings are {known}."
        )
    return table


def agent_model(table: Mapping[str, Any], name: str = "model") -> str | None:
    """A model that `[agents]` names."""
    model = table.get(name)
    if model is not None and not isinstance(model, str):
        raise InvalidInput(f"{name} of [agents] in {CONFIG_FILE} is {shown(model)}; write text in quotes.")
    return model


def allowed_tools_of(table: Mapping[str, Any]) -> tuple[str, ...]:
    """The tools that `[agents]` allows."""
    found = table.get("allowed_tools", [])
    if not isinstance(found, list) or not all(isinstance(one, str) and one.strip() for one in found):
        raise InvalidInput(
            f"allowed_tools of [agents] in {CONFIG_FILE} is {shown(found)}; write a list of names, as in "
            '["read", "github__*"].'
        )
    return tuple(one.strip() for one in found)


_SECRET_FILE_BYTES_MAX = 1 << 20


def redactor_of(settings: Settings) -> Redactor:
    """Knows the secrets of this process: those of its environment, its files and its database."""
    how = settings.redact
    if how.off:
        return make_redactor(how, {})
    secrets = _own_secrets(settings.db)
    secrets |= {name: VARIABLES[name] for name in how.env if name in VARIABLES}
    secrets |= {os.path.basename(path): _secret_in(path) for path in how.files}
    return make_redactor(how, secrets)


def own_redactor(db: str | None = None) -> Redactor:
    """The same without a file of settings."""
    return make_redactor(DEFAULT_REDACT, _own_secrets(db or ""))


def _own_secrets(db: str) -> dict[str, str]:
    # A variable often has the path of a file with a secret, and the path is none.
    found = {
        name: value
        for name, value in VARIABLES.items()
        if is_secret(name, value) and not os.path.exists(value)
    }
    for address in (db, VARIABLES.get("ONWARD_DB", "")):
        if password := password_of(address):
            found[DATABASE] = password
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        if password := password_of(_variable(name)):
            found[name] = password
    return found


def _secret_in(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_SECRET_FILE_BYTES_MAX).decode("utf-8", "surrogateescape").strip()
    except OSError as error:
        raise InvalidInput(f"cannot read {path}, which [redact] names: {error.strerror}.") from None


def read_secret(reference: str, project: Project, redactor: Redactor) -> str:
    """The secret that `env:NAME` or `file:PATH` refers to, a path being meant from the project's directory.

    It is known to the redactor from now on.
    """
    kind, _, name = reference.partition(":")
    if kind == "env":
        if not VARIABLES.get(name):
            raise InvalidInput(f"the secret of [notify] is the variable {name}, which is not set; set it.")
        redactor.add(name, VARIABLES[name].strip())
        return VARIABLES[name]
    path = project.path(os.path.expanduser(name))
    try:
        with open(path, encoding="utf-8") as file:
            secret = file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(f"cannot read {path}, the secret of [notify]: {why}.") from None
    redactor.add(os.path.basename(path), secret.strip())
    return secret
