"""What operators see of real processes: `stats`, metrics over real HTTP, and a log for machines."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from onward.model.ids import called
from onward.testing.postgres import PostgresServer
from tests.cli.shell import PATIENCE_S, Shell, Started, pipeline

AT = r"metrics at (http://127\.0\.0\.1:\d+)/metrics"


class Site:
    """The pages of a worker that has been started."""

    def __init__(self, worker: Started) -> None:
        worker.wait_for(AT)
        found = re.search(AT, worker._out.text)
        assert found is not None
        self.place = found[1]

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        """Status and body."""
        request = urllib.request.Request(self.place + path, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def numbers(self) -> dict[str, float]:
        """Every sample of the page, by its name with its labels."""
        status, page = self.get("/metrics")
        assert status == 200
        rows = (row.rpartition(" ") for row in page.splitlines() if not row.startswith("#"))
        return {series: float(value) for series, _, value in rows}

    def wait_until(self, series: str, value: float) -> dict[str, float]:
        """Until a number is what it should be; all of them then."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            found = self.numbers()
            if found.get(series) == value:
                return found
            assert time.monotonic() < deadline_s, f"{series} is {found.get(series)}, not {value}"
            time.sleep(0.05)

    def wait_for_health(self, status: int) -> str:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            found, said = self.get("/healthz")
            if found == status:
                return said
            assert time.monotonic() < deadline_s, f"/healthz says {found}: {said}"
            time.sleep(0.05)


def test_stats_tells_how_the_database_stands(shell: Shell) -> None:
    shell.write("tool.dot", pipeline(("a", "true")))
    shell.write("bad.dot", pipeline(("a", "false")))
    for name in ("one", "two", "three"):
        assert shell.inside("submit", "tool.dot", "--run-id", name).code == 0
    assert shell.inside("pause", "three").code == 0
    assert shell.inside("run", "bad.dot", "--run-id", "bad").code == 1
    found = shell.inside("stats", "--json").json
    by_reason = {(one["status"], one["reason"]): one["runs"] for one in found["runs"]["by_reason"]}
    assert by_reason == {("queued", ""): 2, ("paused", "operator"): 1, ("failed", "step_failed"): 1}
    assert found["runs"]["by_status"]["queued"] == found["queue"]["due"] == 2
    assert (found["runs"]["total"], found["runs"]["recoverable"]) == (4, 2)
    assert found["queue"]["age_s"] > 0
    assert found["ended"]["hour"] == found["ended"]["day"] == {"completed": 0, "failed": 1, "cancelled": 0}
    assert found["database_bytes"] > 10_000
    said = shell.inside("stats")
    assert said.code == 0
    assert "4 runs, 2 recoverable" in said.out
    assert re.search(r"failed +step_failed +1 +yes", said.out)
    assert re.search(r"queue +2 due, the oldest for .*; 0 later", said.out)


def test_a_due_run_that_cannot_be_claimed_shows_up_and_keeps_no_other_waiting(shell: Shell) -> None:
    """Whoever looks is another process than the worker that failed."""
    shell.write("tool.dot", pipeline(("a", "true")))
    for name in ("bad", "good"):
        assert shell.inside("submit", "tool.dot", "--run-id", name).code == 0
    db = apsw.Connection(shell.db)
    db.execute("DROP TRIGGER event_is_immutable; UPDATE event SET body = '{' WHERE run_id = 'bad'")
    db.close()
    assert shell.inside("doctor").code == 0
    assert shell.inside("worker", "--until-idle").code == 0
    assert shell.inside("status", "good", "--json").json["status"] == "completed"
    (stuck,) = shell.inside("stats", "--json").json["queue"]["stuck"]
    assert (stuck["run"], stuck["failures"]) == ("bad", 1)
    assert "event 1" in stuck["why"]
    said = shell.inside("stats").out
    assert "stuck     1 due run could not be claimed" in said
    assert f"run {called('bad')}, 1 time: " in said
    doctor = shell.inside("doctor")
    assert doctor.code == 1
    assert "BAD  queue" in doctor.out
    assert shell.inside("cancel", "bad").code == 1, "it cannot be read"


def test_stats_names_the_runs_of_a_worker_that_was_killed_as_stalled(shell: Shell) -> None:
    """S2-29."""
    latch = shell.latch("latch")
    shell.write("slow.dot", pipeline(("a", latch.command)))
    assert shell.inside("submit", "slow.dot", "--run-id", "slow").code == 0
    worker = shell.start("worker")
    latch.wait_reached()
    found = shell.inside("stats", "--json").json
    assert (found["runs"]["held"], found["runs"]["stalled"]) == (1, 0)
    worker.signal(signal.SIGKILL)
    worker.end()
    found = shell.inside("stats", "--json").json
    assert (found["runs"]["held"], found["runs"]["stalled"]) == (1, 1)
    assert [(one["runs"], one["stalled"]) for one in found["workers"]] == [(1, 1)]


