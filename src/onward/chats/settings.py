"""`[chats]` in onward.toml: what messages do, and which pipelines they start."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onward.errors import InvalidInput
from onward.model.chat import INTENTS
from onward.model.ids import read_wanted
from onward.model.values import shown

ON_MESSAGE = ("auto", "ask", "never")
ON_OWNER_LOSS = ("interrupt", "requeue")
KNOWN = ("on_message", "on_owner_loss", "classifier", "pipelines")


class ChatSettings(msgspec.Struct, frozen=True):
    """What messages do where a pipeline does not say it itself.

    `on_message`: what a message does to a stopped run of its chat. `on_owner_loss`: what happens to runs of
    chats whose process died. `classifier`: the model that reads messages; None: rules do. `pipelines`: the
    registered pipeline for an intent.
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
        if intent not in INTENTS:
            known = ", ".join(INTENTS)
            raise InvalidInput(f"[chats.pipelines] in {file} names {shown(intent)}; intents are {known}.")
        if not isinstance(name, str):
            raise InvalidInput(f"{intent} of [chats.pipelines] in {file} is {shown(name)}; write its name.")
        read_wanted(name)
    return dict(table)
