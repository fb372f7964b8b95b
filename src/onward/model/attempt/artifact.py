"""Artifacts: named content that a run keeps beside its context, however large."""

from __future__ import annotations

from typing import Literal

import msgspec

Form = Literal["bytes", "text", "json"]

ARTIFACT_BYTES_MAX = 64 * 1024 * 1024
STEP_BYTES_MAX = 128 * 1024 * 1024
"""All that one step stores goes into one transaction."""
ARTIFACTS_MAX = 1_000
"""A run's state holds a line for each, so there is an end to them; one id may be stored again and again."""
ID_CHARACTERS_MAX = 200


class Artifact(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What is known of an artifact. Its content is the blob `hash`; `form` is what was handed over."""

    name: str
    size: int
    hash: str
    stored_at_us: int
    step: str
    form: Form = "bytes"
