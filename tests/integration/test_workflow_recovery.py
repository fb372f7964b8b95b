"""Document 004's integration tests, by their own names: a server is killed, and the next one recovers.

Everything is real: servers as processes, the database, the sockets. Only the model is a script, at the other
end of HTTP.
"""

from __future__ import annotations

from typing import Any

import pytest

from onward.testing.model_endpoint import read_ledger
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.cli.shell import Shell, wait_until
from tests.integration.client import listening, model
from tests.server.serving import Serving, serving

pytestmark = [pytest.mark.slow, pytest.mark.crash]
RESTARTED = "Server restarted while workflow was running"
NEVER = ScriptedReply(text="This never comes to its end.", break_after=2, break_with="stall")
SCRIPT = ModelScript(
    rules=(ScriptRule(contains="Write the code", times=2, reply=NEVER),),
    default=ScriptedReply(text="done"),
)
BUILD = """digraph build {
  start [shape=Mdiamond]; exit [shape=Msquare]
  plan [prompt="Plan it"]; code [prompt="Write the code"]; check [prompt="Check it"]
  start -> plan -> code -> check -> exit
}"""
SHIP = """digraph ship {
  start [shape=Mdiamond]; exit [shape=Msquare]; ask [shape=hexagon, label="Ship it?"]; note [prompt="Note it"]
  start -> ask -> note -> exit [label="[Y] Yes"]
}"""
LATER_US = 4_000_000_000_000_000


def interrupted(server: Serving, ledger: Any) -> None:
    """Two workflows in the middle of a step, one that waits for approval, one that is not due."""
    server.add("build", BUILD)
    server.add("ship", SHIP)
    for id in ("wf-0", "wf-1"):
        server.post("/api/runs", {"pipeline": "build", "run_id": id})
    server.post("/api/runs", {"pipeline": "ship", "run_id": "wf-gate"})
    server.post("/api/runs", {"pipeline": "build", "run_id": "wf-later", "wake_at_us": LATER_US})
    server.until("wf-gate", "waiting")
    wait_until(lambda: len(asked(ledger, "/code#1/m1")) == 2, "both requests for code")


def asked(ledger: Any, request: str) -> list[str]:
    """The requests to the model for this call, by the run that made them."""
    keys = [entry.idempotency_key for entry in read_ledger(str(ledger))]
    return [key.partition("/")[0] for key in keys if key.endswith(request)]


def workflow(server: Serving, id: str) -> Any:
    return server.get(f"/api/workflows/{id}")


def test_recovery_on_startup(shell: Shell) -> None:
    """S4-1, S4-2, S4-3, S4-6, S4-7, S4-8, S4-9, S4-10, S4-11, S4-31, B4-11, B4-15."""
    with model(shell, SCRIPT) as ledger:
        with serving(shell) as first:
            interrupted(first, ledger)
            first.kill()
        with serving(shell) as server:
            told = server.told.splitlines()
            assert f"run wf-0: interrupted ({RESTARTED})" in told
            assert f"run wf-1: interrupted ({RESTARTED})" in told
            assert "run wf-gate waits for an answer at ask#1" in told
            assert "Recovery complete: 2 workflows marked failed, 1 approvals restored." in told
            statuses = {one["id"]: one["status"] for one in server.get("/api/workflows")["workflows"]}
            assert statuses == {
                "wf-0": "FAILED",
                "wf-1": "FAILED",
                "wf-gate": "BLOCKED",
                "wf-later": "PENDING",
            }
            shown = workflow(server, "wf-0")
            assert shown == {
                "id": "wf-0",
                "status": "FAILED",
                "failure_reason": RESTARTED,
                "recoverable": True,
                "pipeline": "build",
                "worktree_path": None,
                "started_at": shown["started_at"],
                "completed_at": None,
            }
            for _ in range(2):  # whoever connects, and however late
                with listening(server) as client:
                    client.until_type("APPROVAL_REQUIRED")
                    assert sorted(client.told, key=lambda one: one["workflow_id"]) == [
                        failed("wf-0"),
                        failed("wf-1"),
                        {
                            "type": "APPROVAL_REQUIRED",
                            "workflow_id": "wf-gate",
                            "data": {"gate": "ask#1", "text": "Ship it?"},
                        },
                    ]
            assert len(asked(ledger, "/code#1/m1")) == 2, "nothing continued by itself"


def failed(id: str) -> Any:
    return {
        "type": "WORKFLOW_FAILED",
        "workflow_id": id,
        "data": {"recoverable": True, "failure_reason": RESTARTED},
    }


def test_resume_endpoint(shell: Shell) -> None:
    """S4-4, S4-12, S4-13, S4-16, S4-17, S4-18, S4-19, S4-20, S4-31, B4-13, B4-14."""
    with model(shell, SCRIPT) as ledger:
        with serving(shell) as first:
            interrupted(first, ledger)
            first.kill()
        with serving(shell) as server, listening(server) as client:
            client.until_type("APPROVAL_REQUIRED")
            unknown = server.ask("POST", "/api/workflows/nobody/resume")
            assert (unknown.status, unknown.json["detail"]) == (404, "Workflow not found")
            reply = server.ask("POST", "/api/workflows/wf-0/resume")
            assert reply.status == 200
            assert reply.json == {
                "id": "wf-0",
                "status": "IN_PROGRESS",
                "failure_reason": None,
                "recoverable": None,
                "pipeline": "build",
                "worktree_path": None,
                "started_at": reply.json["started_at"],
                "completed_at": None,
            }
            started = client.until_type("WORKFLOW_STARTED")
            assert started == {"type": "WORKFLOW_STARTED", "workflow_id": "wf-0", "data": {"resumed": True}}
            client.until_type("WORKFLOW_COMPLETED", workflow_id="wf-0")
            done = workflow(server, "wf-0")
            assert (done["status"], done["failure_reason"]) == ("COMPLETED", None)
            assert done["completed_at"] is not None
            again = server.ask("POST", "/api/workflows/wf-0/resume")
            assert (again.status, again.json["code"]) == (409, "invalid_state")
            assert again.json["detail"] == "Workflow wf-0 is COMPLETED, not FAILED"
            assert asked(ledger, "/plan#1/m1").count("wf-0") == 1, "what had finished was not paid for again"
            assert asked(ledger, "/code#1/m1").count("wf-0") == 2
            approved = server.ask("POST", "/api/workflows/wf-gate/approve")
            assert (approved.status, approved.json["status"]) == (200, "IN_PROGRESS")
            client.until_type("WORKFLOW_COMPLETED", workflow_id="wf-gate")
            assert workflow(server, "wf-1")["status"] == "FAILED", "nobody resumed it"
            assert server.stop().code == 0
