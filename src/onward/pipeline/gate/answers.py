"""Which choice of a gate an answer means.

Every gate understands words of approval and rejection, so that an API or a button can say yes or no without
knowing the labels of the edges.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from onward.model.gate import Choice
from onward.pipeline.edges import accelerator, has_accelerator, normalise_label
from onward.pipeline.gate.words import APPROVING, GOING_ON, REJECTING, YES_AND_NO

_SHORT = {"y": APPROVING, "n": REJECTING}


def meant(kind: str, choices: Sequence[Choice], said: str) -> Choice | None:
    """The choice that an answer means: by key, label, target, or as a word for yes or no.

    Two labels may differ only in their accelerators; an answer that could mean either means neither.
    """
    wanted = said.strip()
    if not wanted:
        return None
    for choice in choices:
        if choice.key.lower() == wanted.lower():
            return choice
    for choice in choices:
        if choice.label.strip() == wanted:
            return choice
    named = [choice for choice in choices if normalise_label(choice.label) == normalise_label(wanted)]
    if named:
        return named[0] if len(named) == 1 else None
    leading = [choice for choice in choices if choice.to == wanted]
    if leading:
        return leading[0] if len(leading) == 1 else None
    return _by_word(kind, choices, wanted.lower())


def _by_word(kind: str, choices: Sequence[Choice], word: str) -> Choice | None:
    words = _SHORT.get(word, (word,))
    if words[0] in APPROVING:
        return approving(kind, choices)
    return rejecting(kind, choices) if words[0] in REJECTING else None


def approving(kind: str, choices: Sequence[Choice]) -> Choice | None:
    """The choice that means yes, or None.

    Its label is a word of approval; or begins with one, as "Yes, ship it"; or it has the key Y, as
    "[Y] Ship". The first of these rules that any choice meets decides, if only one does.
    """
    if kind in YES_AND_NO:
        return choices[0]
    found = worded(choices, (*APPROVING, *GOING_ON))
    if found is not None:
        return found
    for is_yes in (_begins_with_yes, _has_key_y):
        named = [choice for choice in choices if is_yes(choice.label)]
        if named:
            return named[0] if len(named) == 1 else None
    return None


def _begins_with_yes(label: str) -> bool:
    return re.split(r"[\W_]", normalise_label(label), maxsplit=1)[0] in APPROVING


def _has_key_y(label: str) -> bool:
    return accelerator(label).upper() == "Y" and (has_accelerator(label) or len(label.strip()) == 1)


def rejecting(kind: str, choices: Sequence[Choice]) -> Choice | None:
    """The choice that means no, or None."""
    return choices[1] if kind in YES_AND_NO else worded(choices, REJECTING)


def worded(choices: Sequence[Choice], words: Sequence[str]) -> Choice | None:
    """The choice labelled with the first of these words that occurs; None if two choices have it."""
    for word in words:
        named = [choice for choice in choices if normalise_label(choice.label) == word]
        if named:
            return named[0] if len(named) == 1 else None
    return None
