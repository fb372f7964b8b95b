"""Notifications through the real command line: a real receiver, a real command, and kills between the two."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from tests.cli.shell import GATE, Shell, pipeline, wait_until
from tests.cli.test_doubt import killed
from tests.notify.receiver import FINE, Answer, Receiver, receiving

STEPS = pipeline(("a", "true"), ("b", "true"))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def notify(shell: Shell, **keys: Any) -> None:
    """Write `onward.toml`."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    shell.write("onward.toml", "\n".join(("[notify]", *lines, "")))


def listed(shell: Shell, *flags: str) -> list[dict[str, Any]]:
    """Oldest first."""
    found: list[dict[str, Any]] = shell.inside("notifications", *flags, "--json").json["notifications"]
    return found[::-1]


def told(shell: Shell) -> Sequence[str]:
    """The delivery ids that a command wrote down."""
    path = shell.directory / "told"
    return path.read_text().split() if path.exists() else []


def end_leases(shell: Shell) -> None:
    """Let the time of every claim be over."""
    text = "UPDATE outbox SET due_at_us = 0 WHERE state = 'waiting'"
    if shell.db.startswith("postgres"):
        with psycopg.connect(shell.db) as connection:
            connection.execute(text)
        return
    db = apsw.Connection(shell.db)
    db.execute(text)
    db.close()


def test_a_gate_a_stop_and_an_end_are_told_and_recorded(any_shell: Shell, receiver: Receiver) -> None:
    shell = any_shell
    notify(shell, url=receiver.url, secret="env:HOOK")
    shell.environment["HOOK"] = "hunter2"
    shell.write("gate.dot", GATE)
    shell.inside("run", "gate.dot", "--run-id", "run")
    (gate,) = receiver.bodies
    assert (gate["event"], gate["run"], gate["status"]) == ("gate", "run", "waiting")
    assert gate["gate"]["text"] == "Ship it?"
    assert [choice["key"] for choice in gate["gate"]["choices"]] == ["Y", "N"]
    assert gate["next"].startswith("onward answer ")
    assert receiver.headers[0]["webhook-signature"].startswith("v1,")
    shell.inside("pause", "run")
    shell.inside("cancel", "run")
    assert receiver.events == ["gate", "stopped", "finished"]
    found = listed(shell, "run")
    assert [(one["event"], one["state"], one["tries"]) for one in found] == [
        ("gate", "delivered", 1),
        ("stopped", "delivered", 1),
        ("finished", "delivered", 1),
    ]
    assert sorted(one["id"] for one in found) == sorted(receiver.ids)
    assert {one["response"] for one in found} == {204}


def test_a_run_in_doubt_is_told_with_the_flags_that_decide(shell: Shell, receiver: Receiver) -> None:
    notify(shell, url=receiver.url, on=["stopped"])
    killed(shell)
    shell.inside("worker", "--until-idle")
    (told,) = receiver.bodies
    assert (told["run"], told["reason"]) == ("doubt", "in_doubt")
    assert told["next"] == "onward resume doubt --retry|--skip|--continue|--abort"


def test_a_run_of_a_process_without_notify_is_told_by_one_that_has_it(
    shell: Shell, receiver: Receiver
) -> None:
    """The database knows what is wanted, whoever creates, executes or stops a run."""
    notify(shell, url=receiver.url, on=["finished"])
    shell.inside("worker", "--until-idle")
    (shell.directory / "onward.toml").unlink()
    shell.inside("run", shell.write("steps.dot", STEPS), "--run-id", "run")
    assert receiver.bodies == []
    notify(shell, url=receiver.url, on=["finished"])
    shell.inside("worker", "--until-idle")
    assert [(body["run"], body["event"]) for body in receiver.bodies] == [("run", "finished")]


def test_without_notify_nothing_is_written(shell: Shell) -> None:
    shell.inside("run", shell.write("steps.dot", STEPS))
    assert listed(shell) == []
    assert "no notifications" in shell.inside("notifications").out


def test_a_slow_receiver_delays_no_run(any_shell: Shell, receiver: Receiver) -> None:
    """It answers its first notification only when every run of the worker has completed."""
    shell, runs = any_shell, 8
    notify(shell, url=receiver.url, on=["finished"], timeout=60)
    shell.write("steps.dot", STEPS)
    for number in range(runs):
        shell.inside("submit", "steps.dot", "--run-id", f"run-{number}")
    finished = threading.Event()

    def answer() -> Answer:
        finished.wait()
        return FINE

    receiver.answer = answer
    worker = shell.start("worker", "--until-idle")
    wait_until(lambda: shell.inside("stats", "--json").json["runs"]["by_status"]["completed"] == runs)
    assert len(receiver.bodies) <= 4, "it was asked for no more at once"
    finished.set()
    assert worker.end().code == 0
    assert len(set(receiver.ids)) == runs == len(receiver.ids)


