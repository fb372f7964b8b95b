"""The types of questions, and the words by which any gate understands a yes and a no."""

from __future__ import annotations

MULTIPLE_CHOICE, YES_NO, CONFIRMATION, FREEFORM = "multiple_choice", "yes_no", "confirmation", "freeform"
QUESTION_TYPES = (MULTIPLE_CHOICE, YES_NO, CONFIRMATION, FREEFORM)
DEFAULT, REJECT, NONE = "default", "reject", "none"
TIMEOUT_RULES = (REJECT, NONE)

APPROVING = ("approve", "yes", "ok", "okay", "accept", "confirm")
GOING_ON = ("approved", "continue", "proceed", "lgtm")
"""Also words of approval, but only by themselves: "Continue editing" approves nothing."""
REJECTING = ("reject", "no", "deny", "decline", "cancel")
YES_AND_NO = {YES_NO: ("Yes", "No"), CONFIRMATION: ("Confirm", "Cancel")}
"""The two answers of the types that have two: the yes, then the no."""
LABEL_CHARACTERS_MAX = 500
"""A label after its values were put in."""
