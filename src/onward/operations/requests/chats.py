"""Requests about messages and chats."""

from __future__ import annotations

from onward.model.values.bounds import LISTED, POSITION
from onward.operations.requests.request import Request


class ReadMessages(Request, frozen=True, kw_only=True):
    """What is said in a chat after position `after`: by the run that `of` names, or, of a chat, by all.

    With `follow`, also what is said until the run has stopped; in a chat, for ever.
    """

    of: str
    after: int = 0
    follow: bool = False

    def __post_init__(self) -> None:
        POSITION.check(self.after, "after")


class SendMessage(Request, frozen=True, kw_only=True):
    """Say something in a chat, as its user. It is stored before anything is done about it, under a key once.

    What follows depends on the chat: a stopped run is resumed, one under way is steered or waited for, the
    gate of one that waits is answered, or a run of a registered pipeline starts. `fresh` supersedes what is
    there, `resume` continues what stopped whatever the settings say. `project`, `pipeline` (NAME or
    NAME@VERSION) and `workdir` are those of the run that it may start.
    """

    chat: str
    text: str
    by: str = "user"
    key: str | None = None
    fresh: bool = False
    resume: bool = False
    project: str | None = None
    pipeline: str | None = None
    workdir: str | None = None


class ListChats(Request, frozen=True, kw_only=True):
    """Chats, newest first, without those that runs have for themselves."""

    cursor: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        LISTED.check(self.limit, "limit")


class ShowChat(Request, frozen=True, kw_only=True):
    """A chat: its newest runs, the last positions of what was said in it, and what waits."""

    chat: str
    runs: int = 10
    messages: int = 200

    def __post_init__(self) -> None:
        LISTED.check(self.runs, "runs")
        LISTED.check(self.messages, "messages")


class ListMessages(Request, frozen=True, kw_only=True):
    """The messages of a run, or of a chat, each with all of its text."""

    of: str
