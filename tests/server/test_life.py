"""The life of a server as a process: how it starts, what it recovers, and how it ends."""

from __future__ import annotations

import signal
import socket
import stat

import pytest

from onward.errors import InvalidInput
from onward.server.life import check_bind
from onward.server.settings import read_serve
from tests.cli.shell import GATE, Shell, pipeline
from tests.server.serving import serving, start, token_file

pytestmark = pytest.mark.slow
LONG = "x" * 40


@pytest.mark.crash
def test_after_a_kill_runs_read_interrupted_and_gates_are_still_open(any_shell: Shell) -> None:
    """B4-11, O0-18: the lines of document 004 are printed, and a person decides."""
    shell, latch = any_shell, any_shell.latch("latch")
    with serving(shell) as server:
        server.add("work", pipeline(("a", shell.noting()), ("b", shell.noting(latch.command))))
        server.add("gate", GATE)
        server.post("/api/runs", {"pipeline": "gate", "run_id": "wf-gate"})
        server.until("wf-gate", "waiting")
        server.post("/api/runs", {"pipeline": "work", "run_id": "wf-0"})
        latch.wait_reached()
        server.kill()
    with serving(shell) as server:
        why = "Server restarted while workflow was running"
        assert f"run wf-0: interrupted ({why})\n" in server.told
        assert "run wf-gate waits for an answer at ask#1\n" in server.told
        assert "Recovery complete: 1 workflows marked failed, 1 approvals restored.\n" in server.told
        found = server.get("/api/runs/wf-0")
        assert (found["status"], found["reason"], found["detail"]) == ("interrupted", "restart", why)
        assert [gate["run"] for gate in server.get("/api/gates")["gates"]] == ["wf-gate"]
        server.post("/api/runs/wf-0/resume", {"action": "retry"})
        latch.wait_reached()
        latch.release()
        server.until("wf-0", "completed")
        assert shell.ledger.count("a#1") == 1
        assert server.stop().code == 0


def test_sigterm_lets_the_step_finish_and_hands_the_run_back(shell: Shell) -> None:
    latch = shell.latch("latch")
    with serving(shell) as server:
        server.add("work", pipeline(("a", shell.noting(latch.command)), ("b", shell.noting())))
        server.post("/api/runs", {"pipeline": "work", "run_id": "work"})
        latch.wait_reached()
        server.process.signal(signal.SIGTERM)
        server.process.wait_for("draining: taking no new runs")
        ready = server.ask("GET", "/readyz", token="")
        assert (ready.status, ready.body) == (503, b"draining\n")
        refused = server.ask("POST", "/api/runs", {"pipeline": "work"})
        assert (refused.status, refused.json["code"]) == (503, "draining")
        assert "Retry-After" in refused.headers or "retry-after" in refused.headers
        assert server.get("/api/runs/work")["status"] == "running"
        assert server.ask("POST", "/api/runs/work/pause", {}).status == 200
        latch.release()
        done = server.process.end()
    assert done.code == 0, done
    assert shell.read("work")["status"] in ("queued", "paused")
    assert shell.read("work")["completed"] == ["start#1", "a#1"]


def test_a_second_signal_stops_now(shell: Shell) -> None:
    latch = shell.latch("latch")
    with serving(shell) as server:
        server.add("work", pipeline(("a", latch.command)))
        server.post("/api/runs", {"pipeline": "work", "run_id": "work"})
        latch.wait_reached()
        server.process.signal(signal.SIGTERM)
        server.process.wait_for("draining: taking no new runs")
        server.process.signal(signal.SIGTERM)
        assert server.process.end().code in (0, 1)
    assert shell.read("work")["status"] != "running"


def test_a_taken_port_is_refused_before_a_run_is_touched(shell: Shell) -> None:
    shell.write("work.dot", pipeline(("a", "true")))
    assert shell.inside("submit", "work.dot", "--run-id", "work").code == 0
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = shell("serve", "--port", str(port))
    assert done.code == 2
    assert f"port {port} of 127.0.0.1 is in use" in done.err
    assert shell.read("work")["status"] == "queued"


def test_the_token_is_for_its_owner_alone_and_stays_the_same(shell: Shell) -> None:
    with serving(shell) as server:
        first = server.token
        assert stat.S_IMODE(token_file(shell).stat().st_mode) == 0o600
        assert first.startswith("onw_")
        assert server.stop().code == 0
    with serving(shell) as server:
        assert server.token == first


