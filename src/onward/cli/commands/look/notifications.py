"""`onward notifications`: what was told of runs, what is still to be told, and how that went."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.numbers import number
from onward.cli.opening.looking import notifications_of
from onward.cli.options import COMMON, Common, Out, RunName
from onward.cli.print.output import Output
from onward.cli.print.render import when
from onward.cli.print.text import count, one_line, table
from onward.clock import SystemClock
from onward.errors import InvalidInput
from onward.model.ids import called
from onward.model.values import LIMIT
from onward.operations.replies.database import NotificationShown
from onward.operations.requests import ListNotifications, RetryNotification


async def notifications(
    run: RunName | None = None,
    /,
    *,
    failed: Annotated[bool, Parameter(help="Only those whose delivery was given up.")] = False,
    waiting: Annotated[bool, Parameter(help="Only those that are still to be delivered.")] = False,
    limit: Annotated[int, number(LIMIT, help="How many to list, newest first.")] = 50,
    retry: Annotated[
        str | None, Parameter(help="Deliver this one again, whatever became of it.", metavar="ID")
    ] = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """List notifications: of one run or of all, newest first, with how often they were tried and why not
    delivered.

    Workers and runs in the foreground deliver them, as [notify] in onward.toml says (docs/notifications.md).
    """
    if failed and waiting:
        raise InvalidInput("--failed and --waiting contradict each other; say one.")
    if retry is not None:
        return await _retry(retry, common, out)
    state: Literal["failed", "waiting"] | None = "failed" if failed else "waiting" if waiting else None
    async with notifications_of(common) as told:
        page = await told.list_notifications(ListNotifications(run=run, state=state, limit=limit))
    found = page["notifications"]
    if out.is_json:
        out.value(page)
    elif not found:
        out.say("no notifications")
    else:
        for line in table(("ID", "RUN", "EVENT", "STATE", "TRIES", "AT", "WHY"), [*map(_row, found)]):
            out.say(line)
        if page["cursor"] is not None:
            out.say(f"these are the newest {len(found):,}; --limit shows more")
    return FINE


async def _retry(id: str, common: Common, out: Output) -> int:
    async with notifications_of(common) as told:
        page = await told.retry_notification(RetryNotification(id=id))
    found = page["notifications"]
    who = "" if len(found) == 1 else f" for {count(len(found), 'subscriber')}"
    out.say(f"notification {id} is due{who}; the next worker or run with [notify] delivers it")
    if out.is_json:
        out.value(page)
    return FINE


def _row(one: NotificationShown) -> tuple[str, ...]:
    why = one_line(one["error"]) if one["state"] != "delivered" else ""
    at = when(one["created_at"], SystemClock().now_us())
    return one["id"], called(one["run"]), one["event"], one["state"], str(one["tries"]), at, why
