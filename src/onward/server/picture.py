"""The graph of a run as SVG, which executes and loads nothing, even if it is opened as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from onward.draw.scene import from_view
from onward.draw.svg import to_svg

if TYPE_CHECKING:
    from onward.replies.steps import Drawing

SVG, JSON = "image/svg+xml", "application/json"
SANDBOX = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""Its own style sheet is all that it needs."""


def wants_picture(accept: str) -> bool:
    """Whether the client prefers SVG to JSON."""
    return SVG in accept.lower() and JSON not in accept.lower()


def picture_reply(drawn: Drawing) -> Response:
    """The picture of a run."""
    picture = to_svg(from_view(drawn, title=drawn["pipeline"]))
    headers = {"Content-Security-Policy": SANDBOX, "Vary": "Accept"}
    return Response(picture, 200, headers, f"{SVG}; charset=utf-8")
