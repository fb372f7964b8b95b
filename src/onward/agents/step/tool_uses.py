"""Uses the tools that an answer asks for. Each use is a recorded call, and is never made twice.

m3 ──► m3.t1.ask  may it be used, with exactly these arguments?   only where a tool needs approval
   └─► m3.t1      the use, and what came of it

The arguments are read from what the model wrote, so that people who approve a use see exactly what is used.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from blake3 import blake3

from onward import errors
from onward.agents.model import ToolCall, ToolResult
from onward.agents.tools.port import ToolAnswer, ToolRefused, ToolUse
from onward.agents.tools.toolbox import OfferedTool
from onward.handlers.calls import CallAnswer, CallOptions, StepQuestion, step_question
from onward.handlers.port import StepContext
from onward.model.call import CallKind
from onward.model.context import check_value, plain_text
from onward.model.gate import Decision
from onward.redact.redactor import Redactor

ABOUT_CHARACTERS = 500
NAME_CHARACTERS = 100
WHOLE_BYTES_MAX = 8 * 1024 * 1024
NOT_MINE = (errors.LeaseLost, errors.LimitReached, errors.Refused, errors.StaleHistory, errors.StoreError)
"""What a tool raises and does not answer for: the attempt or the store is in trouble."""
UNKNOWN = "Nobody knows whether this was done: its process ended in the middle of it."


class OneUse(msgspec.Struct, frozen=True):
    """One use that can be made: which call of the answer, of which tool, with which arguments."""

    step: StepContext
    call: ToolCall
    key: str
    offered: OfferedTool
    arguments: dict[str, Any]
    shown: str = ""
    """The arguments as a person sees them who must allow the use."""

    @property
    def about(self) -> str:
        """The arguments in one line."""
        return json.dumps(self.arguments, ensure_ascii=False)

    def question(self) -> StepQuestion:
        """What a person is asked before the tool is used; another use is another question."""
        return step_question(
            self.key,
            f"May {self.step.node.id} use {self.call.name}?",
            choices=None,
            type=None,
            default="",
            on_timeout="none",
            about=self.shown,
            timeout_s=None,
            remind_s=None,
            metadata={"tool": self.call.name},
            is_shown_whole=True,
        )

    def options(self) -> CallOptions:
        """How the use is recorded."""
        about = self.about
        if len(about) > ABOUT_CHARACTERS:
            about = f"{about[:ABOUT_CHARACTERS]}… ({len(about):,} characters)"
        rules = self.offered.rules
        return CallOptions(
            type=CallKind.TOOL.value, name=self.call.name, repeatable=rules.repeatable, about=about
        )

    async def run(self) -> CallAnswer:
        """Use the tool. An error is an answer, too, so that the model sees it and the use is not repeated."""
        step, rules = self.step, self.offered.rules
        use = ToolUse(step, self.arguments, step.recorder.key_of(self.key), rules)
        try:
            answer = await self.offered.tool.run(use)
        except NOT_MINE:
            raise
        except ToolRefused as refused:
            answer = ToolAnswer(errors.said(refused), is_error=True)
        except errors.CallTimedOut as late:
            if late.is_running or not rules.repeatable:
                raise  # nobody knows how far it came
            answer = ToolAnswer(str(late), is_error=True)
        except Exception as error:
            answer = ToolAnswer(errors.told(error), is_error=True)
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise  # the attempt ends
            answer = ToolAnswer("The tool cancelled itself.", is_error=True)
        return _recorded(answer, step, rules.output_characters)


class ToolUses:
    """Uses the tools of one attempt; `offered` are those that its node allows, by name."""

    def __init__(self, step: StepContext, offered: Mapping[str, OfferedTool]) -> None:
        self._step, self._offered = step, offered
        self._whole: dict[str, str] = {}

    async def use(self, calls: Sequence[ToolCall], number: int) -> tuple[ToolResult, ...]:
        """What came of the calls of answer `number`, in their order. One that cannot be made is an error.

        Nothing is done before every approval that they need is decided. Those that may, run at the same time.
        """
        wanted = [
            _checked(self._step, self._offered, call, f"m{number}.t{position}")
            for position, call in enumerate(calls, start=1)
        ]
        refused = await _not_approved(one for one in wanted if isinstance(one, OneUse))
        results = [_unused(one, refused) for one in wanted]
        for group in _groups(wanted, refused):
            for (at, use), value in zip(group, await _together([use for _, use in group]), strict=True):
                results[at] = result_of(use.call, value, self._left() if value is None else "")
                if isinstance(value, Mapping) and "whole" in value:
                    self._whole[use.key] = value["whole"]
        return tuple(result for result in results if result is not None)

    def _left(self) -> str:
        """What an attempt that was cut off left, if a person said to continue with it."""
        left = self._step.left
        return "" if left is None or left.directory is None else left.summary()

    async def keep_outputs(self) -> None:
        """Make the whole answers that the model saw only a part of artifacts of the run."""
        for key, hash in self._whole.items():
            content = await self._step.recorder.content(hash)
            id = f"{self._step.step}/{key}"
            if content is None:
                self._step.log(f"the complete answer of {key} is missing")
                continue
            try:
                self._step.artifacts.store(id, f"{key}.txt", content.decode("utf-8", "replace"))
            except errors.InvalidInput as full:
                self._step.log(f"the complete answer of {key} is not an artifact: {full}")


def refuse(calls: Sequence[ToolCall], why: str) -> tuple[ToolResult, ...]:
    """The answers to calls of which none is made."""
    return tuple(_error(call, why) for call in calls)


def result_of(call: ToolCall, value: Any, left: str = "") -> ToolResult:
    """What the model sees of a recorded answer; of one that a person gave, what that person said.

    `left` is what the attempt left whose process ended in the middle of the use.
    """
    if isinstance(value, Mapping) and isinstance(value.get("text"), str):
        return ToolResult(call.id, value["text"], bool(value.get("is_error")))
    if value is None:
        unknown = f"{UNKNOWN} A person decided to continue."
        return ToolResult(call.id, "\n".join(filter(None, (unknown, left))), is_error=True)
    return ToolResult(call.id, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _checked(
    step: StepContext, offered: Mapping[str, OfferedTool], call: ToolCall, key: str
) -> OneUse | ToolResult:
    """The use that a call means, or what is wrong with it."""
    tool = offered.get(call.name)
    if tool is None:
        there = ", ".join(offered) or "none"
        return _error(call, f"There is no tool {call.name[:NAME_CHARACTERS]!r}. Tools: {there}.")
    try:
        arguments = read_arguments(call.arguments, step.redactor)
        if problems := tool.problems(arguments):
            return _error(call, f"The arguments do not fit: {'; '.join(problems)}.")
        shown = shown_to_people(arguments, step.redactor) if tool.rules.approval else ""
    except BadArguments as unusable:
        return _error(call, str(unusable))
    return OneUse(step, call, key, tool, arguments, shown)


async def _not_approved(uses: Iterable[OneUse]) -> dict[str, Decision]:
    """The uses, by key, that a person did not allow. Until every one is decided, the attempt is held."""
    asking = [use for use in uses if use.offered.rules.approval]
    # All at once, so that people see every question, and the run waits once.
    decisions = await asyncio.gather(
        *(use.step.recorder.ask(f"{use.key}.ask", use.question()) for use in asking)
    )
    return {use.key: decision for use, decision in zip(asking, decisions, strict=True) if decision.rejected}


def _groups(
    wanted: Sequence[OneUse | ToolResult], refused: Mapping[str, Decision]
) -> Iterator[list[tuple[int, OneUse]]]:
    """The uses that are made, with their places, in groups that may run at the same time."""
    group: list[tuple[int, OneUse]] = []
    for at, one in enumerate(wanted):
        if isinstance(one, ToolResult) or one.key in refused:
            continue
        is_alone = not one.offered.rules.is_concurrent
        if is_alone and group:
            yield group
            group = []
        group.append((at, one))
        if is_alone:
            yield group
            group = []
    if group:
        yield group


async def _together(uses: Sequence[OneUse]) -> list[Any]:
    """What these uses recorded, made at the same time. If one fails for good, the others are ended."""
    tasks = [asyncio.create_task(use.step.recorder.call(use.key, use.run, (), use.options())) for use in uses]
    try:
        return await asyncio.gather(*tasks)
    except (Exception, asyncio.CancelledError):
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _unused(one: OneUse | ToolResult, refused: Mapping[str, Decision]) -> ToolResult | None:
    """The answer to a call that is not made: it is wrong, or a person said no. None if it is made."""
    if isinstance(one, ToolResult):
        return one
    decision = refused.get(one.key)
    if decision is None:
        return None
    said = f" They said: {decision.text}" if decision.text else ""
    return _error(one.call, f"A person did not allow this.{said}")


def _error(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, text, is_error=True)


def _recorded(answer: object, step: StepContext, most: int) -> CallAnswer:
    """What is stored of an answer: what the model sees, and the whole if that is more."""
    # What cannot be stored, such as a lone surrogate, is no reason to use the tool again.
    if not isinstance(answer, ToolAnswer) or not isinstance(answer.text, str):
        answer = ToolAnswer("The tool succeeded, but its result is not text.")
    text = step.redactor.redact(plain_text(answer.text, "the result of a tool"))
    value: dict[str, Any] = {"text": text}
    if answer.is_error:
        value["is_error"] = True
    if len(text) <= most:
        return CallAnswer(value)
    whole = text.encode("utf-8", "surrogatepass")[:WHOLE_BYTES_MAX]
    value["whole"] = hash = blake3(whole).hexdigest()
    value["text"] = shortened(text, most)
    return CallAnswer(value, nodes={hash: whole})


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a text that is longer than a model gets to see."""
    head, tail = text[: most * 2 // 3], text[len(text) - most // 3 :]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[… {left_out:,} characters left out …]\n{tail}"


ARGUMENT_LENGTH_MAX = 8 * 1024 * 1024
APPROVED_CHARACTERS_MAX = 50_000
"""Somebody must read the arguments of a use that needs approval."""


class BadArguments(ValueError):
    """A tool cannot be used with these arguments; the text says why, for the model to correct."""


def read_arguments(written: str, redactor: Redactor) -> dict[str, Any]:
    """The arguments without secrets, also if the model wrote one with escapes.

    What is read here is shown, recorded and used: there is no other form of it.
    """
    if len(written) > ARGUMENT_LENGTH_MAX:
        raise BadArguments(
            f"The arguments have {len(written):,} characters; at most {ARGUMENT_LENGTH_MAX:,} are allowed. "
            "Do it in smaller parts."
        )
    try:
        arguments = json.loads(written or "{}")
    except (ValueError, RecursionError) as error:
        raise BadArguments(
            f"The arguments are not JSON: {error}. Write one whole JSON object; if your answer was cut off, "
            "do it in smaller parts."
        ) from None
    if not isinstance(arguments, dict):
        raise BadArguments("The arguments are not a JSON object.")
    try:
        check_value(arguments, "the value")
    except errors.InvalidInput as error:
        raise BadArguments(f"The arguments do not fit: {error}") from None
    return redactor.redact_value(arguments)  # type: ignore[no-any-return]


def shown_to_people(arguments: dict[str, Any], redactor: Redactor) -> str:
    """The arguments as a person reads them before a use. Unusable: nobody could see all of them."""
    shown = _visible(json.dumps(arguments, ensure_ascii=False, indent=2))
    if len(shown) > APPROVED_CHARACTERS_MAX:
        raise BadArguments(
            f"A person must read the arguments before this is allowed, and they have {len(shown):,} "
            f"characters; use at most {APPROVED_CHARACTERS_MAX:,}."
        )
    if redactor.redact(shown) != shown:
        raise BadArguments(
            "A person must read the arguments before this is allowed, and a part of them looks like a "
            "secret, which nobody is shown. Leave it out."
        )
    return shown


def _visible(text: str) -> str:
    """JSON text in which what a screen would not show, or show in another order, is escaped."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(one if one == "\n" or one.isprintable() else json.dumps(one)[1:-1] for one in text)
