"""What `onward.toml` may say about chats and notifications, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from onward.errors import InvalidInput
from onward.model.chat import KIND_NAME
from onward.model.ids import read_wanted
from onward.model.row import NotificationKind
from onward.model.values import GRACE, shown

ON_MESSAGE = ("auto", "ask", "never")
ON_OWNER_LOSS = ("interrupt", "requeue")
KNOWN = ("on_message", "on_owner_loss", "classifier", "pipelines")


class ChatSettings(msgspec.Struct, frozen=True):
    """What messages do where a pipeline does not say it itself.

    `on_message`: what a message does to a stopped run of its chat. `on_owner_loss`: what happens to runs of
    chats whose process died. `classifier`: the model that reads messages; None: rules do. `pipelines`: the
    registered pipeline for an intent, which wins over what pipelines say about themselves.
    """

    on_message: str = "auto"
    on_owner_loss: str = "interrupt"
    classifier: str | None = None
    pipelines: Mapping[str, str] = msgspec.field(default_factory=dict)


DEFAULT_CHATS = ChatSettings()


def read_chats(table: object, *, file: str) -> ChatSettings:
    """The settings, or a sentence that says what is wrong with them."""
    if not isinstance(table, dict):
        raise InvalidInput(f"chats in {file} is {shown(table)}; write a table [chats].")
    if unknown := sorted(table.keys() - set(KNOWN)):
        known = ", ".join(KNOWN)
        raise InvalidInput(f"[chats] in {file} sets {', '.join(unknown)}; known settings are {known}.")
    classifier = table.get("classifier")
    if classifier is not None and not (isinstance(classifier, str) and classifier.strip()):
        raise InvalidInput(
            f"classifier of [chats] in {file} is {shown(classifier)}; write a model, as in "
            '"openai:gpt-5-mini".'
        )
    return ChatSettings(
        on_message=_one_of(table, "on_message", ON_MESSAGE, file),
        on_owner_loss=_one_of(table, "on_owner_loss", ON_OWNER_LOSS, file),
        classifier=classifier,
        pipelines=_pipelines(table.get("pipelines", {}), file),
    )


def _one_of(table: Mapping[str, object], name: str, known: tuple[str, ...], file: str) -> str:
    found = table.get(name, known[0])
    if not isinstance(found, str) or found not in known:
        raise InvalidInput(f"{name} of [chats] in {file} is {shown(found)}; write one of {', '.join(known)}.")
    return found


def _pipelines(table: object, file: str) -> Mapping[str, str]:
    if not isinstance(table, dict):
        raise InvalidInput(f"pipelines of [chats] in {file} is {shown(table)}; write [chats.pipelines].")
    for intent, name in table.items():
        if not KIND_NAME.fullmatch(intent):
            raise InvalidInput(
                f"[chats.pipelines] in {file} names {shown(intent)}, which cannot be an intent; use up to 50 "
                "letters, digits, _ and -, and begin with a letter."
            )
        if not isinstance(name, str):
            raise InvalidInput(f"{intent} of [chats.pipelines] in {file} is {shown(name)}; write its name.")
        read_wanted(name)
    return dict(table)


KEYS = ("command", "url", "on", "timeout", "env", "secret")
TIMEOUT_S, TIMEOUT_S_MAX = 10.0, 300.0
_PRINTABLE = re.compile(r"[!-~]+")
_VARIABLE = re.compile(r"[^\s=,$\[\]]+")


class NotifySettings(msgspec.Struct, frozen=True):
    """Who is told, of what: a command, as words or as a line for the shell, or an address.

    `secret` says where the secret that signs requests is: `env:NAME` or `file:PATH`. `env` names the
    variables that the command gets besides the usual ones.
    """

    command: str | tuple[str, ...] | None = None
    url: str | None = None
    on: tuple[NotificationKind, ...] = tuple(NotificationKind)
    timeout_s: float = TIMEOUT_S
    env: tuple[str, ...] = ()
    secret: str | None = None


def read_notify(table: object, where: str) -> NotifySettings:
    """The settings of a table; InvalidInput says in one sentence what is wrong with it."""
    if not isinstance(table, dict):
        raise InvalidInput(f"notify in {where} is {shown(table)}; write a table, as in [notify].")
    unknown = sorted(table.keys() - set(KEYS))
    if unknown:
        raise InvalidInput(f"[notify] in {where} sets {', '.join(unknown)}; its keys are {', '.join(KEYS)}.")
    command, url = _command(table.get("command"), where), _url(table.get("url"), where)
    if (command is None) == (url is None):
        raise InvalidInput(f"[notify] in {where} needs a command or a url, one of the two.")
    for name, is_wrong, other in (("secret", url is None, "url"), ("env", command is None, "command")):
        if name in table and is_wrong:
            raise InvalidInput(f"[notify] in {where} sets {name}, which needs a {other}; remove it.")
    return NotifySettings(
        command=command,
        url=url,
        on=_kinds(table, where),
        timeout_s=_timeout(table, where),
        env=_names(table, where),
        secret=_secret(table.get("secret"), where),
    )


def _command(value: object, where: str) -> str | tuple[str, ...] | None:
    if value is None:
        return None
    given = value if isinstance(value, list) else [value]
    words = [word for word in given if isinstance(word, str) and "\0" not in word]
    if len(words) < len(given) or not words or not words[0].strip():
        raise InvalidInput(
            f"command of [notify] in {where} is {shown(value)}; "
            'write a line for the shell, or a list of words, as in ["notify-send", "Onward"].'
        )
    return tuple(words) if isinstance(value, list) else words[0]


def _url(value: object, where: str) -> str | None:
    if value is None:
        return None
    why = "write an address, as in https://example.com/hook"
    if isinstance(value, str) and _PRINTABLE.fullmatch(value):
        why = _wrong_address(value)
        if not why:
            return value
    raise InvalidInput(f"url of [notify] in {where} cannot be used: {why}.")


def _wrong_address(value: str) -> str:
    """Why nothing can be sent to an address; empty if something can. It may hold a secret, so it is not
    shown."""
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        return "its host or port is not valid"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "write an address that begins with https:// or http:// and a host"
    if parts.username is not None or parts.password is not None:
        return "it has a user or a password in it; let `secret` sign the requests instead"
    return "port 0 cannot be used" if port == 0 else ""


def _kinds(table: Mapping[str, object], where: str) -> tuple[NotificationKind, ...]:
    known = [kind.value for kind in NotificationKind]
    value = table.get("on", known)
    if not isinstance(value, list) or not value or any(kind not in known for kind in value):
        raise InvalidInput(
            f"on of [notify] in {where} is {shown(value)}; write one or more of {', '.join(known)}."
        )
    return tuple(kind for kind in NotificationKind if kind.value in value)


def _timeout(table: Mapping[str, object], where: str) -> float:
    value = table.get("timeout", TIMEOUT_S)
    try:
        seconds = GRACE.check(value, "timeout")
    except InvalidInput:
        seconds = TIMEOUT_S_MAX + 1
    if seconds > TIMEOUT_S_MAX:
        raise InvalidInput(
            f"timeout of [notify] in {where} is {shown(value)}; "
            f"write a number of seconds from {GRACE.least:g} to {TIMEOUT_S_MAX:g}."
        )
    return float(seconds)


def _names(table: Mapping[str, object], where: str) -> tuple[str, ...]:
    value = table.get("env", [])
    is_list = isinstance(value, list) and all(isinstance(name, str) for name in value)
    if not is_list or not all(_VARIABLE.fullmatch(name) for name in value):  # type: ignore[attr-defined]
        raise InvalidInput(
            f'env of [notify] in {where} is {shown(value)}; write a list of names, as in ["SLACK_TOKEN"].'
        )
    return tuple(value)  # type: ignore[arg-type]


def _secret(value: object, where: str) -> str | None:
    kind, _, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    if value is None or (kind in ("env", "file") and name.strip()):
        return None if value is None else str(value)
    # Not shown: it may be the secret itself.
    raise InvalidInput(f"secret of [notify] in {where} is not a reference; write env:NAME or file:PATH.")