def test_a_link_signs_in_once(shell: Shell) -> None:
    with serving(shell) as server:
        code = server.link.partition("/sign-in#")[2]
        signed = server.ask("POST", "/api/session", {"code": code}, token="")
        assert signed.status == 200
        cookie = {name.lower(): value for name, value in signed.headers.items()}["set-cookie"]
        assert f"onward_{server.port}=" in cookie
        assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", "Path=/"))
        again = server.ask("POST", "/api/session", {"code": code}, token="")
        assert again.status == 401
        pair = cookie.partition(";")[0]
        assert server.ask("GET", "/api/runs", token="", Cookie=pair).status == 200
        assert server.ask("GET", "/api/runs", Cookie=pair).status == 401
        assert server.ask("DELETE", "/api/session", token="", Cookie=pair).status == 200
        assert server.ask("GET", "/api/runs", token="", Cookie=pair).status == 401
        link = shell.inside("tokens", "link")
        assert link.out.startswith(f"http://127.0.0.1:{server.port}/sign-in#")


def test_a_token_of_the_operators_own_replaces_it(shell: Shell) -> None:
    shell.environment["ONWARD_TOKEN"] = "a-token-of-my-own"
    with serving(shell) as server:
        assert server.get("/api/runs")["runs"] == []
        assert b"onward_database_up 1" in server.ask("GET", "/metrics").body
        assert server.ask("GET", "/readyz", token="").body == b"ok\n"
    shell.environment["ONWARD_TOKEN"] = "another-token-of-mine"
    with serving(shell) as server:
        assert server.ask("GET", "/api/runs", token="a-token-of-my-own").status == 401


@pytest.mark.postgres
@pytest.mark.parametrize("any_shell", ["postgres"], indirect=True)
def test_two_servers_share_one_database(any_shell: Shell) -> None:
    """Tokens, runs and keys are rows: whichever server is asked knows them."""
    with serving(any_shell) as one, serving(any_shell, "--no-worker") as other:
        other.add("work", pipeline(("a", "true")))
        head = {"Idempotency-Key": "k1"}
        made = other.ask("POST", "/api/runs", {"pipeline": "work"}, **head)
        again = one.ask("POST", "/api/runs", {"pipeline": "work"}, **head)
        assert made.json["run"]["id"] == again.json["run"]["id"]
        other.until(made.json["run"]["id"], "completed")
        assert one.stop().code == 0
        assert other.stop().code == 0


@pytest.mark.parametrize(
    ("host", "token", "tls", "insecure", "is_refused"),
    [
        ("127.0.0.1", None, False, False, False),
        ("::1", None, False, False, False),
        ("127.0.0.1", "a" * 16, False, False, False),
        ("127.0.0.1", "short", False, False, True),
        ("127.0.0.1", "a b" * 16, False, False, True),
        ("0.0.0.0", None, False, False, True),
        ("0.0.0.0", None, True, False, False),
        ("0.0.0.0", None, False, True, False),
        ("0.0.0.0", "a" * 31, True, False, True),
        ("0.0.0.0", "a" * 31, False, True, True),
        ("0.0.0.0", "a" * 32, True, False, False),
        ("192.168.1.2", LONG, False, False, True),
        ("192.168.1.2", LONG, False, True, False),
    ],
)
def test_a_server_that_others_reach_needs_a_strong_token_and_tls(
    host: str, token: str | None, tls: bool, insecure: bool, is_refused: bool
) -> None:
    """S1: bind x token x TLS."""
    files = {"tls_cert": "cert.pem", "tls_key": "key.pem"} if tls else {}
    settings = read_serve({}, {"host": host, "insecure_http": insecure, **files}, file="onward.toml")
    if is_refused:
        with pytest.raises(InvalidInput):
            check_bind(settings, token)
    else:
        check_bind(settings, token)


def test_a_database_that_others_may_write_is_refused(shell: Shell) -> None:
    """S27."""
    shell.write("work.dot", pipeline(("a", "true")))
    assert shell.inside("run", "work.dot").code == 0
    (shell.directory / "onward.db").chmod(0o666)
    done = shell("serve", "--port", "0")
    assert (done.code, "other users may write" in done.err) == (2, True)


def test_a_head_that_does_not_come_ends_the_connection(shell: Shell) -> None:
    """S22."""
    server = start(shell)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0")
        assert slow.recv(100) == b""
    server.kill()
