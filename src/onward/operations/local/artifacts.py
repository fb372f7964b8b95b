"""Artifacts as they are shown."""

from __future__ import annotations

import base64
from typing import cast

from onward.errors import StoreCorrupt
from onward.model.attempt.artifact import Artifact
from onward.operations.replies.kept import ArtifactContent, ArtifactListed
from onward.read.view import instant


def view_artifact(id: str, artifact: Artifact) -> ArtifactListed:
    """What is known of an artifact."""
    view = {
        "id": id,
        "name": artifact.name,
        "size_bytes": artifact.size,
        "stored_at": instant(artifact.stored_at_us),
        "form": artifact.form,
        "step": artifact.step,
        "hash": artifact.hash,
    }
    return cast("ArtifactListed", view)


def view_content(id: str, artifact: Artifact, content: bytes | None) -> ArtifactContent:
    """An artifact with its content; `content` is None if the store has lost it."""
    if content is None:
        raise StoreCorrupt(f"the content of artifact {id!r} ({artifact.hash}) is missing or damaged.")
    if artifact.form == "bytes":
        shown = {"content_base64": base64.b64encode(content).decode()}
    else:
        shown = {"content": content.decode()}
    return cast("ArtifactContent", {**view_artifact(id, artifact), **shown})
