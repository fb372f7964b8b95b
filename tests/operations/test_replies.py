"""A reply is what its type says: every key, every type, and no key besides."""

from __future__ import annotations

import types
import typing
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from onward.errors import NotificationNotFound
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.model.row import NotificationKind
from onward.operations import protocol
from onward.operations.local.operations import LocalOperations
from onward.operations.replies import database, runs, steps
from onward.operations.replies.database import LimitChanged, LimitList, UsageList
from onward.operations.requests import (
    DrawRun,
    ForgetEffect,
    GetArtifact,
    GetEffect,
    GetRun,
    GetUsage,
    ListArtifacts,
    ListCheckpoints,
    ListGates,
    ListLimits,
    ListNotifications,
    ListRuns,
    ListWorkers,
    PreviewResume,
    RecoverRuns,
    ResetLimits,
    ResumeRun,
    RetryNotification,
    RunGates,
    SetLimit,
    ShowRun,
    ShowStep,
    SubmitRun,
)
from tests.conformance.limits import begun, ended, used, working
from tests.engine.test_resume_doors import crashed
from tests.test_pause import GATED
from tests.world import World, line

SPLIT = """digraph split {
  start [shape=Mdiamond]; exit [shape=Msquare]; f [shape=component]; j [shape=tripleoctagon]
  a [prompt=x]; b [prompt=y, max_retries=1]
  start -> f; f -> a -> j; f -> b -> j; j -> exit
}"""


def check(value: Any, kind: Any, at: str = "reply") -> None:
    """Compare a reply with its type, key by key."""
    if get_origin(kind) is types.UnionType:
        (kind,) = [one for one in get_args(kind) if one is not type(None)] if value is not None else [None]
    if typing.is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        assert value.keys() <= hints.keys(), at
        for key, hint in hints.items():
            if get_origin(hint) is not typing.NotRequired:
                check(value[key], hint, f"{at}.{key}")
            elif key in value:
                check(value[key], get_args(hint)[0], f"{at}.{key}")
    elif get_origin(kind) is list:
        for number, one in enumerate(value):
            check(one, get_args(kind)[0], f"{at}[{number}]")
    else:
        msgspec.convert(value, kind)


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
    check(await operations.decide.resume_run(ResumeRun(run="run")), runs.Resumed)
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
    assert [one["scope"] for one in listed["scopes"]] == ["chat", "chat/c", "run/run"]
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


def test_every_request_and_every_reply_can_be_described() -> None:
    """What a page about them is made from: a schema for each method's request and reply."""
    described = 0
    groups = (
        protocol.ListOperations,
        protocol.LookOperations,
        protocol.DecideOperations,
        protocol.EffectOperations,
        protocol.StartOperations,
    )
    for group in (*groups, protocol.NotificationOperations):
        for name, method in vars(group).items():
            if not name.startswith("_"):
                hints = get_type_hints(method)
                for hint in (hints["request"], *(get_args(hints["return"]) or (hints["return"],))):
                    described += bool(msgspec.json.schema(hint))
    assert described >= 50
