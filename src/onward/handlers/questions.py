"""Questions that a handler asks a person in the middle of its step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from blake3 import blake3

from onward.errors import InvalidInput
from onward.model.context import plain_text
from onward.model.gate import Choice, Decision, GateOpened
from onward.model.result import excerpt
from onward.model.run import Gate
from onward.model.values import Seconds
from onward.pipeline.gate import (
    DEFAULT,
    FREEFORM,
    LABEL_CHARACTERS_MAX,
    MULTIPLE_CHOICE,
    NONE,
    QUESTION_TYPES,
    TIMEOUT_RULES,
    YES_AND_NO,
    YES_NO,
    keys_of,
    meant,
)

TEXT_CHARACTERS_MAX = 10_000
CHOICES_MAX = 50
TIMEOUT = Seconds(0.001)


class StepQuestion(msgspec.Struct, frozen=True):
    """What a call asks a person; `default` is the key of a choice."""

    text: str
    type: str = YES_NO
    choices: tuple[Choice, ...] = ()
    default: str = ""
    on_timeout: str = NONE
    about: str = ""
    timeout_s: float | None = None
    remind_s: float | None = None
    metadata: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_shown_whole: bool = False
    """Whether all of what it is about is shown, however long: people decide about exactly that."""

    @property
    def hash(self) -> str:
        """The name of what is asked. How long one may take to answer is no part of it."""
        choices = [(choice.key, choice.label) for choice in self.choices]
        asked = (self.text, self.type, choices, self.default, self.on_timeout, self.about)
        return blake3(msgspec.json.encode(asked)).hexdigest()

    def opened(self, gate: str, node: str, now_us: int) -> GateOpened:
        """The event that puts the question to people."""
        return GateOpened(
            gate=gate,
            node=node,
            text=self.text,
            choices=self.choices,
            type=self.type,
            default=self.default,
            deadline_us=None if self.timeout_s is None else now_us + round(self.timeout_s * 1_000_000),
            on_timeout=self.on_timeout,
            remind_us=None if self.remind_s is None else round(self.remind_s * 1_000_000),
            metadata=dict(self.metadata),
            about=self.about if self.is_shown_whole else excerpt(self.about),
            question=self.hash,
        )

    def recorded(self, gate: Gate) -> dict[str, Any]:
        """What a call keeps of the answer; who gave it is kept beside this."""
        assert gate.decided is not None
        return {
            "question": self.hash,
            "choice": gate.decided.key,
            "text": gate.answer,
            "rejected": gate.rejected,
            "expired": gate.expired,
        }

    def decision(self, recorded: Mapping[str, Any], by: str) -> Decision:
        """The answer as the handler gets it: a choice in the words in which it was offered."""
        labels = {choice.key: choice.label for choice in self.choices}
        return Decision(
            choice=labels.get(recorded["choice"], ""),
            text=recorded["text"],
            by=by,
            rejected=recorded["rejected"],
            expired=recorded["expired"],
        )


def step_question(
    key: str,
    text: str,
    *,
    choices: Sequence[str] | None,
    type: str | None,
    default: str,
    on_timeout: str,
    about: str,
    timeout_s: float | None,
    remind_s: float | None,
    metadata: Mapping[str, str] | None,
    is_shown_whole: bool = False,
) -> StepQuestion:
    """The question that these arguments of `ask` make; InvalidInput if nobody could answer it."""
    where = f"the question {key!r}"
    text, about = _text(text, where), plain_text(about, f"what {where} is about")
    if not text.strip():
        raise InvalidInput(f"{where} is empty; say what people are asked.")
    kind = type or (YES_NO if choices is None else MULTIPLE_CHOICE)
    if kind not in QUESTION_TYPES:
        raise InvalidInput(f"the type of {where} is {kind!r}; use one of {', '.join(QUESTION_TYPES)}.")
    offered = _choices(where, kind, choices)
    if on_timeout not in TIMEOUT_RULES:
        rules = ", ".join(TIMEOUT_RULES)
        raise InvalidInput(
            f"on_timeout of {where} is {on_timeout!r}; use one of {rules}, or name a choice with default."
        )
    chosen = _default(where, kind, offered, default)
    for name, seconds in (("timeout_s", timeout_s), ("remind_s", remind_s)):
        if seconds is not None:
            TIMEOUT.check(seconds, f"{name} of {where}")
    return StepQuestion(
        text=text,
        type=kind,
        choices=offered,
        default=chosen,
        on_timeout=DEFAULT if chosen else on_timeout,
        about=about,
        timeout_s=timeout_s,
        remind_s=remind_s,
        metadata={
            plain_text(name, f"a name in the metadata of {where}"): plain_text(
                value, f"{name!r} in the metadata of {where}"
            )
            for name, value in (metadata or {}).items()
        },
        is_shown_whole=is_shown_whole,
    )


def _text(text: str, where: str) -> str:
    text = plain_text(text, where)
    if len(text) > TEXT_CHARACTERS_MAX:
        raise InvalidInput(
            f"{where} has {len(text)} characters; use at most {TEXT_CHARACTERS_MAX}, "
            "and show the rest with about."
        )
    return text


def _choices(where: str, kind: str, labels: Sequence[str] | None) -> tuple[Choice, ...]:
    """One choice per label, each with its own key. Of a yes and a no, the yes comes first."""
    if kind == FREEFORM:
        if labels:
            raise InvalidInput(f"{where} asks for words, so it has no choices; leave them out.")
        return ()
    if isinstance(labels, str) or (labels is None and kind == MULTIPLE_CHOICE):
        raise InvalidInput(f"{where} needs a list of choices, such as choices=['Charge', 'Cancel'].")
    given = YES_AND_NO[kind] if labels is None else labels
    names = [plain_text(one, f"a choice of {where}") for one in given]
    if kind in YES_AND_NO and len(names) != 2:
        raise InvalidInput(f"{where} is of type {kind}, so it has two choices: the yes, then the no.")
    if not 1 <= len(names) <= CHOICES_MAX:
        raise InvalidInput(f"{where} has {len(names)} choices; offer 1 to {CHOICES_MAX}.")
    for name in names:
        if not name.strip() or len(name) > LABEL_CHARACTERS_MAX:
            raise InvalidInput(
                f"a choice of {where} is empty or too long; use 1 to {LABEL_CHARACTERS_MAX} characters."
            )
    if len(set(names)) < len(names):
        raise InvalidInput(f"{where} offers a choice twice; give every choice its own words.")
    keys = keys_of(names)
    return tuple(Choice(key=key, label=name, to="") for key, name in zip(keys, names, strict=True))


def _default(where: str, kind: str, choices: Sequence[Choice], default: str) -> str:
    """The key of the choice that counts when nobody answers in time; empty if there is none."""
    if not default:
        return ""
    found = meant(kind, choices, default)
    if found is None:
        names = ", ".join(choice.label for choice in choices) or "none, it asks for words"
        raise InvalidInput(f"the default of {where} is {default!r}; its choices are {names}.")
    return found.key
