"""The scripted model and the client of a real endpoint say the same, piece by piece, for every script."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onward.agents.model import (
    AssistantMessage,
    FinishReason,
    ModelRequest,
    Streamed,
    Text,
    TokenUsage,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolMessage,
    ToolResult,
    user,
)
from onward.model.values import WIRE_FORMATS
from onward.testing.clock import ManualClock
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from onward.testing.scripted_model import ScriptedModel
from tests.agents.asking import NAME, at_endpoint, pieces_of, request

pytestmark = pytest.mark.anyio
CALLS = (ToolCall("call_a", "look", '{"at": "the sky"}'), ToolCall("call_b", "leap"))
REPLIES = {
    "an echo": ScriptedReply(),
    "small pieces": ScriptedReply(text="One two three", chunk=1),
    "reasoning": ScriptedReply(text="42", reasoning="six times seven", chunk=5),
    "tool calls": ScriptedReply(tool_calls=CALLS, chunk=3),
    "text and tool calls": ScriptedReply(text="Let me see.", tool_calls=CALLS),
    "a refusal": ScriptedReply(refusal="No."),
    "a filter": ScriptedReply(text="It is", finish_reason=FinishReason.REFUSAL),
    "another reason": ScriptedReply(text="It is", finish_reason=FinishReason.OTHER),
    "its own usage": ScriptedReply(
        text="Hi", usage=TokenUsage(input=10, output=20, cached_input=5, reasoning=3)
    ),
    "no usage": ScriptedReply(text="Hello you", counts=False),
    "no usage of tool calls": ScriptedReply(tool_calls=CALLS, reasoning="hm", counts=False),
    "no DONE": ScriptedReply(text="Hi", has_done=False),
    "over the ceiling": ScriptedReply(text="x" * 100, is_over_ceiling=True),
    "at the ceiling": ScriptedReply(text="x" * 100),
    "the rest": ScriptedReply(text="I look at the sky.", continues=True),
    "nothing": ScriptedReply(text=""),
    "only thoughts": ScriptedReply(text="", reasoning="hm"),
    "401": ScriptedReply(status=401),
    "429": ScriptedReply(status=429, retry_after="3"),
    "429 without a time": ScriptedReply(status=429),
    "500": ScriptedReply(status=500),
    "503": ScriptedReply(status=503, retry_after="1"),
    "no credit": ScriptedReply(status=429, body='{"error":{"code":"insufficient_quota","message":"pay"}}'),
    "a page instead of an error": ScriptedReply(
        status=502, body="<title>No</title>", content_type="text/html"
    ),
    "a page": ScriptedReply(break_after=0, break_with="html"),
    "malformed at once": ScriptedReply(break_after=0, break_with="malformed"),
    "malformed": ScriptedReply(text="abcdefgh", chunk=2, break_after=2, break_with="malformed"),
    "an error inside": ScriptedReply(text="abcdefgh", chunk=2, break_after=2, break_with="error"),
}
ASKED = {
    "a question": request("What is the answer?", max_tokens=10),
    "a beginning": request(messages=(user("What do you do?"), AssistantMessage((Text("I look"),)))),
    "a conversation": ModelRequest(
        model=NAME,
        system="Be brief.",
        messages=(
            user("Look."),
            AssistantMessage((Text("I look."), CALLS[0])),
            ToolMessage((ToolResult("call_a", "clouds"),)),
        ),
        tools=(Tool("look", "Looks.", {"type": "object"}),),
        temperature=0.0,
        stop=("END",),
    ),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
@pytest.mark.parametrize("wire", WIRE_FORMATS)
async def test_both_give_the_same_pieces_and_failures(
    reply: ScriptedReply, asked: ModelRequest, wire: str
) -> None:
    script, clock = ModelScript(default=reply), ManualClock(autojump=False)
    async with at_endpoint(script, clock=clock, format=wire) as (models, _):
        told, failure = await pieces_of(models, asked)
    scripted = await pieces_of(ScriptedModel(script, clock=clock), asked)
    if wire == "google":  # its tool calls come whole
        told, scripted = _joined(told), (_joined(scripted[0]), scripted[1])
    assert (told, failure) == scripted


def _joined(pieces: list[Streamed]) -> list[Streamed]:
    """With the pieces of each tool call in one."""
    joined: list[Streamed] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if isinstance(piece, ToolCallDelta) and isinstance(last, ToolCallDelta) and piece.index == last.index:
            joined[-1] = replace(last, arguments=last.arguments + piece.arguments)
        else:
            joined.append(piece)
    return joined


@pytest.mark.parametrize("wire", WIRE_FORMATS)
async def test_a_cut_stream_fails_alike(wire: str) -> None:
    """How much comes before the cut depends on the network; how it is told does not."""
    script, clock = (
        ModelScript(default=ScriptedReply(text="abcdef", break_after=1)),
        ManualClock(autojump=False),
    )
    async with at_endpoint(script, clock=clock, format=wire) as (models, _):
        _, failure = await pieces_of(models)
    assert failure == (await pieces_of(ScriptedModel(script, clock=clock)))[1]


async def test_both_choose_the_same_replies() -> None:
    script = ModelScript(
        rules=(
            ScriptRule(nth=2, reply=ScriptedReply(text="second")),
            ScriptRule(contains="plan", reply=ScriptedReply(text="a plan"), times=1),
            ScriptRule(model="large", reply=ScriptedReply(text="large")),
        )
    )
    asked = [request("a plan"), request(), request("a plan"), request(model="acme:large"), request()]
    clock = ManualClock()
    scripted = ScriptedModel(script, clock=clock)
    async with at_endpoint(script, clock=clock) as (models, _):
        for one in asked:
            assert await pieces_of(models, one) == await pieces_of(scripted, one)
    assert [received.request for received in scripted.received] == asked


async def test_the_delays_of_a_scripted_model_pass_on_its_clock() -> None:
    clock = ManualClock()
    script = ModelScript(default=ScriptedReply(text="abcdef", chunk=2, first_delay_s=10, delay_s=5))
    await pieces_of(ScriptedModel(script, clock=clock))
    assert clock.awake_s() == 20


async def test_a_stalled_scripted_model_fails_when_its_time_is_over() -> None:
    clock = ManualClock()
    script = ModelScript(default=ScriptedReply(text="abcdef", break_after=1, break_with="stall"))
    came, failure = await pieces_of(ScriptedModel(script, clock=clock))
    assert len(came) == 1
    assert failure is not None
    assert "sent nothing for 120 s" in failure.message
    assert clock.awake_s() == 120
