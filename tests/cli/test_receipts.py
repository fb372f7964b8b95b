"""`onward receipts`, receipts after a real `kill -9`, and the make targets that stand for `onward resume`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw

from tests.cli.shell import Done, Shell, pipeline, wait_for_file

ROOT = Path(__file__).parent.parent.parent


def kept(shell: Shell, run_id: str, flow: str = "line") -> Path:
    return shell.directory / "onward.db-runs" / run_id / flow / "receipts"


def test_receipts_are_listed_and_written_from_the_log(shell: Shell) -> None:
    shell.write("work.dot", pipeline(("a", "true"), ("b", "false")))
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 1
    done = shell.inside("receipts", "work")
    assert done.code == 0
    rows = [row.split() for row in done.out.splitlines()[1:-1]]
    assert [(row[1], row[2], row[3]) for row in rows] == [
        ("start#1", "start", "succeeded"),
        ("a#1", "tool", "succeeded"),
        ("b#1", "tool", "failed"),
    ]
    assert "3 receipts, 0 files written; receipts are in " in done.out.splitlines()[-1]
    (kept(shell, "work") / "a-tool.json").unlink()
    assert f"wrote {kept(shell, 'work') / 'a-tool.json'}\n" in shell.inside("receipts", "work").out
    elsewhere = shell.inside("receipts", "work", "--out", "here", "--json").json
    assert elsewhere["resume_point"]["step"] == "b#1"
    assert [receipt["file"] for receipt in elsewhere["receipts"]] == [
        "start-start.json",
        "a-tool.json",
        "b-tool.json",
    ]
    assert (shell.directory / "here/line/receipts/a-tool.json").read_bytes() == (
        kept(shell, "work") / "a-tool.json"
    ).read_bytes()


def test_what_the_log_does_not_stand_for_is_named_and_put_right(shell: Shell) -> None:
    shell.write("work.dot", pipeline(("a", "true")))
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 0
    where = kept(shell, "work")
    good = (where / "a-tool.json").read_bytes()
    (where / "a-tool.json").write_bytes(good.replace(b"succeeded", b"failed"))
    (where / "z-tool.json").write_text("{}")
    (where / "z-tool.draft.json").write_text("{}")
    done = shell.inside("receipts", "work")
    assert done.code == 0
    assert "altered: a-tool.json is not what event" in done.err
    assert "wrong_schema: z-tool.json is not a valid receipt of version 1" in done.err
    assert (where / "a-tool.json").read_bytes() == good
    assert (where / "z-tool.json.before-1").exists(), "moved aside, not deleted"
    assert (where / "z-tool.draft.json").exists(), "a draft is nobody's receipt"
    assert shell.inside("receipts", "work").err == ""


def test_after_kill_9_inside_a_step_there_is_no_receipt_of_it(shell: Shell) -> None:
    """S1-19: and when it was made again, its receipt tells of the try that was lost."""
    latch = shell.latch("latch")
    shell.write(
        "work.dot", pipeline(("a", "true"), ("b", f"test -e dead || {{ touch dead; {latch.command}; }}"))
    )
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    running.signal(signal.SIGKILL)
    running.end()
    assert sorted(file.name for file in kept(shell, "work").iterdir()) == ["a-tool.json", "start-start.json"]
    assert shell.inside("resume", "work").code == 0
    receipt = json.loads((kept(shell, "work") / "b-tool.json").read_bytes())
    assert [tried["status"] for tried in receipt["attempts"]] == ["lost", "succeeded"]
    assert shell.inside("receipts", "work").err == ""


def test_a_receipt_whose_commit_was_prevented_by_kill_9_is_partial_and_written_again(shell: Shell) -> None:
    """S1-19: the window between the two is held open by another writer, and the process dies in it."""
    latch = shell.latch("latch")
    noting = shell.noting(f"test -e dead || {{ touch dead; {latch.command}; }}")
    shell.write("work.dot", pipeline(("a", "true"), ("b", noting)))
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    other = apsw.Connection(shell.db)
    other.set_busy_timeout(10_000)
    other.execute("BEGIN IMMEDIATE")
    latch.release()
    written = kept(shell, "work") / "b-tool.json"
    wait_for_file(written)
    running.signal(signal.SIGKILL)
    running.end()
    other.execute("ROLLBACK")
    other.close()
    assert json.loads(written.read_bytes())["status"] == "succeeded", "so says the file"
    assert [event["kind"] for event in shell.log("work")][-1] == "StepStarted", "the log says nothing of it"
    found = shell.inside("receipts", "work")
    assert "partial: b-tool.json" in found.err
    assert shell.inside("resume", "work").code == 0
    assert len(shell.ledger) == 2, "the step was never finished, so it was made again"
    receipt = json.loads(written.read_bytes())
    assert [tried["status"] for tried in receipt["attempts"]] == ["lost", "succeeded"]
    assert shell.inside("receipts", "work").err == ""


# -- make stepwise-resume, make stepwise-retry -----------------------------------------------------------


def stepwise(shell: Shell, action: str, **words: str) -> Done:
    """What the make target starts, with the words in the environment as make hands them on."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "stepwise.py"), action],
        cwd=shell.directory,
        env={**os.environ, **shell.environment, **words},
        capture_output=True,
        text=True,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_stepwise_resume_goes_on_from_the_last_checkpoint_or_a_named_step(shell: Shell) -> None:
    """S1-15, S1-16."""
    command = shell.noting("test -e ok")
    shell.write("work.dot", pipeline(("first", shell.noting()), ("second", command), name="build"))
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 1
    (shell.directory / "ok").touch()
    wrong = stepwise(shell, "resume", RUN_ID="work", FLOW="other")
    assert (wrong.code, wrong.err) == (2, "run work is of the flow 'build', not 'other'.\n")
    assert stepwise(shell, "resume", RUN_ID="work", FLOW="build", START_STEP="first").code == 0
    assert shell.ledger == ["first#1", "second#1", "first#2", "second#2"]
    assert shell.read("work")["status"] == "completed"


def test_stepwise_retry_makes_the_failed_step_again(shell: Shell) -> None:
    """S1-17."""
    shell.write("work.dot", pipeline(("a", shell.noting()), ("b", shell.noting("test -e ok")), name="build"))
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 1
    (shell.directory / "ok").touch()
    unsaid = stepwise(shell, "retry", RUN_ID="work", FLOW="build")
    assert unsaid.code == 2
    assert unsaid.err.startswith("STEP must be given: make stepwise-retry RUN_ID=... FLOW=... STEP=...")
    assert stepwise(shell, "retry", RUN_ID="work", FLOW="build", STEP="b").code == 0
    assert shell.ledger == ["a#1", "b#1", "b#1"]


def test_the_make_targets_start_the_script() -> None:
    for target, action in (("stepwise-resume", "resume"), ("stepwise-retry", "retry")):
        words = [
            "make",
            "--no-print-directory",
            "-n",
            "-o",
            ".venv/.installed",
            target,
            "RUN_ID=r",
            "FLOW=f",
            "STEP=s",
        ]
        printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert printed.strip().splitlines()[-1] == f".venv/bin/python scripts/stepwise.py {action}"
