"""Which choice of a gate means yes."""

from __future__ import annotations

import pytest

from onward.model.gate import Choice
from onward.pipeline.gate import approving


@pytest.mark.parametrize(
    ("labels", "yes"),
    [
        (("No", "Yes"), 1),
        (("[R] Reject", "[A] Approve"), 1),
        (("Rework", "[O] OK"), 1),
        (("Stop", "Continue"), 1),
        (("Stop", "LGTM"), 1),
        (("Rework", "Approve, and ship it"), 1),
        (("No, not yet", "Yes: ship"), 1),
        (("[N] Back", "[Y] Ship it"), 1),
        (("n", "y"), 1),
        (("Continue editing", "Ship"), None),
        (("Yes, today", "Yes, tomorrow"), None),
        (("Yes", "Yes, tomorrow"), 0),
        (("Okayish", "Yesterday"), None),
        (("Young", "Old"), None),
        (("Draft", "Final"), None),
    ],
)
def test_a_choice_approves_by_its_word_its_first_word_or_its_key(
    labels: tuple[str, ...], yes: int | None
) -> None:
    choices = [Choice(key=str(number), label=label, to="x") for number, label in enumerate(labels)]
    found = approving("multiple_choice", choices)
    assert (None if found is None else labels.index(found.label)) == yes