def test_a_worker_at_work_is_scraped_and_its_numbers_are_what_happened(shell: Shell) -> None:
    """S2-32."""
    latch = shell.latch("latch")
    flaky = f"test -e {shell.directory / 'tried'} || (touch {shell.directory / 'tried'}; false)"
    retried = pipeline(("a", flaky), name="flaky").replace('false)"', 'false)", max_retries=1')
    shell.write("flaky.dot", retried)
    shell.write("slow.dot", pipeline(("b", latch.command), name="slow"))
    assert shell.inside("submit", "flaky.dot", "--run-id", "flaky").code == 0
    assert shell.inside("submit", "slow.dot", "--run-id", "slow").code == 0
    worker = shell.start("worker", "--metrics", "0")
    site = Site(worker)
    latch.wait_reached()
    site.wait_until('onward_runs_stopped_total{status="completed",reason=""}', 1)
    # The stop is counted when it is committed; the run's place is free when its files are written, too.
    found = site.wait_until("onward_runs_driving", 1)
    assert found['onward_claims_total{pipeline="flaky"}'] == 1
    assert found["onward_claim_latency_seconds_count"] == 2
    assert found['onward_retries_total{pipeline="flaky"}'] == 1
    assert found['onward_attempts_total{pipeline="flaky",kind="tool",result="fail"}'] == 1
    assert found['onward_attempts_total{pipeline="flaky",kind="tool",result="success"}'] == 1
    assert found['onward_step_seconds_count{pipeline="flaky",kind="tool"}'] == 2
    assert (found["onward_healthy"], found["onward_database_up"]) == (1, 1)
    assert site.get("/healthz") == (200, "ok\n")
    assert site.get("/metrics", "HEAD") == (200, "")
    assert site.get("/nothing")[0] == 404
    latch.release()
    found = site.wait_until('onward_runs{status="completed",reason=""}', 2)
    stats = shell.inside("stats", "--json").json
    assert found['onward_runs_ended_last_hour{status="completed"}'] == stats["ended"]["hour"]["completed"]
    worker.signal(signal.SIGTERM)
    assert worker.end().code == 0


@contextmanager
def model_endpoint(shell: Shell, script: str) -> Iterator[None]:
    """A scripted model in a process of its own, which the commands of this shell ask."""
    command = [sys.executable, "-m", "onward.testing.model_endpoint", shell.write("script.json", script)]
    with subprocess.Popen(command, cwd=shell.directory, stdout=subprocess.PIPE, text=True) as endpoint:
        assert endpoint.stdout is not None
        try:
            shell.environment["OPENAI_BASE_URL"] = endpoint.stdout.readline().strip()
            yield
        finally:
            endpoint.kill()


def test_a_workers_page_shows_a_stream_while_it_is_open_and_that_its_call_was_lost(shell: Shell) -> None:
    """S2-29, S2-32."""
    script = '{"default": {"text": "one two three", "break_after": 2, "break_with": "stall"}}'
    ends = "start [shape=Mdiamond] exit [shape=Msquare]"
    shell.write("ask.dot", f'digraph ask {{ {ends} a [prompt="?", llm_model=small] start -> a -> exit }}')
    with model_endpoint(shell, script):
        assert shell.inside("submit", "ask.dot", "--run-id", "ask").code == 0
        site = Site(shell.start("worker", "--metrics", "0"))
        found = site.wait_until("onward_flushed_bytes_total", 8)
        assert found["onward_streams_open"] == 1
        assert found["onward_flush_seconds_count"] == found["onward_flushed_chunks_total"] >= 1
        assert shell.inside("cancel", "ask").code == 0
        site.wait_until("onward_calls_lost_total", 1)
        assert site.wait_until("onward_streams_open", 0)["onward_reservations_waiting"] == 0


