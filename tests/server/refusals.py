"""Every place of a server and every hostile request to it: what must be refused, and how.

    python -m tests.server.refusals

prints the table. It is made from what the application has mounted, so that a new place cannot be left out.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from onward.server.place import NOBODY, PAGE, STREAM, Mounted, Place, Socket
from tests.server.door import HOST, Door, Reply, a_door, handshake

DEEP = b'{"a":' * 65 + b"1" + b"}" * 65
BY_CREDENTIAL = {
    "no token": (401, "no_credential"),
    "unknown token": (401, "bad_credential"),
    "misspelt token": (401, "bad_credential"),
    "expired token": (401, "bad_credential"),
    "revoked token": (401, "bad_credential"),
    "two credentials": (401, "bad_credential"),
    "token in the address": (401, "no_credential"),
}
BY_ADDRESS = {
    "wrong Host": (421, "wrong_host"),
    "Host of another port": (421, "wrong_host"),
    "no Host": (421, "wrong_host"),
    "two Hosts": (421, "wrong_host"),
    "foreign Origin": (403, "foreign_origin"),
    "Origin null": (403, "foreign_origin"),
    "cross-site fetch": (403, "foreign_origin"),
    "same-site fetch": (403, "foreign_origin"),
}
BY_ROLE = {"wrong role": (403, "wrong_role")}
BY_BODY = {
    "form": (415, "content_type"),
    "plain text": (415, "content_type"),
    "no content type": (415, "content_type"),
    "gzip": (415, "content_type"),
    "oversize": (413, "too_large"),
    "oversize, unannounced": (413, "too_large"),
    "deep JSON": (422, "invalid_input"),
    "an array": (422, "invalid_input"),
    "no JSON": (400, "bad_request"),
    "unknown field": (422, "invalid_input"),
}
BY_METHOD = {"wrong method": (405, "method")}
BY_QUERY = {"unknown parameter": (422, "invalid_input")}
KINDS = {**BY_CREDENTIAL, **BY_ADDRESS, **BY_ROLE, **BY_BODY, **BY_METHOD, **BY_QUERY}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True)
class Row:
    """One hostile request, and what came of it; `wanted` is None where it does not apply."""

    place: str
    kind: str
    wanted: tuple[int, str] | None
    found: tuple[int, str | None] | None

    @property
    def is_well(self) -> bool:
        return self.wanted == self.found


def kinds_of(place: Mounted) -> Mapping[str, tuple[int, str]]:
    """What hostile requests to a place must come to."""
    if isinstance(place, Socket):
        return {**BY_CREDENTIAL, **BY_ADDRESS}
    kinds = dict(BY_ADDRESS)
    if place.role != NOBODY:
        kinds |= BY_CREDENTIAL
    if place.role in ("operator", "approver", "admin"):
        kinds |= BY_ROLE
    if place.method in ("POST", "PUT"):
        kinds |= BY_BODY
    if place.role == NOBODY and place.method != PAGE:
        kinds["wrong method"] = 401, "no_credential"  # it is open in one method alone
    elif place.method not in (PAGE, STREAM):
        kinds |= BY_METHOD
    if place.path.startswith("/api/") and place.role != NOBODY and place.path not in WITHOUT_QUERY:
        kinds |= BY_QUERY
    return kinds


WITHOUT_QUERY = ("/api/session", "/api/openapi.json")


async def try_kind(door: Door, place: Mounted, kind: str) -> Reply:
    """One hostile request."""
    path = place.path.replace("{", "").replace("}", "")
    headers: list[tuple[str, str]] = []
    role: str | None = "admin"
    body: bytes | None = None
    method = SOCKET if isinstance(place, Socket) else place.method
    if isinstance(place, Place) and place.role == NOBODY:
        role = None
    if method in (PAGE, STREAM):
        headers.append(("accept", "text/html" if method == PAGE else "text/event-stream"))
        method = "GET"
    if method in ("POST", "PUT"):
        body = b"{}"
    match kind:
        case "no token":
            role = None
        case "unknown token":
            headers.append(("authorization", f"Bearer onw_{'a' * 16}_{'b' * 43}"))
        case "misspelt token":
            token = await door.token("admin")
            headers.append(("authorization", f"Bearer {token[:-1]}{'A' if token[-1] != 'A' else 'B'}"))
        case "expired token":
            headers.append(("authorization", f"Bearer {await door.expired()}"))
        case "revoked token":
            headers.append(("authorization", f"Bearer {await door.revoked()}"))
        case "two credentials":
            headers.append(("cookie", f"onward_8765=a_{'b' * 43}"))
        case "token in the address":
            path, role = f"{path}?token={await door.token('admin')}", None
        case "wrong Host":
            headers.append(("host", "evil.example:8765"))
        case "Host of another port":
            headers.append(("host", "127.0.0.1:8766"))
        case "no Host":
            headers.append(("host", ""))
        case "two Hosts":
            headers += [("host", HOST), ("host", HOST)]
        case "foreign Origin":
            headers.append(("origin", "http://evil.example"))
        case "Origin null":
            headers.append(("origin", "null"))
        case "cross-site fetch":
            headers += [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "cors")]
        case "same-site fetch":
            headers += [("sec-fetch-site", "same-site"), ("sec-fetch-mode", "no-cors")]
        case "wrong role":
            role = "viewer"
        case "form":
            body, headers = b"a=1", [*headers, *FORM.items()]
        case "plain text":
            headers.append(("content-type", "text/plain"))
        case "no content type":
            headers.append(("content-type", ""))
        case "gzip":
            headers.append(("content-encoding", "gzip"))
        case "oversize":
            headers.append(("content-length", str(1024 * 1024 + 1)))
        case "oversize, unannounced":
            body = b'{"a":"' + b"x" * 1024 * 1024 + b'"}'
            headers.append(("content-length", ""))
        case "deep JSON":
            body = DEEP
        case "an array":
            body = b"[null]"
        case "no JSON":
            body = b"{"
        case "unknown field":
            body = b'{"no_such_field":1}'
        case "wrong method":
            method = "PATCH"
        case "unknown parameter":
            path = f"{path}?no_such_parameter=1"
    if method == SOCKET:
        return await handshake(door, path, role=role, headers=headers)
    return await door.ask(method, path, raw=body or b"", role=role, headers=headers)


SOCKET = "SOCKET"


def name_of(place: Mounted) -> str:
    """A place as the table calls it."""
    return f"{'WS' if isinstance(place, Socket) else place.method} {place.path}"


async def table(door: Door) -> list[Row]:
    """Everything that is mounted, times everything hostile."""
    rows = list[Row]()
    for place in door.app.mounted:
        kinds = kinds_of(place)
        for kind in KINDS:
            wanted = kinds.get(kind)
            if wanted is None:
                rows.append(Row(name_of(place), kind, None, None))
                continue
            reply = await try_kind(door, place, kind)
            rows.append(Row(name_of(place), kind, wanted, (reply.status, reply.code)))
    return rows


async def main() -> int:
    """Print the table; the exit code says whether all was refused."""
    async with a_door(failures=1_000_000) as door:
        rows = await table(door)
    places = list(dict.fromkeys(row.place for row in rows))
    width = max(map(len, places))
    kinds = list(KINDS)
    for number, kind in enumerate(kinds):
        print(f"{number + 1:>3} {kind}")
    print(" " * width, *(f"{number + 1:>4}" for number in range(len(kinds))))
    for place in places:
        cells = [row for row in rows if row.place == place]
        shown = ("   –" if row.wanted is None else f"{row.found[0] if row.found else 0:>4}" for row in cells)
        print(place.ljust(width), *shown)
    tried = [row for row in rows if row.wanted is not None]
    bad = [row for row in tried if not row.is_well]
    for row in bad:
        print(f"NOT AS WANTED: {row.place}, {row.kind}: {row.found} instead of {row.wanted}")
    by_status = Counter(row.found[0] for row in tried if row.found)
    print(f"{len(places)} places, {len(tried)} hostile requests, {len(bad)} not refused as they should be")
    print(", ".join(f"{status}: {number}" for status, number in sorted(by_status.items())))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
