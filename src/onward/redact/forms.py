"""The forms in which programs print a secret: as it is, in base64, in a URL, in JSON, as Python shows it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

VALUE_CHARACTERS_MIN = 8
"""Shorter values are in too many ordinary texts to be replaced."""
LINE_CHARACTERS_MIN = 16
"""Of a value with several lines, each line of this length is a secret too: programs print them one by one."""
_WRAPPED_AT = 64, 76  # PEM and MIME, which `base64` and Python's `encodebytes` follow


def forms_of(value: str) -> list[str]:
    """Every form of the value, each once, the longest first."""
    found = {form for form in _forms(value) if len(form) >= VALUE_CHARACTERS_MIN}
    return sorted(found, key=lambda form: (-len(form), form))


def _forms(value: str) -> Iterator[str]:
    for text in (value, *_lines(value)):
        yield text
        yield from _in_json(text)
        yield repr(text)[1:-1]  # as errors show it
        yield ascii(text)[1:-1]
        yield quote(text, safe="", errors="surrogateescape")
        yield quote(text, errors="surrogateescape")
        yield quote_plus(text, errors="surrogateescape")
    yield from _in_base64(value.encode("utf-8", "surrogateescape"))


def _lines(value: str) -> list[str]:
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) < 2:
        return []
    return [line for line in lines if len(line) >= LINE_CHARACTERS_MIN and not line.startswith("-----")]


def _in_json(value: str) -> Iterator[str]:
    """With and without escapes for what is not ASCII, and for the slash, which some escape."""
    for only_ascii in (True, False):
        text = json.dumps(value, ensure_ascii=only_ascii)[1:-1]
        yield text
        yield text.replace("/", "\\/")


def _in_base64(value: bytes) -> Iterator[str]:
    """What a base64 text has of the value, wherever the value begins in what was encoded.

    Characters that also depend on what is before or after the value are left out.
    """
    whole = base64.b64encode(value).decode()
    for before, left_out in ((0, 0), (1, 2), (2, 3)):
        size = before + len(value)
        end = size // 3 * 4 + size % 3
        core = base64.b64encode(bytes(before) + value).decode()[left_out:end]
        yield core
        yield core.replace("+", "-").replace("/", "_")
        yield quote(core, safe="")
        yield core.replace("/", "\\/")
    for width in _WRAPPED_AT:
        if len(whole) > width:
            lines = (whole[at : at + width] for at in range(0, len(whole), width))
            yield from (line for line in lines if len(line) >= LINE_CHARACTERS_MIN)