def test_a_worker_that_drains_says_that_it_is_not_ready(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("slow.dot", pipeline(("a", latch.command)))
    assert shell.inside("submit", "slow.dot", "--run-id", "slow").code == 0
    worker = shell.start("worker", "--metrics", "0")
    site = Site(worker)
    latch.wait_reached()
    worker.signal(signal.SIGTERM)
    assert site.wait_for_health(503) == "draining: this worker claims no new runs.\n"
    assert site.numbers()["onward_draining"] == 1
    latch.release()
    assert worker.end().code == 0


def test_clients_that_hang_or_talk_nonsense_do_not_harm_a_worker(shell: Shell) -> None:
    worker = shell.start("worker", "--metrics", "0")
    site = Site(worker)
    address = ("127.0.0.1", int(site.place.rpartition(":")[2]))
    idle = [socket.create_connection(address) for _ in range(20)]
    for nonsense in (b"\x00" * 70_000, b"GET\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n"):
        with socket.create_connection(address) as client:
            client.sendall(nonsense)
    shell.write("tool.dot", pipeline(("a", "true")))
    assert shell.inside("submit", "tool.dot", "--run-id", "mine").code == 0
    site.wait_until('onward_runs_stopped_total{status="completed",reason=""}', 1)
    worker.signal(signal.SIGTERM)
    assert worker.end().code == 0
    for client in idle:
        client.close()


def test_an_address_that_cannot_be_used_is_refused_in_a_sentence(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = shell.inside("worker", "--metrics", str(port), "--until-idle")
    assert (done.code, done.err) == (
        2,
        f"onward: --metrics: port {port} of 127.0.0.1 is in use; choose another one.\n",
    )
    done = shell.inside("worker", "--metrics", "nine")
    assert done.code == 2
    assert "--metrics 'nine' is not a port or HOST:PORT" in done.err


@pytest.mark.postgres
@pytest.mark.slow
def test_health_follows_a_server_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    with PostgresServer(fsync=False) as server:
        shell = Shell(tmp_path, server.create_database())
        try:
            worker = shell.start("worker", "--metrics", "0", "--lease", "3s")
            site = Site(worker)
            site.wait_for_health(200)
            assert site.numbers()["onward_database_bytes"] > 0
            os.kill(server.pid, signal.SIGQUIT)
            # After a heartbeat of a second, and not only when the store has given up waiting for the server.
            assert site.wait_for_health(503) == "the database has not responded for 1 s.\n"
            server.restart()
            assert site.wait_for_health(200) == "ok\n"
            worker.signal(signal.SIGTERM)
            assert worker.end().code == 0
        finally:
            shell.close()


APP = """
import logging
from onward import Onward

app = Onward()

@app.handler("chatty")
def chatty(step):
    logging.getLogger("mine").info("asking the model")

@app.handler("broken")
async def broken(step):
    try:
        raise ValueError("two\\nlines")
    except ValueError:
        logging.getLogger("mine").exception("it broke: postgresql://me:hunter2@db/runs")
    return {}
"""


def lines_of(text: str) -> list[dict[str, Any]]:
    """Every line, each of which is one JSON object."""
    found = [json.loads(line) for line in text.splitlines()]
    assert found
    for line in found:
        assert {"time", "level", "logger", "message"} <= line.keys()
    return found


def test_every_line_of_a_workers_log_is_json_and_names_its_run_and_step(shell: Shell) -> None:
    shell.write("mine.py", APP)
    shell.write(
        "mine.dot",
        'digraph mine { start [shape=Mdiamond]; exit [shape=Msquare]; a [type="chatty"]; b [type="broken"]\n'
        "  start -> a -> b -> exit }",
    )
    shell.environment["ONWARD_APP"] = "mine:app"
    assert shell.inside("submit", "mine.dot", "--run-id", "r1").code == 0
    done = shell("worker", "--until-idle", "--log-format", "json")
    assert (done.code, done.out) == (0, "")
    assert "hunter2" not in done.err
    lines = lines_of(done.err)
    about = {line["message"]: line for line in lines}
    for message, step in (
        ("asking the model", "a#1"),
        ("step a#1 started", "a#1"),
        ("step b#1 finished", "b#1"),
    ):
        found = about[message]
        assert (found["run"], found["pipeline"], found["step"]) == ("r1", "mine", step)
    assert about["run r1 claimed"]["run"] == "r1"
    ended = about[f"run {called('r1')} completed"]
    assert (ended["run"], ended["status"], ended["logger"]) == ("r1", "completed", "onward.worker")
    broken = about["it broke: postgresql://me:***@db/runs"]
    assert (broken["step"], broken["exception"]["type"]) == ("b#1", "ValueError")
    assert all(line["worker"].startswith("process ") for line in lines)


def test_the_environment_chooses_the_log_and_errors_are_lines_of_it_too(shell: Shell) -> None:
    shell.environment["ONWARD_LOG"] = "json"
    (line,) = lines_of(shell("recover").err)
    assert (line["level"], line["message"][:8]) == ("warning", "onward: ")
    (line,) = lines_of(shell("worker", "--metrics", "nine").err)
    assert "--metrics 'nine' is not a port or HOST:PORT" in line["message"]
    shell.environment["ONWARD_LOG"] = "xml"
    done = shell("worker", "--until-idle")
    assert (done.code, done.err) == (2, "onward: log is 'xml'; write one of text, json.\n")


def test_a_recovery_reports_its_counts_as_fields(shell: Shell) -> None:
    """Document 004: one line with the counts, and each run."""
    latch = shell.latch("latch")
    shell.write("slow.dot", pipeline(("a", latch.command)))
    assert shell.inside("submit", "slow.dot", "--run-id", "slow", "--on-owner-loss", "interrupt").code == 0
    worker = shell.start("worker")
    latch.wait_reached()
    worker.signal(signal.SIGKILL)
    worker.end()
    lines = lines_of(shell("recover", "--log-format", "json").err)
    (report,) = [line for line in lines if line["message"].startswith("Recovery complete")]
    assert report["message"] == "Recovery complete: 1 workflows marked failed, 0 approvals restored."
    assert (report["interrupted"], report["requeued"], report["waiting"], report["broken"]) == (1, 0, 0, 0)
    (told,) = [line for line in lines if line["logger"] == "onward.recovery" and "run" in line]
    assert (told["run"], told["pipeline"], told["reason"]) == ("slow", "line", "restart")
