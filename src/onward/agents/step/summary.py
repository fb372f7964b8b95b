"""Summaries of a run by a model, for steps whose fidelity asks for one. Without a model, rules make them.

The summary is a recorded request like any other, `m0`: a step that runs again has the same one.
"""

from __future__ import annotations

from onward.agents.model.request import user
from onward.agents.step.setting import Setting
from onward.agents.step.thread import Thread
from onward.handlers.port import StepContext

CALL_NUMBER = 0
SUMMARY = "summary:"
TOKENS = {"summary:low": 600, "summary:medium": 1_500, "summary:high": 3_000}
SYSTEM = (
    "Summarise the account of a run for whoever does its next step: what was done, what was decided, which "
    "values matter, and what is open. Use short sentences, and invent nothing."
)


def wants_summary(step: StepContext) -> bool:
    """Whether the step is to be told a summary of what came before it."""
    return step.fidelity.startswith(SUMMARY)


def summary_setting(model: str, step: StepContext) -> Setting:
    """How the summary of a step is asked for."""
    return Setting(
        model=model,
        system=SYSTEM,
        definition="",
        effort=None,
        max_tokens=TOKENS.get(step.fidelity, TOKENS["summary:medium"]),
        temperature=None,
        rounds_max=1,
    )


class SummaryTalk:
    """The conversation about a summary: the account that rules make, in their longest form."""

    def __init__(self, step: StepContext) -> None:
        self._step = step

    async def asking(self) -> Thread:
        """As that of a step: what waits for an answer."""
        thread = Thread(self._step.redactor)
        thread.add(user(await self._step.preamble("summary:high")))
        return thread

    def answered(self, thread: Thread) -> None:
        """The answer is all of it."""
