"""What the agents of a killed run are asked, what the endpoint answers, and how it misbehaves."""

from __future__ import annotations

import json
import random

from msgspec.structs import replace

from onward.agents.model import ToolCall
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.crash.agents.tools import ECHO, LOOK, NOTE, NOTED, PAY, SAID, WRITE

STEPS = ("plan", "left", "right", "last")
TOOLS = "tools"
WORDS = 60
REQUESTS = 9
"""Among how many of the first requests the faults are."""
PIPELINE = """digraph talk {
  start [shape=Mdiamond]; exit [shape=Msquare]
  plan [prompt="Now write the plan.", max_retries=6]
  fan [shape=component]; join [shape=tripleoctagon]
  left [prompt="Now write the left.", max_retries=6, max_tokens=16]
  right [prompt="Now write the right.", max_retries=6]
  tools [prompt="Now use the tools.", max_retries=6, allowed_tools="look,write,pay,files__echo"]
  last [prompt="Now write the last.", max_retries=6]
  start -> plan -> fan
  fan -> left -> join
  fan -> right -> join
  join -> tools -> last -> exit
}"""
FAULTS = {
    "429 with a time": ScriptedReply(status=429, retry_after="2"),
    "429": ScriptedReply(status=429),
    "500": ScriptedReply(status=500),
    "503": ScriptedReply(status=503),
    "cut": ScriptedReply(text="?", break_after=20, break_with="cut"),
    "stall": ScriptedReply(text="?", break_after=20, break_with="stall"),
    "malformed": ScriptedReply(text="?", break_after=20, break_with="malformed"),
    "slow": ScriptedReply(text="?", first_delay_s=0.3),
}
"""Where the text is `?`, it is that of the step, or its beginning."""


def text_of(step: str) -> str:
    """The whole answer to a step: longer than the ceiling that `left` sets."""
    return "".join(f"{step}-{number}; " for number in range(WORDS))


def script(dice: random.Random) -> tuple[ModelScript, list[str]]:
    """Answers to all steps, a few of the first requests with a fault; and which faults those are."""
    chosen = {nth: dice.choice([*FAULTS]) for nth in dice.sample(range(1, REQUESTS), k=3)}
    rules = [
        ScriptRule(nth=nth, contains=_asked(step), reply=_reply(FAULTS[fault], step))
        for nth, fault in chosen.items()
        for step in STEPS
    ]
    rules += [
        ScriptRule(contains=_asked(step), reply=_reply(ScriptedReply(text="?"), step)) for step in STEPS
    ]
    note = json.dumps({"path": NOTE, "content": NOTED})
    calls = (ToolCall("a", LOOK, "{}"), ToolCall("w", WRITE, note), ToolCall("b", PAY, '{"amount": 7}'))
    echo = (ToolCall("c", ECHO, '{"text": "note"}'),)
    rules += [
        ScriptRule(contains="Now use the tools.", reply=ScriptedReply(tool_calls=echo)),
        ScriptRule(contains=SAID[ECHO], reply=ScriptedReply(tool_calls=calls)),
        ScriptRule(contains="This step failed", reply=ScriptedReply(tool_calls=calls)),
        ScriptRule(contains=SAID[PAY], reply=_reply(ScriptedReply(text="?"), TOOLS)),
    ]
    return ModelScript(rules=tuple(rules)), [*chosen.values()]


def _asked(step: str) -> str:
    return f"Now write the {step}."


def _reply(reply: ScriptedReply, step: str) -> ScriptedReply:
    if reply.status != 200:
        return reply
    return replace(
        reply, text=text_of(step), reasoning="Hm. " * 5, chunk=6, delay_s=0.001, is_over_ceiling=True
    )
