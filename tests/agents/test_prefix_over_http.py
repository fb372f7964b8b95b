"""Answers that broke off on a real connection, and the rest of them from a server that takes a prefix."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Literal

import pytest

from onward.agents.models import Models
from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.model.chat import Chunk, ChunkKind
from onward.model.run import RunStatus
from onward.model.values import WIRE_FORMATS
from onward.testing.clock import ManualClock, SeededDice
from onward.testing.model_endpoint import ModelEndpoint, serving_model
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.agents.asking import NAME, models_at
from tests.agents.test_agent_messages import said
from tests.world import PATIENCE_S, Process, World, line

WHOLE = "Once upon a time there was a king who had three daughters, and all of them could count."
SOURCE = line("tell", tell=f'on_partial=continue, llm_model="{NAME}"')
REST = ScriptedReply(text=WHOLE, continues=True)


def cut(after: int, how: Literal["cut", "stall"] = "cut") -> ScriptedReply:
    """The answer, or the rest of it, which breaks off after so many pieces; all but the last surely come."""
    return ScriptedReply(text=WHOLE, continues=True, delay_s=0.001, break_after=after, break_with=how)


@asynccontextmanager
async def telling(script: ModelScript, wire: str) -> AsyncIterator[tuple[Models, ModelEndpoint]]:
    """The models of a server that continues answers, and the server."""
    async with serving_model(script) as endpoint:
        models = models_at(endpoint.base_url, format=wire, prefill=True)
        try:
            yield models, endpoint
        finally:
            await models.close()


async def at(world: World, models: Models) -> Process:
    """A process whose agents ask these models; the clock of the network is the machine's."""
    clock = ManualClock()
    agent = AgentHandler(models, read_prices({}), clock, SeededDice(1))
    return await world.process(handlers={"codergen": agent}, clock=clock)


async def until_stored(process: Process) -> None:
    """Wait until some text of the answer is stored."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if any(text for *_, text in await said(process)):
                return
            # On the process's clock: its time passes only while no store is asked anything.
            await process.clock.wait_s(0.1, asyncio.Event())


async def shown(process: Process) -> list[str]:
    """What somebody who reads along sees in the place of the answer, after each chunk of text."""
    texts, seen = dict[str, str](), list[str]()
    for one in await process.store.messages.read("run/run", after=0):
        assert isinstance(one, Chunk)
        if one.kind is ChunkKind.TEXT:
            texts[one.message] = texts.get(one.message, "") + one.text
            seen.append(texts[one.message])
    return seen


@pytest.mark.parametrize("wire", WIRE_FORMATS)
async def test_a_cut_answer_is_continued_from_the_text_that_came_over_the_wire(
    world: World, wire: str
) -> None:
    """S2-20: each request has what is stored, the text is joined once, and no reader sees it get shorter."""
    rules = (ScriptRule(nth=1, reply=cut(4)), ScriptRule(nth=2, reply=cut(3)))
    async with telling(ModelScript(rules=rules, default=REST), wire) as (models, endpoint):
        process = await at(world, models)
        run = await process.start(SOURCE)
        assert (run.status, run.context["last_response"]) == (RunStatus.COMPLETED, WHOLE)
        stored = await said(process)
        assert [(number, state) for _, number, state, _ in stored] == [
            (1, "error"),
            (2, "error"),
            (3, "complete"),
        ]
        texts = [text for *_, text in stored]
        assert texts[-1] == WHOLE
        assert "" < texts[0] < texts[1] < WHOLE, "no connection was cut in the middle: this proves nothing"
        asked = endpoint.ledger.entries
        assert [one.prefix for one in asked] == ["", *(text.rstrip() for text in texts[:-1])]
        assert len({one.idempotency_key for one in asked}) == 3, "the rest is another question"
        seen = [text.rstrip() for text in await shown(process)]
        assert all(later.startswith(sooner) for sooner, later in pairwise(seen))
        assert await process.is_sound()


@pytest.mark.parametrize("wire", WIRE_FORMATS)
async def test_the_rest_is_asked_for_by_the_process_that_comes_after_a_death(world: World, wire: str) -> None:
    """S2-20: what the first process received and stored is not asked for again."""
    script = ModelScript(rules=(ScriptRule(nth=1, reply=cut(6, "stall")),), default=REST)
    async with telling(script, wire) as (models, endpoint):
        first = await at(world, models)
        dying = asyncio.create_task(first.start(SOURCE))
        await until_stored(first)
        await first.die()
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        second = await at(world, models)
        assert (await second.resume()).status is RunStatus.COMPLETED
        (lost, whole), (_, rest) = await said(second), endpoint.ledger.entries
        assert (lost[1:3], whole[1:]) == ((1, "interrupted"), (2, "complete", WHOLE))
        assert rest.prefix == lost[3].rstrip() != ""
        assert await second.is_sound()