def test_a_receiver_that_is_down_is_told_of_and_tried_again(shell: Shell, receiver: Receiver) -> None:
    receiver.answer = lambda: (500, {}, b"out of order")
    notify(shell, url=receiver.url)
    done = shell.inside("run", shell.write("steps.dot", STEPS))
    assert done.code == 0
    assert "1 notification is not delivered yet" in done.err
    (left,) = listed(shell, "--waiting")
    assert (left["tries"], left["response"], left["error"]) == (1, 500, "HTTP 500: out of order")
    assert "1 waiting, 0 failed" in shell.inside("stats").out
    assert "1 notification on the way" in shell.inside("doctor").out
    receiver.answer = lambda: FINE
    end_leases(shell)
    shell.inside("worker", "--until-idle")
    assert receiver.ids == [left["id"]] * 2
    assert listed(shell, "--waiting") == []


def test_one_that_was_given_up_is_seen_and_can_be_asked_for_again(shell: Shell, receiver: Receiver) -> None:
    receiver.answer = lambda: (500, {}, b"")
    notify(shell, url=receiver.url)
    shell.inside("run", shell.write("steps.dot", STEPS))
    db = apsw.Connection(shell.db)
    db.execute("UPDATE outbox SET tries = 11, due_at_us = 0")
    db.close()
    done = shell.inside("worker", "--until-idle")
    (lost,) = listed(shell, "--failed")
    assert f"--retry {lost['id']}" in done.out
    doctor = shell.inside("doctor")
    assert doctor.code == 1
    assert "1 notification could not be delivered" in doctor.out
    receiver.answer = lambda: FINE
    assert "is due" in shell.inside("notifications", "--retry", lost["id"]).out
    shell.inside("worker", "--until-idle")
    assert listed(shell, "--failed") == []
    unknown = shell.inside("notifications", "--retry", "unknown", "--json")
    assert (unknown.code, unknown.error["code"]) == (1, "notification_not_found")


def test_a_command_is_told_in_the_projects_directory_with_no_secrets(shell: Shell) -> None:
    shell.environment |= {"PROVIDER_KEY": "hunter2", "CHANNEL": "ops"}
    notify(shell, command="cat > body; env > seen; echo $CHANNEL > channel", env=["CHANNEL"], on=["finished"])
    below = shell.directory / "below"
    below.mkdir()
    (below / "steps.dot").write_text(STEPS)
    inner = Shell(below, shell.db)
    inner.environment = shell.environment
    assert inner.inside("run", "steps.dot", "--run-id", "run").code == 0
    assert json.loads((shell.directory / "body").read_text())["run"] == "run"
    assert (shell.directory / "channel").read_text() == "ops\n"
    assert "hunter2" not in (shell.directory / "seen").read_text()


def test_bad_settings_are_one_sentence_before_anything_starts(shell: Shell) -> None:
    shell.write("steps.dot", STEPS)
    for keys, says in (
        ({"url": "ftp://x"}, "url of [notify] in onward.toml cannot be used"),
        ({"command": "x", "retry": 3}, "sets retry"),
        ({"url": "http://localhost/", "secret": "env:NOT_SET"}, "the variable NOT_SET, which is not set"),
        ({"url": "http://localhost/", "secret": "file:gone"}, "cannot read gone, the secret of [notify]"),
    ):
        notify(shell, **keys)
        done = shell.inside("run", "steps.dot")
        assert done.code != 0
        assert says in done.err
        assert len(done.err.strip().splitlines()) == 1
    (shell.directory / "onward.toml").unlink()
    assert shell.inside("status", "--json").json == [] or not Path(shell.db).exists()


@pytest.mark.crash
@pytest.mark.parametrize("tells_first", [False, True], ids=["before it is told", "before that is recorded"])
def test_a_process_that_is_killed_loses_no_notification(any_shell: Shell, tells_first: bool) -> None:
    """Killed after the commit: told or not, it is told (again) by the next, under the same id."""
    shell = any_shell
    tell = "echo $ONWARD_DELIVERY_ID >> told"
    wait = "touch reached; sleep 1000"
    notify(shell, command=f"{tell}; {wait}" if tells_first else wait, on=["finished"])
    process = shell.start("run", shell.write("steps.dot", STEPS), "--run-id", "run")
    wait_until((shell.directory / "reached").exists, "the delivery")
    process.signal(signal.SIGKILL)
    process.end()
    assert shell.read("run")["status"] == "completed"
    (left,) = listed(shell)
    assert (left["state"], left["tries"]) == ("waiting", 1)
    notify(shell, command=tell, on=["finished"])
    end_leases(shell)
    shell.inside("worker", "--until-idle")
    assert told(shell) == [left["id"]] * (2 if tells_first else 1)
    (found,) = listed(shell)
    assert (found["state"], found["tries"]) == ("delivered", 2)


def test_what_was_told_of_a_run_is_deleted_with_it(shell: Shell, receiver: Receiver) -> None:
    notify(shell, url=receiver.url)
    shell.inside("run", shell.write("steps.dot", STEPS))
    assert len(listed(shell)) == 1
    shell.inside("gc", "--keep", "0")
    assert listed(shell) == []
