"""How an agent's conversation continues after each answer.

It is pure, so that a resumed step decides the same again.

answer ──► tool calls?  ──► use them, show the results, ask again
       ├─► cut off?     ──► ask for the rest; of JSON, ask once more for the whole
       ├─► no tool used that has to be? ──► ask once more
       ├─► unreadable?  ──► ask once more
       └─► result
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from onward.agents.model import FinishReason, ToolCall, ToolResult
from onward.agents.step.contract import StepSetup, UnreadableAnswer, read_answer, read_structured
from onward.agents.step.conversation import Answered
from onward.model.result import Result

REPAIRS_MAX = 1
CONTINUE = "Your answer was cut off. Continue exactly where it ended, without repeating anything."
LOOPING = (
    "You have made this call before, with the same arguments and the same result, several times. It was not "
    "made again. Do something else, or answer with what you know."
)
CUT_OFF = "it reached the token limit before it was complete, so it has to be shorter"
UNUSED = "You have not used {names} yet. Do so now, or say why nothing is to be done."
CALLS_MAX = 100
"""How many uses of tools one answer may ask for."""
TOO_MANY = (
    f"You asked for {{count:,}} uses of tools at once, and at most {CALLS_MAX} are made. "
    "None was made: ask for fewer."
)
PERIODS = {1: 3, 2: 2, 3: 2}
"""A pattern of so many rounds is a loop when it has come so often, and begins again."""


class Ask(msgspec.Struct, frozen=True):
    """Ask again, with this."""

    follow_up: str


class UseTools(msgspec.Struct, frozen=True):
    """Make these calls, and ask again with what comes of them; `refused`: make none, and say why."""

    calls: tuple[ToolCall, ...]
    refused: str = ""


Move = Ask | UseTools | Result
Read = Callable[[str], Result]
"""Reads the text of an answer; UnreadableAnswer says what is wrong with it."""


class Rounds:
    """How far the conversation of one attempt has come; `number` counts the answers."""

    def __init__(
        self, setting: StepSetup, node: str, *, read: Read | None = None, repairs_max: int = REPAIRS_MAX
    ) -> None:
        """`read` makes the result of the text of an answer, in place of the contract of nodes."""
        self._setting, self._node = setting, node
        self._own_read, self._repairs_max = read, repairs_max
        self._texts: list[str] = []
        self._past: list[tuple[str, str]] = []
        self._warned: set[str] = set()
        self._repairs = self._written = self.number = 0
        self._has_used = not setting.required_tools
        self._is_reminded = False

    @property
    def room(self) -> int | None:
        """How many tokens the next answer may have, if the step has a ceiling."""
        most = self._setting.output_max
        return None if most is None else max(1, most - self._written)

    @property
    def owes(self) -> bool:
        """Whether the next answer has to use a required tool: it is the last that can, and none was used."""
        return not self._has_used and self.number + 1 == max(1, self._setting.rounds_max - 1)

    def after(self, answered: Answered) -> Move:
        """What follows an answer."""
        self.number += 1
        self._written += answered.output
        self._texts.append(answered.text)
        if answered.finish_reason is FinishReason.REFUSAL:
            return Result.fail(f"the model refused: {answered.text[:500]}", retryable=False)
        if answered.tool_calls:
            self._texts = []  # what it says before it uses tools is no part of the result
            return self._exhausted("it is still using tools") or self._use(answered.tool_calls)
        is_cut = answered.finish_reason is FinishReason.LENGTH
        # A server that holds the answer to a schema begins the JSON anew, so it has no rest to ask for.
        if is_cut and self._setting.schema is None and not self._is_last:
            return Ask(CONTINUE)
        if not self._has_used and not self._is_reminded and self.number + 1 < self._setting.rounds_max:
            self._is_reminded, self._texts = True, []
            return Ask(UNUSED.format(names=" or ".join(self._setting.required_tools)))
        return self._read(is_cut=is_cut)

    def used(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> None:
        """Remember what came of a round of tool calls. A use that failed is none that had to be."""
        self._has_used = self._has_used or any(
            call.name in self._setting.required_tools and not result.is_error
            for call, result in zip(calls, results, strict=True)
        )
        self._past.append((_signature(calls), "\0".join(result.text for result in results)))

    @property
    def _is_last(self) -> bool:
        most = self._setting.output_max
        return self.number >= self._setting.rounds_max or (most is not None and self._written >= most)

    def _exhausted(self, why: str) -> Result | None:
        """The failure of a step that may ask no more; its answers are kept for a higher ceiling."""
        setting = self._setting
        if not self._is_last:
            return None
        if self.number >= setting.rounds_max:
            said = f"no result after {self.number} requests, {why}; max_rounds allows {setting.rounds_max}"
        else:
            said = f"no result after {self._written} tokens of output, {why}; "
            said += f"max_output_tokens allows {setting.output_max}"
        return replace(Result.fail(said, retryable=False), keeps_calls=True)

    def _use(self, calls: tuple[ToolCall, ...]) -> Move:
        wanted = _signature(calls)
        if wanted in self._warned:
            names = ", ".join(dict.fromkeys(call.name for call in calls))
            return Result.fail(f"the agent repeats the same calls ({names})")
        if len(calls) > CALLS_MAX:
            self._warned.add(wanted)
            return UseTools(calls, refused=TOO_MANY.format(count=len(calls)))
        if not self._is_loop(wanted):
            return UseTools(calls)
        self._warned.add(wanted)
        return UseTools(calls, refused=LOOPING)

    def _is_loop(self, wanted: str) -> bool:
        """Whether the last rounds repeat a pattern, results included, and these calls begin it again."""
        for period, times in PERIODS.items():
            last = self._past[-period * times :]
            is_periodic = len(last) == period * times and all(
                last[at] == last[at - period] for at in range(period, len(last))
            )
            if is_periodic and last[0][0] == wanted:
                return True
        return False

    def _read(self, *, is_cut: bool) -> Move:
        text, schema = "".join(self._texts), self._setting.schema
        try:
            if self._own_read is not None:
                return self._own_read(text)
            if schema is not None:
                return read_structured(text, self._node, schema)
            return read_answer(text, self._node)
        except UnreadableAnswer as unreadable:
            why = CUT_OFF if is_cut and schema is not None else str(unreadable)
            if self._repairs >= self._repairs_max or self._is_last:
                return Result.fail(f"the response cannot be used: {why}")
            self._repairs, self._texts = self._repairs + 1, []
            what = "The end of your answer" if schema is None else "Your answer"
            return Ask(f"{what} cannot be used: {why}. Answer again.")


def _signature(calls: Sequence[ToolCall]) -> str:
    """What a round of calls does, however the model wrote it."""
    return "\0".join(f"{call.name} {_same(call.arguments)}" for call in calls)


def _same(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
