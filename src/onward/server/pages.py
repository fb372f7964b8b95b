"""What browsers and probes request: the page, its files, health, metrics, and the description of the API."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from starlette.responses import Response

from onward.operations.http import VIEWER
from onward.server.openapi import document, document_page
from onward.server.place import NOBODY, PAGE, Asked, Mounted, Place
from onward.server.problems import Problem

if TYPE_CHECKING:
    from onward.observe.pages import Pages as Figures
    from onward.server.context import Context
    from onward.server.hosts import Hosts

HTML, PLAIN = "text/html; charset=utf-8", "text/plain; charset=utf-8"
_HERE = os.path.dirname(__file__)
PAGES = (
    os.path.normpath(os.path.join(_HERE, "..", "page")),
    os.path.normpath(os.path.join(_HERE, "..", "..", "..", "web", "dist")),
)
"""Where the built page is: in the package, or where `make web` puts it."""
_ROOTED = re.compile(r'\b(src|href|content)="/')
_ASSET = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){1,4}")
TYPES = {
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "woff2": "font/woff2",
    "png": "image/png",
    "json": "application/json",
}
FOR_GOOD = {"Cache-Control": "public, max-age=31536000, immutable"}
NOT_BUILT = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Onward</title>"
    "<h1>Onward</h1><p>The page is not built here: <code>make web</code> builds it. "
    "The API is complete without it: <a href=docs>its description</a> needs a token.</p></html>"
)


def places(context: Context) -> list[Mounted]:
    """The page and its files, the probes, and the descriptions."""
    return [
        Place("GET", "/healthz", NOBODY, healthz),
        Place("GET", "/readyz", NOBODY, readyz),
        Place("GET", "/favicon.svg", NOBODY, favicon),
        Place("GET", "/assets/{name}", NOBODY, asset),
        Place(PAGE, "/", NOBODY, shell),
        Place("GET", "/metrics", VIEWER, metrics),
        Place("GET", "/api/openapi.json", VIEWER, openapi),
        Place("GET", "/docs", VIEWER, docs),
    ]


async def healthz(asked: Asked) -> Response:
    """Whether this process is alive."""
    return Response("ok\n", 200, media_type=PLAIN)


async def readyz(asked: Asked) -> Response:
    """Whether it accepts work: not while it drains."""
    life, fault_of = asked.context.life, asked.context.extra.get("fault")
    fault = "draining" if life.is_draining else life.fault
    if not fault and fault_of is not None and fault_of():
        fault = "the database cannot be used"  # nobody who asks this needs to know more
    return Response(f"{fault or 'ok'}\n", 503 if fault else 200, media_type=PLAIN)


async def shell(asked: Asked) -> Response:
    """The page, the same for all its routes.

    All its addresses begin with `/`: behind a proxy with a path of its own they get that path. The policy
    refuses `<base href>`, so the page's script reads the path in a `<meta>`.
    """
    hosts: Hosts = asked.context.extra["hosts"]
    text = read_page("index.html")
    if text is None:
        return Response(NOT_BUILT, 200, media_type=HTML)
    return Response(rooted(text.decode(), hosts.base), 200, media_type=HTML)


def rooted(html: str, base: str) -> str:
    """The page with its addresses below `base`."""
    return _ROOTED.sub(lambda found: f'{found[1]}="{base}/', html)


async def asset(asked: Asked) -> Response:
    """A file of the page. Its name has the hash of what is in it, so it may be kept for good.

    The build leaves compressed copies beside it, so nothing is compressed while somebody waits.
    """
    name = asked.path["name"]
    kind = TYPES.get(name.rpartition(".")[2])
    if kind is not None and _ASSET.fullmatch(name):
        for coding, end in codings(asked.http.headers.get("accept-encoding", "")):
            content = read_page("assets", name + end)
            if content is not None:
                more = {"Content-Encoding": coding} if coding else {}
                return Response(content, 200, FOR_GOOD | {"Vary": "Accept-Encoding"} | more, kind)
    raise Problem(404, "not_found", "there is no such file of the page.")


def codings(accepted: str) -> list[tuple[str, str]]:
    """The codings that a client takes, the smallest first, each with the end of its files' names."""
    refused = re.compile(r";\s*q=0(\.0*)?\s*$")
    names = {part.partition(";")[0].strip() for part in accepted.split(",") if not refused.search(part)}
    return [(coding, end) for coding, end in (("br", ".br"), ("gzip", ".gz")) if coding in names] + [("", "")]


async def favicon(asked: Asked) -> Response:
    """The picture of the page."""
    content = read_page("favicon.svg")
    if content is None:
        raise Problem(404, "not_found", "there is no such file of the page.")
    return Response(content, 200, media_type=TYPES["svg"])


async def metrics(asked: Asked) -> Response:
    """Figures for Prometheus."""
    figures: Figures | None = asked.context.extra.get("metrics")
    if figures is None:
        raise Problem(404, "not_found", "this server has no metrics.")
    page = await figures.answer("/metrics")
    return Response(page.body, page.status, media_type=page.content_type)


async def openapi(asked: Asked) -> Response:
    """The description of the API for programs."""
    return Response(document(), 200, media_type="application/json")


async def docs(asked: Asked) -> Response:
    """The description of the API for people, without a script."""
    return Response(document_page(), 200, media_type=HTML)


def read_page(*names: str) -> bytes | None:
    """A file of the built page; None if there is none."""
    for directory in PAGES:
        try:
            with open(os.path.join(directory, *names), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            continue
    return None
