"""What is said to a gate."""

from __future__ import annotations

import pytest

from onward.errors import UnstorableValue
from onward.model.gate import Answer, Verdict


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("R", Answer(choice="R")),
        (True, Answer(verdict=Verdict.APPROVE)),
        (False, Answer(verdict=Verdict.REJECT)),
        (None, Answer(skipped=True)),
        (Answer("B", "why not"), Answer("B", "why not")),
    ],
)
def test_short_forms_are_answers(said: Answer | str | bool | None, expected: Answer) -> None:
    """D53."""
    assert Answer.of(said) == expected


def test_a_verdict_can_come_with_words() -> None:
    assert Answer.approve("fine") == Answer(verdict=Verdict.APPROVE, text="fine")
    assert Answer.reject("no") == Answer(verdict=Verdict.REJECT, text="no")


def test_words_that_cannot_be_stored_are_refused_when_they_are_said() -> None:
    with pytest.raises(UnstorableValue, match="the answer"):
        Answer("\udce9")
    with pytest.raises(UnstorableValue, match="the text of the answer"):
        Answer.reject("\udce9")
