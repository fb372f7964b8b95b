"""`onward tokens` and `onward audit`: who may use a server, and what they asked it to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from onward.cli.operations import access_of, server_link
from onward.cli.options import COMMON, Common, Out, duration, number
from onward.cli.output import FINE, Output, table
from onward.cli.print.run import when
from onward.errors import InvalidInput
from onward.model.values import LIMIT, Seconds
from onward.operations.requests import AddToken, ListAudit, ListTokens, RevokeToken

if TYPE_CHECKING:
    from onward.operations.local.access import LocalAccess
    from onward.replies.access import AuditShown, TokenListed

TOKEN_HEADINGS = ("ID", "NAME", "ROLES", "EXPIRES", "LAST USED", "")
AUDIT_HEADINGS = ("AT", "BY", "OPERATION", "SUBJECT", "STATUS", "FROM")


async def tokens(
    action: Annotated[Literal["list", "add", "revoke", "link"], Parameter(help="The action.")] = "list",
    name: Annotated[
        str | None, Parameter(help="With add: a name (a-z, 0-9 and -). With revoke: a name or an id.")
    ] = None,
    /,
    *,
    role: Annotated[
        tuple[str, ...],
        Parameter(
            name="--role",
            negative="",
            help="With add: viewer, operator, approver or admin. Repeatable, or separated by commas.",
            show_default=False,
        ),
    ] = (),
    expires: Annotated[
        float | None, duration(Seconds(1.0), help="With add: how long the token is valid, such as 90d.")
    ] = None,
    all: Annotated[bool, Parameter(help="With list: include revoked tokens.")] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """List, add and revoke the tokens of a server, or print a new link to sign in.

    A token is shown only once, when it is created. `link` prints a link to sign in with a browser; it works
    once, within ten minutes, with the roles of this machine's token.
    """
    if action in ("list", "link") and name is not None:
        raise InvalidInput(f"`onward tokens {action}` takes no name.")
    if action == "link":
        return await _link(common, out)
    if action != "list" and name is None:
        raise InvalidInput("write the name of the token, as in `onward tokens add ci --role operator`.")
    async with access_of(common, makes=action == "add") as access:
        if action == "add":
            return await _add(access, name or "", role, expires, out)
        if action == "revoke":
            return _revoked(await access.revoke_token(RevokeToken(id=name or "")), out)
        found = await access.list_tokens(ListTokens(all=all))
    if out.is_json:
        out.value(found)
        return FINE
    for line in table(TOKEN_HEADINGS, list(map(_token_row, found["tokens"]))) if found["tokens"] else ():
        out.say(line)
    if not found["tokens"]:
        out.say(
            "no tokens; `onward serve` creates the first token, `onward tokens add NAME --role operator` "
            "adds more"
        )
    return FINE


async def _add(
    access: LocalAccess, name: str, role: tuple[str, ...], expires: float | None, out: Output
) -> int:
    roles = tuple(one.strip() for word in role for one in word.split(",") if one.strip())
    if not roles:
        raise InvalidInput("give the token a role, as in --role operator.")
    lasts = None if expires is None else int(expires)
    made = await access.add_token(AddToken(name=name, roles=roles, expires_in_s=lasts))
    if out.is_json:
        out.value(made)
    else:
        out.say(made["token"])
        out.note(f"token {made['name']} ({', '.join(made['roles'])}); it will not be shown again")
    return FINE


def _revoked(token: TokenListed, out: Output) -> int:
    if out.is_json:
        out.value(token)
    out.say(f"token {token['name']} is revoked; servers may accept it for up to five more seconds")
    return FINE


async def _link(common: Common, out: Output) -> int:
    link = await server_link(common)
    if out.is_json:
        out.value({"link": link})
    else:
        out.say(link)
    return FINE


def _token_row(one: TokenListed) -> tuple[str, ...]:
    state = "" if one["is_valid"] else "revoked" if one["revoked_at"] else "expired"
    return (
        one["id"],
        one["name"],
        ",".join(one["roles"]),
        when(one["expires_at"]) if one["expires_at"] else "never",
        when(one["used_at"]) if one["used_at"] else "never",
        state,
    )


async def audit(
    *,
    limit: Annotated[int, number(LIMIT, help="How many changes to show.")] = 50,
    common: Common = COMMON,
    out: Out,
) -> int:
    """List the changes requested over HTTP, newest first.

    Each change is recorded before it is made. A change without a status means that the server died before it
    replied.
    """
    async with access_of(common) as access:
        found = await access.list_audit(ListAudit(limit=limit))
    if out.is_json:
        out.value(found)
        return FINE
    if not found["changes"]:
        out.say("no changes were requested over HTTP")
        return FINE
    for line in table(AUDIT_HEADINGS, list(map(_change_row, found["changes"]))):
        out.say(line)
    return FINE


def _change_row(one: AuditShown) -> tuple[str, ...]:
    status = "no reply" if one["status"] is None else str(one["status"])
    behalf = f" for {one['on_behalf_of']}" if one["on_behalf_of"] else ""
    return when(one["at"]), f"{one['by']}{behalf}", one["operation"], one["subject"], status, one["address"]
