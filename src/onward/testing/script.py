"""What a scripted model answers, in this process or as an endpoint: rules that choose replies.

    {"rules": [{"contains": "plan", "reply": {"text": "1. Look. 2. Leap."}},
               {"nth": 3, "reply": {"status": 429, "retry_after": "2"}}],
     "default": {"text": "Yes."}}

The first rule that fits a request gives the reply; without one, the default does, and without a default the
model repeats what it was told, so that a pipeline of any shape runs. `docs/testing.md` has every field.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from onward.agents import model as llm
from onward.errors import InvalidInput

CHARACTERS_PER_TOKEN = 4
Positive = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
HttpStatus = Annotated[int, msgspec.Meta(ge=200, le=599)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class _Closed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A misspelt word in a script is an error."""


class ScriptedReply(_Closed, frozen=True):
    """An answer, or a fault. `text` None: repeat what was said."""

    text: str | None = None
    reasoning: str = ""
    tool_calls: tuple[llm.ToolCall, ...] = ()
    refusal: str = ""
    continues: bool = False
    """Whether a request that ends with the beginning of `text` gets only the rest of it."""
    finish_reason: llm.FinishReason | None = None
    usage: llm.TokenUsage | None = None
    """None: four characters are a token."""
    counts: bool = True
    """Whether the provider says how many tokens it was."""
    chunk: Positive = CHARACTERS_PER_TOKEN
    """Characters in a piece."""
    first_delay_s: NotNegative = 0
    delay_s: NotNegative = 0
    is_over_ceiling: bool = False
    """Whether the answer ignores `max_tokens`."""
    has_done: bool = True
    """Whether `[DONE]` ends the stream."""
    is_whole_json: bool = False
    """Whether the endpoint answers in one JSON object, as if streaming were unknown to it."""
    status: HttpStatus = 200
    retry_after: str = ""
    body: str | None = None
    """The body of an error; None: one as OpenAI's."""
    content_type: str = "application/json"
    break_after: Count | None = None
    """How many pieces come before `break_with`."""
    break_with: Literal["cut", "stall", "malformed", "error", "html"] = "cut"


class ScriptRule(_Closed, frozen=True):
    """Which requests get the reply: the nth of all, those whose last message contains a text, of a model."""

    reply: ScriptedReply
    nth: Positive | None = None
    contains: str = ""
    remembers: str = ""
    """A text that a message before the last one contains."""
    model: str = ""
    times: Positive | None = None
    """How often it is used; None: without end."""


class ModelScript(_Closed, frozen=True):
    """The whole behaviour of a scripted model."""

    rules: tuple[ScriptRule, ...] = ()
    default: ScriptedReply = ScriptedReply()


class ScriptPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """What of a request decides the reply."""

    model: str
    said: str
    characters: int
    earlier: str = ""
    """The messages before the last one."""
    max_tokens: int | None = None
    prefix: str = ""
    """What the assistant said last, if nobody has said anything since: the beginning of an answer."""


class Playing:
    """A script that is being played; counts the requests."""

    def __init__(self, script: ModelScript) -> None:
        self.script, self.requests = script, 0
        self._used = [0] * len(script.rules)

    def next(self, prompt: ScriptPrompt) -> ScriptedReply:
        """The reply to the next request."""
        self.requests += 1
        for number, rule in enumerate(self.script.rules):
            if self._fits(rule, self._used[number], prompt):
                self._used[number] += 1
                return rule.reply
        return self.script.default

    def _fits(self, rule: ScriptRule, used: int, prompt: ScriptPrompt) -> bool:
        return (
            rule.nth in (None, self.requests)
            and rule.contains in prompt.said
            and rule.remembers in prompt.earlier
            and rule.model in ("", prompt.model)
            and (rule.times is None or used < rule.times)
        )


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """A reply as it is given to one request."""

    pieces: tuple[llm.Streamed, ...]
    """Deltas only."""
    tool_calls: tuple[llm.ToolCall, ...]
    usage: llm.TokenUsage
    finish_reason: llm.FinishReason


def played(reply: ScriptedReply, prompt: ScriptPrompt) -> Played:
    """The pieces of a reply, its usage, and why it ends."""
    text = f"You said: {prompt.said[:200]}" if reply.text is None else reply.text
    if (reply.tool_calls and reply.text is None) or reply.refusal:
        text = ""
    if reply.continues:
        text = text.removeprefix(prompt.prefix)
    finish = llm.FinishReason.TOOL_CALLS if reply.tool_calls else llm.FinishReason.STOP
    finish = llm.FinishReason.REFUSAL if reply.refusal else reply.finish_reason or finish
    most = None if prompt.max_tokens is None else prompt.max_tokens * CHARACTERS_PER_TOKEN
    if most is not None and len(text) > most and not reply.is_over_ceiling:
        text, finish = text[:most], llm.FinishReason.LENGTH
    pieces: list[llm.Streamed] = [llm.ReasoningDelta(piece) for piece in _cut(reply.reasoning, reply.chunk)]
    pieces += [llm.TextDelta(piece) for piece in _cut(text or reply.refusal, reply.chunk)]
    for index, call in enumerate(reply.tool_calls):
        pieces.append(llm.ToolCallDelta(index=index, id=call.id, name=call.name))
        pieces += [
            llm.ToolCallDelta(index=index, arguments=part) for part in _cut(call.arguments, reply.chunk)
        ]
    return Played(
        pieces=tuple(pieces),
        tool_calls=reply.tool_calls,
        usage=reply.usage or _usage(text, reply, prompt),
        finish_reason=finish,
    )


def prompt_of(request: llm.ModelRequest, model: str) -> ScriptPrompt:
    """The same of a request that did not come over the wire."""
    texts = [
        "\n\n".join(part.text for part in message.parts if not isinstance(part, llm.ToolCall))
        for message in request.messages
    ]
    return ScriptPrompt(
        model=model,
        said=texts[-1] if texts else "",
        characters=len(request.system) + sum(map(len, texts)),
        earlier="\n\n".join(texts[:-1]),
        max_tokens=request.max_tokens,
        prefix=texts[-1] if texts and isinstance(request.messages[-1], llm.AssistantMessage) else "",
    )


def read_script(text: str | bytes, *, where: str) -> ModelScript:
    """A script in JSON; InvalidInput says what is wrong with it."""
    try:
        return msgspec.json.decode(text, type=ModelScript)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{where} is not a script for a model: {error}.") from None


def _cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _usage(text: str, reply: ScriptedReply, prompt: ScriptPrompt) -> llm.TokenUsage:
    thought, written = _tokens(len(reply.reasoning)), _tokens(len(text or reply.refusal))
    written += sum(_tokens(len(call.arguments)) for call in reply.tool_calls)
    return llm.TokenUsage(input=_tokens(prompt.characters), output=thought + written, reasoning=thought)


def _tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)
