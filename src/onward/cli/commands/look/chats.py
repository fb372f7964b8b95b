"""`onward chats`: which chats there are, and one of them with its runs and messages."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from onward.cli.commands.start.foreground import foreground
from onward.cli.exits import FINE
from onward.cli.numbers import number
from onward.cli.options import COMMON, Common, Out
from onward.cli.print.chat import page_lines
from onward.cli.print.text import one_line, table
from onward.errors import InvalidInput
from onward.model.ids import called
from onward.model.values import LIMIT
from onward.operations.replies.chats import ChatListed
from onward.operations.requests import ListChats, ShowChat

HEADINGS = ("CHAT", "PROJECT", "RUN", "STATUS", "WAITING", "SINCE")
NOTHING = 'no chats yet; begin one with `onward chat NAME "…"`.'


async def chats(
    action: Annotated[Literal["list", "show"], Parameter(help="What to do.")] = "list",
    name: Annotated[str | None, Parameter(name="CHAT", help="With show: the chat.")] = None,
    /,
    *,
    limit: Annotated[int, number(LIMIT, help="How many chats to list, or runs of one to show.")] = 20,
    common: Common = COMMON,
    out: Out,
) -> int:
    """List chats, newest first, or show one: its runs with plans and stops, what was said, what waits."""
    if (name is None) is not (action == "list"):
        raise InvalidInput("say which chat to show, as in `onward chats show site-7`; list takes no name.")
    async with foreground(common, out) as desk:
        if name is not None:
            page = await desk.operations.chats.show_chat(ShowChat(chat=name, runs=limit))
            if out.is_json:
                out.value(page)
            else:
                for line in page_lines(page, common):
                    out.say(line)
            return FINE
        found = await desk.operations.chats.list_chats(ListChats(limit=limit))
    if out.is_json:
        out.value(found)
    elif not found["chats"]:
        out.note(NOTHING)
    else:
        for line in table(HEADINGS, [_row(one) for one in found["chats"]]):
            out.say(line)
    return FINE


def _row(one: ChatListed) -> tuple[str, ...]:
    status = f"{one['status']} ({one['reason']})" if one["reason"] else one["status"] or "-"
    return (
        one_line(one["chat"]),
        one_line(one["project"] or "-"),
        called(one["run"]) if one["run"] else "-",
        status,
        str(one["waiting"]) if one["waiting"] else "-",
        one["created_at"],
    )
