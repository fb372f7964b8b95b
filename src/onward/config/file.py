"""The file of settings, `onward.toml`: read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from onward.errors import InvalidInput
from onward.model.values.bounds import shown
from onward.project import CONFIG_FILE

if TYPE_CHECKING:
    from onward.chats.settings import ChatSettings
    from onward.notify.settings import NotifySettings

FILE_BYTES_MAX = 1024 * 1024
TABLES = {"agents", "chats", "providers", "programs", "prices", "tools", "mcp", "notify", "redact"}
KNOWN = {"db", "app", "answers", "tool_env", "grace", "blocked", "runs", "files", "log"} | TABLES
AGENT_SETTINGS = {"model", "summary_model", "allowed_tools"}
_TEXTS = KNOWN - TABLES - {"grace", "blocked", "tool_env"}


def read_settings_file(path: str) -> Mapping[str, object]:
    """What the file says, with known names only; {} without a file."""
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}.") from None
    if len(content) > FILE_BYTES_MAX:
        raise InvalidInput(f"{path} is larger than {FILE_BYTES_MAX:,} bytes; it holds only settings.")
    import tomllib  # here, because every command reads settings and most directories have no such file

    try:
        found = tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} is not UTF-8; save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path} is not valid TOML: {error}.") from None
    unknown = sorted(found.keys() - KNOWN)
    if unknown:
        raise InvalidInput(
            f"{path} sets {', '.join(unknown)}; known settings are {', '.join(sorted(KNOWN))}."
        )
    for name in sorted(found.keys() & _TEXTS):
        if not isinstance(found[name], str):
            raise InvalidInput(f"{name} in {path} is {found[name]!r}; write text in quotes.")
    return found


def notify_settings(table: object) -> NotifySettings:
    """What `[notify]` says."""
    from onward.notify.settings import read_notify  # here, as most projects want no notifications

    return read_notify(table, CONFIG_FILE)


def chat_settings(table: object) -> ChatSettings:
    """What `[chats]` says."""
    from onward.chats.settings import read_chats  # here, as most projects say nothing about chats

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
