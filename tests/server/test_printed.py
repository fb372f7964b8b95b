"""What runs printed, and their receipts, for who is not at the machine where they ran."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onward.operations.here.directories import PRINTED_BYTES_MAX
from tests.cli.shell import Shell, pipeline
from tests.server.serving import serving

RETRIED = "echo attempt $ONWARD_ATTEMPT; echo complaint >&2; exit 1"
LONG = f"seq -w 0 99999 | head -c {2 * PRINTED_BYTES_MAX}; printf end"


def test_what_commands_printed_is_told_step_by_step(any_shell: Shell) -> None:
    shell = any_shell
    shell.write("line.dot", pipeline(("test", RETRIED), more="  test [max_retries=1]\n"))
    shell.inside("run", "line.dot", "--run-id", "run")
    with serving(shell, "--no-worker") as server:
        told = server.get("/api/runs/run/log")
        assert not told["is_cut"]
        assert [(one["step"], one["attempt"], one["stream"], one["text"]) for one in told["pieces"]] == [
            ("test#1", 1, "stdout", "attempt 1\n"),
            ("test#1", 1, "stderr", "complaint\n"),
            ("test#1", 2, "stdout", "attempt 2\n"),
            ("test#1", 2, "stderr", "complaint\n"),
        ]
        (one,) = server.get("/api/runs/run/log?step=test&attempt=2&stream=stdout")["pieces"]
        assert one["text"] == "attempt 2\n"
        assert server.ask("GET", "/api/runs/run/log?step=gone").json["code"] == "step_not_found"
        assert server.ask("GET", "/api/runs/run/log?attempt=9").status == 422
        assert server.ask("GET", "/api/runs/run/log?stream=stdin").status == 422
        there = shell("logs", "run", "--server", f"http://127.0.0.1:{server.port}")
        assert there.out == shell("logs", "run").out
        assert shell("logs", "run", "-f", "--server", f"http://127.0.0.1:{server.port}").code == 2


def test_of_much_the_last_256_kib_are_told(shell: Shell) -> None:
    """What was printed before is not even read."""
    shell.write("line.dot", pipeline(("first", "echo first"), ("long", LONG), ("last", "echo last")))
    assert shell.inside("run", "line.dot", "--run-id", "run").code == 0
    with serving(shell, "--no-worker") as server:
        told = server.get("/api/runs/run/log")
        assert told["is_cut"]
        assert [one["step"] for one in told["pieces"][-1:]] == ["last#1"]
        text = "".join(one["text"] for one in told["pieces"])
        assert len(text) == PRINTED_BYTES_MAX
        assert text.endswith("endlast\n")
        there = shell("logs", "run", "--server", f"http://127.0.0.1:{server.port}")
        assert "only the end is shown" in there.err


def test_receipts_are_listed_and_nothing_is_written(shell: Shell) -> None:
    shell.write("line.dot", pipeline(("a", "true"), ("b", "true")))
    shell.inside("run", "line.dot", "--run-id", "run")
    here = shell.inside("receipts", "run", "--json").json
    (folder,) = Path(here["directory"]).parent.glob("*/receipts")
    (altered,) = folder.glob("*b*")
    altered.write_text("{}")
    with serving(shell, "--no-worker") as server:
        told = server.get("/api/runs/run/receipts")
        kept = [one["file"] for one in told["receipts"]]
        assert kept == [one["file"] for one in here["receipts"] if one["file"] != altered.name]
        assert [(one["kind"], one["file"]) for one in told["found"]] == [("wrong_schema", altered.name)]
        assert altered.read_text() == "{}"
    shell.inside("receipts", "run")  # every test leaves sound ones


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give itself another machine's name")
def test_files_of_another_machine_are_not_here(shell: Shell) -> None:
    """409 says where they are, instead of an empty list."""
    shell.write("line.dot", pipeline(("a", "echo printed"), ("quiet", "true")))
    onward = f"{sys.executable} -m onward run line.dot --run-id run"
    words = ["unshare", "--uts", "sh", "-c", f"hostname elsewhere && exec {onward} --db {shell.db}"]
    subprocess.run(words, cwd=shell.directory, env=shell.environment, check=True, capture_output=True)
    with serving(shell, "--no-worker") as server:
        (one,) = server.get("/api/runs/run/log")["pieces"]  # the directory is shared
        assert one["text"] == "printed\n"
        (directory,) = shell.directory.rglob("run/manifest.json")
        shutil.rmtree(directory.parent)
        for path in ("log", "receipts"):
            refused = server.ask("GET", f"/api/runs/run/{path}")
            assert (refused.status, refused.json["code"]) == (409, "not_here")
            assert refused.json["details"]["host"] == "elsewhere"
