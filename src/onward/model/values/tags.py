"""Tags: words that whoever creates a run gives it, to find it by."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Annotated

from msgspec import Meta

from onward.errors import InvalidInput
from onward.model.values.bounds import shown

TAG_CHARACTERS_MAX, TAGS_MAX = 64, 32
_FORM = rf"^[\w.:/=@+-]{{1,{TAG_CHARACTERS_MAX}}}\Z"
_TAG = re.compile(_FORM)
Tags = Annotated[tuple[Annotated[str, Meta(pattern=_FORM)], ...], Meta(max_length=TAGS_MAX)]


def checked_tags(tags: Collection[object]) -> tuple[str, ...]:
    """The tags in order, each once; InvalidInput names one that cannot be used."""
    if not tags:
        return ()
    found = set[str]()
    for tag in tags:
        if not isinstance(tag, str) or not _TAG.match(tag):
            raise InvalidInput(
                f"the tag {shown(tag)} cannot be used; write 1 to {TAG_CHARACTERS_MAX} letters, digits "
                "and . _ : / = @ + -"
            )
        found.add(tag)
    if len(found) > TAGS_MAX:
        raise InvalidInput(f"a run has at most {TAGS_MAX} tags, and these are {len(found)}.")
    return tuple(sorted(found))


def tag_column(tags: Collection[str]) -> str:
    """The tags as rows have them: in order, each between two spaces of its own."""
    return "".join([f" {tag} " for tag in sorted(tags)]) if tags else ""


def tags_in(column: str) -> list[str]:
    """The tags of a row."""
    return column.split()


def tag_pattern(tags: Iterable[str]) -> str:
    """What the column of a run with all these tags looks like; `*` stands for anything."""
    return f"*{'*'.join(f' {tag} ' for tag in sorted(tags))}*"
