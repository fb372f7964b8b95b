"""A reply is what its type says: every key, every type, and no key besides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
import pytest

from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.errors import NotificationNotFound
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.model.row import NotificationKind
from onward.operations import protocol
from onward.operations.local.operations import LocalOperations
from onward.operations.requests import (
    AddPipeline,
    AddToken,
    AnswerGate,
    CancelRun,
    CheckPipeline,
    DismissRun,
    DrawRun,
    EnablePipeline,
    ForgetEffect,
    ForkRun,
    GetArtifact,
    GetEffect,
    GetPipeline,
    GetRun,
    GetStats,
    GetUsage,
    ListArtifacts,
    ListAudit,
    ListCalls,
    ListChats,
    ListCheckpoints,
    ListGates,
    ListLimits,
    ListMessages,
    ListNotifications,
    ListPipelines,
    ListReceipts,
    ListRuns,
    ListTokens,
    ListWorkers,
    PauseRun,
    PreviewResume,
    ReadEvents,
    ReadMessages,
    ReadPrinted,
    RecoverRuns,
    RemovePipeline,
    Request,
    ResetLimits,
    ResumeRun,
    RetryNotification,
    RevokeToken,
    RunGates,
    SendMessage,
    SetLimit,
    SettleEffect,
    ShowChat,
    ShowRun,
    ShowStep,
    SteerRun,
    SubmitRun,
    SubmitRuns,
)
from onward.replies import access, chats, database, runs, steps
from onward.replies.database import LimitChanged, LimitList, UsageList
from onward.testing.clock import ManualClock, SeededDice
from tests.agents.test_agent_step import NAME, model
from tests.conformance.limits import begun, ended, used, working
from tests.engine.test_resume_doors import crashed
from tests.test_pause import GATED
from tests.world import World, line

SPLIT = """digraph split {
  start [shape=Mdiamond]; exit [shape=Msquare]; f [shape=component]; j [shape=tripleoctagon]
  a [prompt=x]; b [prompt=y, max_retries=1]
  start -> f; f -> a -> j; f -> b -> j; j -> exit
}"""


def check(value: Any, kind: Any) -> None:
    """Compare a reply with its type: conversion refuses what is missing or wrong, and drops what is more."""
    assert msgspec.convert(value, kind) == value


@pytest.mark.parametrize("source", [line("a", "b"), GATED, SPLIT])
async def test_every_reply_about_a_run_is_what_its_type_says(world: World, source: str) -> None:
    process = await world.process()
    await process.start(source)
    operations = LocalOperations(process.engine, process.clock)
    check(await operations.lists.list_runs(ListRuns(completed=True)), runs.RunList)
    check(await operations.lists.list_runs(ListRuns()), runs.RunList)
    check(await operations.look.get_run(GetRun(run="run")), runs.RunState)
    check(await operations.look.show_run(ShowRun(run="run")), steps.RunPage)
    check(await operations.lists.list_gates(ListGates()), runs.GateList)
    check(await operations.lists.run_gates(RunGates(run="run")), list[runs.GateShown])
    for step in (await operations.look.show_run(ShowRun(run="run")))["steps"]:
        check(await operations.look.show_step(ShowStep(run="run", step=step["step"])), steps.StepPage)
    async for checkpoint in operations.look.list_checkpoints(ListCheckpoints(run="run")):
        check(checkpoint, steps.Checkpoint)
    check(await operations.look.draw_run(DrawRun(run="run")), steps.Drawing)


async def test_every_reply_about_a_decision_is_what_its_type_says(world: World) -> None:
    await crashed(world, line("a", "b"))
    process = await world.process()
    operations = LocalOperations(process.engine, process.clock)
    check(await operations.lists.list_workers(ListWorkers()), list[database.WorkerListed])
    check(await operations.look.show_run(ShowRun(run="run")), steps.RunPage)
    preview = await operations.decide.preview_resume(PreviewResume(run="run"))
    check(preview, runs.ResumePreview)
    assert preview["plan"] == [{"does": "run", "what": "a#1", "why": "attempt 1"}]
    check(await operations.look.draw_run(DrawRun(run="run", original=True)), steps.Drawing)
    recovered = await operations.decide.recover_runs(RecoverRuns())
    check(recovered, database.Recovered)
    assert [run["id"] for run in recovered["interrupted"]] == ["run"]
    check(await operations.decide.resume_run(ResumeRun(run="run")), runs.RunWithNotice)
    check(await operations.start.submit_run(SubmitRun(source=line("a"))), runs.Submitted)


async def test_every_reply_about_artifacts_and_effects_is_what_its_type_says(world: World) -> None:
    async def store(step: StepContext) -> None:
        step.artifacts.store("text", "a text", "words")
        step.artifacts.store("bytes", "some bytes", b"\xff")

    process = await world.process(handlers={"codergen": FunctionHandler(store)})
    await process.start(line("a"))
    await process.engine.effect("done", lambda: 1)
    operations = LocalOperations(process.engine, process.clock)
    listed = await operations.look.list_artifacts(ListArtifacts(run="run"))
    check(listed, steps.ArtifactList)
    contents = []
    for one in listed["artifacts"]:
        found = await operations.look.get_artifact(GetArtifact(run="run", id=one["id"]))
        check(found, steps.ArtifactContent)
        contents.append(found.get("content", found.get("content_base64")))
    assert contents == ["/w==", "words"]
    for key in ("done", "never"):
        check(await operations.effects.get_effect(GetEffect(key=key)), steps.EffectShown)
    check(await operations.effects.forget_effect(ForgetEffect(key="done")), steps.EffectShown)


async def test_every_reply_about_limits_is_what_its_type_says(world: World) -> None:
    process = await world.process()
    run = await begun(process.store, await working(process.store, "run"), "chat/c", "run/run")
    await ended(process.store, run, usage=used(60), cost_micro=6)
    limits = LocalOperations(process.engine, process.clock).limits
    changed = await limits.set_limit(SetLimit(scope="run/run", measure="tokens", value=70))
    check(changed, LimitChanged)
    listed = await limits.list_limits(ListLimits())
    check(listed, LimitList)
    assert [one["scope"] for one in listed["scopes"]] == ["chat", "run", "chat/c", "run/run"]
    check(await limits.reset_limits(ResetLimits(scope="chat")), LimitChanged)
    found = await limits.get_usage(GetUsage(by="chat"))
    check(found, UsageList)
    assert [(one["what"], one["tokens"]) for one in found["usage"]] == [("c", 60)]


async def test_every_reply_about_notifications_is_what_its_type_says(world: World) -> None:
    process = await world.process()
    operations = LocalOperations(process.engine, process.clock)
    await process.store.outbox.subscribe("notify", tuple(NotificationKind), for_us=10**9)
    await process.start(line("a"))
    listed = await operations.notifications.list_notifications(ListNotifications(run="run", limit=1))
    check(listed, database.NotificationList)
    assert listed["cursor"] is not None
    more = await operations.notifications.list_notifications(ListNotifications(cursor=listed["cursor"]))
    assert more["notifications"] == []
    (one,) = listed["notifications"]
    retried = await operations.notifications.retry_notification(RetryNotification(id=one["id"]))
    check(retried, database.NotificationList)
    with pytest.raises(NotificationNotFound, match="there is no notification 'nothing'"):
        await operations.notifications.retry_notification(RetryNotification(id="nothing"))


class Method(NamedTuple):
    """One method of the protocol: where it is, what it takes, and what it replies, or what each item is."""

    group: str
    name: str
    request: Any
    reply: Any
    is_stream: bool


def methods() -> list[Method]:
    """Every method of every group."""
    found = []
    for group, accessor in vars(protocol.Operations).items():
        if isinstance(accessor, property):
            for name, method in vars(get_type_hints(accessor.fget)["return"]).items():
                if not name.startswith("_"):
                    hints = get_type_hints(method)
                    reply = hints["return"]
                    is_stream = get_origin(reply) in (AsyncGenerator, AsyncIterator)
                    item = get_args(reply)[0] if is_stream else reply
                    found.append(Method(group, name, hints["request"], item, is_stream))
    return found


def test_every_request_and_every_reply_has_a_json_schema() -> None:
    """What a server describes itself with: all of them together, each object once."""
    every = methods()
    assert len(every) >= 45
    assert all(msgspec.json.schema_components([one.request for one in every])[0])
    schemas, components = msgspec.json.schema_components([one.reply for one in every])
    assert all(schemas)
    assert all(one["type"] == "object" and one["description"] for one in components.values())
    # Of two with the same name, both would be called by their modules.
    assert [name for name in components if not name.isidentifier()] == []
    shared = {**vars(access), **vars(chats), **vars(database), **vars(runs), **vars(steps)}
    assert [name for name in components if name not in shared] == [], "a shape outside replies/"


async def answer(operations: LocalOperations, request: Request) -> list[Any]:
    """What every method answers that takes this request; each reply is of its type."""
    replies = []
    for one in methods():
        if one.request is type(request):
            reply = getattr(getattr(operations, one.group), one.name)(request)
            found = [item async for item in reply] if one.is_stream else [await reply]
            for value in found:
                check(value, one.reply)
            replies += found
    return replies


ASKED: Sequence[Request] = (
    CheckPipeline(source=line("a")),
    CheckPipeline(source="digraph {"),
    AddPipeline(source=line("a"), name="one"),
    EnablePipeline(name="one", version=1),
    GetPipeline(name="one"),
    ListPipelines(),
    SubmitRun(source=line("a"), run_id="queued", tags=("tagged",)),
    SubmitRuns(runs=(SubmitRun(pipeline="one", run_id="first"), SubmitRun(pipeline="one", run_id="second"))),
    ListRuns(completed=True),
    GetStats(),
    ListWorkers(),
    GetRun(run="asks"),
    ShowRun(run="done"),
    ShowStep(run="done", step="keep"),
    ShowStep(run="done", step="say"),
    ReadEvents(run="done"),
    ReadEvents(run="done", dialect=True),
    ListCheckpoints(run="done"),
    ListArtifacts(run="done"),
    GetArtifact(run="done", id="text"),
    GetArtifact(run="done", id="bytes"),
    ListReceipts(run="done"),
    ReadPrinted(run="done"),
    ListCalls(run="done"),
    DrawRun(run="done"),
    ListMessages(of="done"),
    ReadMessages(of="done"),
    GetUsage(by="model"),
    SetLimit(scope="run/done", measure="tokens", value=70),
    ListLimits(),
    ResetLimits(scope="run/done"),
    ListGates(),
    RunGates(run="asks"),
    AnswerGate(run="asks", choice="yes"),
    ForkRun(run="done", checkpoint=1, run_id="fork"),
    ShowRun(run="done"),
    SteerRun(run="queued", text="quickly"),
    PauseRun(run="queued"),
    PreviewResume(run="queued"),
    ResumeRun(run="queued"),
    PauseRun(run="first"),
    DismissRun(run="first"),
    CancelRun(run="first"),
    RecoverRuns(),
    SendMessage(chat="talk", text="hello", pipeline="one"),
    ListChats(),
    ShowChat(chat="talk"),
    RemovePipeline(name="one"),
    GetEffect(key="never"),
    GetEffect(key="doubt"),
    SettleEffect(key="doubt", text="done"),
    GetEffect(key="doubt"),
    ForgetEffect(key="doubt"),
    ListNotifications(),
    AddToken(name="ci", roles=("operator",)),
    ListTokens(),
    RevokeToken(id="ci"),
    ListAudit(),
)


async def test_every_operation_replies_what_its_type_says(world: World) -> None:
    async def store(step: StepContext) -> None:
        step.artifacts.store("text", "a text", "words")
        step.artifacts.store("bytes", "some bytes", b"\xff")

    async def cancelled() -> None:
        raise asyncio.CancelledError

    prices = read_prices({NAME: {"input": 1, "output": 2}})
    agent = AgentHandler(model(), prices, ManualClock(), SeededDice(1))
    process = await world.process(handlers={"codergen": agent, "keep": FunctionHandler(store)})
    await process.store.outbox.subscribe("notify", tuple(NotificationKind), for_us=10**9)
    await process.start(line("keep", "say", keep="type=keep"), "done")
    await process.start(GATED, "asks")
    with pytest.raises(asyncio.CancelledError):
        await process.engine.effect("doubt", cancelled)
    operations = LocalOperations(process.engine, process.clock)
    for request in ASKED:
        assert await answer(operations, request), request
    told = (await operations.notifications.list_notifications(ListNotifications()))["notifications"]
    retried = RetryNotification(id=told[0]["id"])
    assert await answer(operations, retried)
    assert {type(one) for one in (*ASKED, retried)} == {one.request for one in methods()}
