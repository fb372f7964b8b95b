"""An artifact as bytes. It is always sent as a file to save, never shown as a page of this server."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from starlette.responses import Response

from onward.server.problems import Problem

if TYPE_CHECKING:
    from onward.replies.steps import ArtifactContent

_RANGE = re.compile(r"bytes=([0-9]{0,15})-([0-9]{0,15})")
_PLAIN = re.compile(r"[^A-Za-z0-9._-]+")
SANDBOX = "default-src 'none'; sandbox"


def artifact_reply(found: ArtifactContent, wanted: str | None) -> Response:
    """The content, or the requested range of it. Its ETag is the hash of the content."""
    encoded = found.get("content_base64")
    content = found.get("content", "").encode() if encoded is None else base64.b64decode(encoded)
    name = _PLAIN.sub("_", found["id"])[:80].strip("._") or "artifact"
    headers = {
        "ETag": f'"{found["hash"]}"',
        "Accept-Ranges": "bytes",
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Security-Policy": SANDBOX,
    }
    part = None if wanted is None else _RANGE.fullmatch(wanted)
    if part is None or not (part[1] or part[2]):
        return Response(content, 200, headers, "application/octet-stream")
    size = len(content)
    first = int(part[1]) if part[1] else max(0, size - int(part[2]))
    last = min(int(part[2]), size - 1) if part[1] and part[2] else size - 1
    if first > last:
        raise Problem(
            416,
            "range",
            "the requested range is not in the artifact.",
            headers={"Content-Range": f"bytes */{size}"},
        )
    headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    return Response(content[first : last + 1], 206, headers, "application/octet-stream")
