"""An answer to a gate: one of its choices, a verdict, text, or nothing."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from onward.model.values.value import check_value


class Verdict(StrEnum):
    """A yes or no that any gate understands, whatever its choices are called."""

    APPROVE = "approve"
    REJECT = "reject"


class Answer(msgspec.Struct, frozen=True):
    """An answer to a gate: a choice by its key, label or target, or a verdict; and words beside it.

    To a gate that asks for words, the words alone are the answer. One that is `skipped` leaves the gate open.
    """

    choice: str = ""
    text: str = ""
    verdict: Verdict | None = None
    skipped: bool = False

    def __post_init__(self) -> None:
        """What is said is stored for ever, so what could not be is refused here."""
        check_value(self.choice, "the answer")
        check_value(self.text, "the text of the answer")

    @classmethod
    def approve(cls, text: str = "") -> Answer:
        """Yes, whatever the gate calls it."""
        return cls(verdict=Verdict.APPROVE, text=text)

    @classmethod
    def reject(cls, text: str = "") -> Answer:
        """No, whatever the gate calls it; where no edge takes it, the run fails as rejected."""
        return cls(verdict=Verdict.REJECT, text=text)

    @classmethod
    def skip(cls) -> Answer:
        """No answer; the gate stays open."""
        return cls(skipped=True)

    @classmethod
    def of(cls, said: Answer | str | bool | None) -> Answer:
        """What an interviewer returned, as an answer: True approves, False rejects, None skips."""
        match said:
            case Answer():
                return said
            case None:
                return cls.skip()
            case bool():
                return cls.approve() if said else cls.reject()
            case _:
                return cls(choice=str(said))


class Decision(msgspec.Struct, frozen=True):
    """What came of a question that a step asked: the choice as it was offered, words, and who said so.

    `choice` is empty if the person wrote only text, or said no without taking one of the choices.
    `rejected`: the answer is no. `expired`: nobody answered before the deadline, so its rule decided.
    """

    choice: str
    text: str
    by: str
    rejected: bool = False
    expired: bool = False
