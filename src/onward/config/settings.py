"""Settings: flag > environment > file > default."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from onward.config.environment import VARIABLES
from onward.config.file import (
    agent_model,
    agents_table,
    allowed_tools_of,
    chat_settings,
    notify_settings,
    read_settings_file,
    table_of,
)
from onward.errors import InvalidInput
from onward.model.values.bounds import GRACE, WAIT, Seconds, shown
from onward.model.values.providers import KNOWN_PROVIDERS
from onward.project import CONFIG_FILE, DIRECTORY, HERE, Project, find_project
from onward.redact.settings import DEFAULT_REDACT, RedactSettings, read_redact

if TYPE_CHECKING:
    from onward.chats.settings import ChatSettings
    from onward.notify.settings import NotifySettings

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
    answers: str | None = None
    grace_s: float = 30.0
    blocked_s: float | None = None
    tool_env: tuple[str, ...] = ()
    runs: str | None = None
    files: str | None = None
    log: str = "text"
    notify: NotifySettings | None = None
    model: str | None = None
    """The model of agents that name none."""
    summary_model: str | None = None
    """The model that summarises runs for agents; None: rules do."""
    allowed_tools: tuple[str, ...] = ()
    """The tools of agents that say nothing about tools."""
    tools: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """`[tools]` as it is written; `agents/tools/settings.py` reads it when agents get tools."""
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


def _log_format(log: str) -> str:
    if log not in LOG_FORMATS:
        raise InvalidInput(f"log is {log!r}; write one of {', '.join(LOG_FORMATS)}.")
    return log


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
            raise InvalidInput(f"{where} has {name!r}, which names no variable; write a name, or AWS_*.")
    return tuple(found)
