"""Document 000's story through its own paths: a server that is killed, and pages that come back.

The website builder with real processes, its endpoint, git and kills. What is asked for and replied is written
out as a client of document 000 writes and reads it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.cli.shell import Shell, wait_until
from tests.examples.website import NEVER, git, playing, requests, script
from tests.integration.client import Socket, listening, model
from tests.server.serving import Serving, serving

pytestmark = [pytest.mark.slow, pytest.mark.crash]
CHAT = "bakery"
MESSAGE = "Build a website for my bakery"
PLAN = ["research", "design", "frontend", "backend", "styling", "review", "remediate", "summary"]
FEW, MANY = 2_200, 500_000
DESIGN, STYLING = "/design#1/m1", "/fan#1.styling/styling#1/m1"
CUT_OFF = (
    ScriptRule(contains="You are the designer", times=1, reply=NEVER),
    ScriptRule(contains="You are the stylist", times=1, reply=NEVER),
)
"""The answers in the middle of which the server dies."""
RESTARTED = "Server restarted — pipeline interrupted"


def status(server: Serving) -> Any:
    return server.get(f"/agents/status?chatId={CHAT}")


def statuses(server: Serving) -> dict[str, str]:
    return {row["agent_name"]: row["status"] for row in status(server)["executions"]}


def limit(server: Serving, tokens: int) -> None:
    reply = server.ask("PUT", f"/api/limits?scope=chat/{CHAT}", {"measure": "tokens", "value": tokens})
    assert reply.status == 200, reply.body


def said(server: Serving, path: str, **body: Any) -> Any:
    reply = server.ask("POST", path, {"chatId": CHAT, **body})
    return {"http": reply.status, **reply.json}


def wait_for_request(ledger: Path, request: str) -> None:
    wait_until(lambda: any(key.endswith(request) for key in requests(ledger)), request)


def test_the_whole_story_of_pipeline_resume(shell: Shell) -> None:
    """S0-6, S0-10, S0-11, S0-12, S0-13, S0-14, S0-15, S0-16, S0-17, S0-18, S0-20, S0-21, S0-23, S0-24, S0-25,
    S0-26, S0-30, S0-31, S0-32, S0-35, S0-36, S0-40, S0-41, S0-42, S0-43, S0-44, S4-5, B0-3, B0-8, B0-9,
    B0-16.

    A limit stops the pipeline, the server is killed three times, a person chooses a direction. It is one run
    with one plan until it completes, and no answer is paid for twice.
    """
    with playing(shell, script(*CUT_OFF)) as ledger:
        shell.inside("pipelines", "add", "website.dot")
        with serving(shell) as server:
            run = stops_at_the_limit(server)
            continues_once_the_limit_is_raised(server, run)
            wait_for_request(ledger, DESIGN)
            server.kill()
        with serving(shell) as server:
            is_found_after_the_restart(server, run)
            server.kill()
        with serving(shell) as server:
            takes_the_direction_that_is_selected(server, run)
            wait_for_request(ledger, STYLING)
            wait_until(lambda: branches_done(server, run) == {"frontend", "backend"}, "the other branches")
            server.kill()
        with serving(shell) as server:
            is_finished(server, run)
            twice = {key.removeprefix(run) for key, times in requests(ledger).items() if times > 1}
            assert twice == {DESIGN, STYLING}, "only what the kills cut off was asked again"
            assert git(shell, "log", "--format=%s") == f"{MESSAGE}\nBegin"
            assert "index.html" in git(shell, "ls-files"), "what was written before the kill is there"
            assert server.stop().code == 0


def stops_at_the_limit(server: Serving) -> str:
    limit(server, FEW)
    with listening(server, f"?chatId={CHAT}") as page:
        sent = said(server, "/agents/run", message=MESSAGE)
        run: str = sent["pipelineRunId"]
        assert sent == {
            "http": 200,
            "status": "started",
            "chatId": CHAT,
            "pipelineRunId": run,
            "messageId": sent["messageId"],
        }
        interrupted = page.until_type("pipeline_interrupted")
        about = {"chatId": CHAT, "pipelineRunId": run}
        assert page.until_type("pipeline_plan") == {
            "type": "pipeline_plan",
            **about,
            "intent": "build",
            "scope": "full",
            "agents": PLAN,
            "resumed": False,
        }
        page.until_type("agent_status", agentName="research", status="completed", retryCount=0)
        assert page.until_type("agent_error") == {
            "type": "agent_error",
            **about,
            "agentName": "design",
            "errorType": "cost_limit",
            "error": "Token limit reached. Pipeline paused.",
        }
        used = interrupted["tokensUsed"]
        assert interrupted == {
            "type": "pipeline_interrupted",
            **about,
            "reason": "cost_limit",
            "completedAgents": ["research"],
            "skippedAgents": PLAN[1:],
            "tokensUsed": used,
            "tokenLimit": FEW,
        }
        assert used > 0
    shown = status(server)
    assert (shown["running"], shown["interruptedPipelineId"]) == (False, run)
    assert (shown["interruptedReason"], shown["pendingCheckpoint"]) == ("cost_limit", None)
    research, design = shown["executions"]
    assert (research["id"], research["chat_id"], research["status"]) == (
        f"{run}/research#1",
        CHAT,
        "completed",
    )
    assert "audience" in json.loads(research["output"])["content"]
    assert MESSAGE in research["input"]
    assert research["started_at"] <= research["completed_at"]
    assert (design["agent_name"], design["status"], design["completed_at"]) == ("design", "stopped", None)
    refused = said(server, "/agents/run", message="continue", resume=True)
    assert (refused["http"], refused["code"], refused["errorType"]) == (409, "limit_exceeded", "cost_limit")
    assert (refused["chatId"], "raise the limit" in refused["detail"].lower()) == (CHAT, True)
    return run


def continues_once_the_limit_is_raised(server: Serving, run: str) -> None:
    limit(server, MANY)
    sent = said(server, "/agents/run", message="continue", resume=True)
    assert (sent["http"], sent["status"], sent["pipelineRunId"]) == (200, "resumed", run)


def is_found_after_the_restart(server: Serving, run: str) -> None:
    assert f"run {run}: interrupted (Server restarted while workflow was running)" in server.told
    shown = status(server)
    assert (shown["interruptedPipelineId"], shown["interruptedReason"]) == (run, "restart")
    rows = {row["agent_name"]: row for row in shown["executions"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        "research": "completed",
        "design": "failed",
    }
    assert rows["design"]["error"] == RESTARTED
    with listening(server, f"?chatId={CHAT}") as page:
        assert page.until_type("pipeline_interrupted")["reason"] == "restart"
        assert [one["type"] for one in page.told if one["type"] != "agent_stream"] == [
            *("pipeline_plan", "agent_status", "agent_status", "pipeline_interrupted"),
        ], "the page redraws, and nothing says that it was a limit"
        sent = said(server, "/messages/send", message="go on")
        assert (sent["http"], sent["status"], sent["pipelineRunId"]) == (200, "resumed", run)
        assert page.until_type("pipeline_plan", resumed=True)["agents"] == PLAN
        asked = page.until_type("pipeline_checkpoint")["checkpoint"]
    assert (asked["id"], asked["nodeId"], asked["type"]) == ("direction#1", "direction", "design_direction")
    assert [one["name"] for one in asked["options"]][:2] == ["Calm", "Market"]
    assert asked["timeoutMs"] == 600_000


def takes_the_direction_that_is_selected(server: Serving, run: str) -> None:
    assert f"run {run} waits for an answer at direction#1" in server.told
    asked = status(server)["pendingCheckpoint"]
    assert asked["options"][1]["data"]["columns"] == 3
    with listening(server, f"?chatId={CHAT}") as page:
        assert page.until_type("pipeline_checkpoint")["checkpoint"] == asked, "asked again, and no other"
        answer = {"checkpointId": "direction#1", "selectedIndex": 1}
        assert said(server, "/agents/checkpoint", **answer) == {"http": 200, "status": "resolved"}
        assert page.until_type("pipeline_checkpoint_resolved") == {
            "type": "pipeline_checkpoint_resolved",
            "chatId": CHAT,
            "pipelineRunId": run,
            "checkpointId": "direction#1",
            "selectedIndex": 1,
            "timedOut": False,
        }
    assert said(server, "/agents/checkpoint", **answer)["http"] == 404


def branches_done(server: Serving, run: str) -> set[str]:
    steps = server.get(f"/api/runs/{run}/steps")["steps"]
    return {
        step["node"] for step in steps if step["step"].startswith("fan#1.") and step["status"] == "success"
    }


def is_finished(server: Serving, run: str) -> None:
    assert statuses(server)["styling"] == "failed"
    with listening(server, f"?chatId={CHAT}") as page:
        left = page.until_type("pipeline_interrupted")
        assert set(left["completedAgents"]) == {"research", "design", "frontend", "backend"}
        sent = said(server, "/agents/run", resume=True)
        assert (sent["status"], sent["pipelineRunId"]) == ("resumed", run)
        page.until_type("agent_status", agentName="orchestrator", status="completed")
        tells_what_agents_say(page)
    shown = status(server)
    assert (shown["running"], shown["interruptedPipelineId"]) == (False, None)
    assert set(statuses(server)) == set(PLAN)
    assert set(statuses(server).values()) == {"completed"}


def is_said_by_summary(one: Any) -> bool:
    return bool(one["type"] == "agent_stream" and one["agentName"] == "summary" and one["content"].strip())


def tells_what_agents_say(page: Socket) -> None:
    # What is said and how the run stands are two feeds: either may be told first.
    if not any(map(is_said_by_summary, page.told)):
        page.until(is_said_by_summary)
    positions = [one["position"] for one in page.told if "position" in one]
    assert positions == sorted(set(positions)), "nothing is told twice, or out of order"
    spent = page.until_type("token_usage", agentName="summary")
    assert spent["inputTokens"] > 0


SMALL = """digraph small {
  graph [on_message=auto]
  start [shape=Mdiamond]; exit [shape=Msquare]
  plan [prompt="Plan: $user_message"]; code [prompt="Write the code"]
  start -> plan -> code -> exit
}"""
STALLS = ModelScript(
    rules=(ScriptRule(contains="Write the code", times=2, reply=NEVER),), default=ScriptedReply(text="done")
)


def test_a_retry_from_scratch_and_a_dismissal_outlive_the_server(shell: Shell) -> None:
    """B0-1, B0-2, S0-28, S0-42: a dismissed pipeline is not resumed by the next message, on no server."""
    with model(shell, STALLS) as ledger:
        with serving(shell) as server:
            server.add("small", SMALL)
            first = said(server, "/agents/run", message="a shop")["pipelineRunId"]
            wait_for_request(ledger, "/code#1/m1")
            server.kill()
        with serving(shell) as server:
            anew = said(server, "/agents/run", fresh=True)
            second = anew["pipelineRunId"]
            assert (anew["status"], second != first) == ("started", True)
            assert server.get(f"/api/runs/{first}")["reason"] == "superseded"
            assert server.get(f"/api/runs/{second}")["context"]["user_message"] == "a shop"
            wait_until(lambda: f"{second}/code#1/m1" in requests(ledger), "the second request")
            stopped = said(server, "/agents/stop")
            assert stopped == {"http": 200, "status": "stopped", "chatId": CHAT, "pipelineRunId": second}
            server.until(second, "paused")
            assert status(server)["interruptedReason"] == "stopped"
            server.post(f"/api/runs/{second}/dismiss")
            server.kill()
        with serving(shell) as server:
            assert status(server)["interruptedPipelineId"] is None
            third = said(server, "/agents/run", message="something else")
            assert third["status"] == "started"
            server.until(third["pipelineRunId"], "completed")
            assert server.get(f"/api/runs/{second}")["status"] == "paused", "it can be resumed by its name"
