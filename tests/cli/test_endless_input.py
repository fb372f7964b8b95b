"""What never ends, or is far too large, is refused after the first piece: no command reads it to the end."""

from __future__ import annotations

import os

import pytest

from tests.cli.shell import GATE, Shell, pipeline

# Whoever reads all of an endless file ends here, and not by taking the machine's memory.
FRUGAL = ("prlimit", f"--as={3 << 30}")


@pytest.mark.parametrize(
    "words",
    [
        ("run", "/dev/zero"),
        ("run", "large.dot"),
        ("validate", "/dev/zero"),
        ("graph", "/dev/zero"),
        ("submit", "/dev/zero"),
        ("simulate-script", "/dev/zero"),
    ],
)
def test_a_pipeline_that_never_ends_is_refused(shell: Shell, words: tuple[str, ...]) -> None:
    with (shell.directory / "large.dot").open("wb") as file:
        os.truncate(file.fileno(), 3 << 30)
    done = shell.start(*words, before=FRUGAL).end()
    assert (done.code, "longer than 1,048,576 bytes" in done.out + done.err) == (2, True), done


def test_a_file_of_settings_that_never_ends_is_refused(shell: Shell) -> None:
    (shell.directory / "onward.toml").symlink_to("/dev/zero")
    done = shell.start("status", before=FRUGAL).end()
    assert (done.code, "onward.toml is larger than 1,048,576 bytes" in done.err) == (2, True), done


def test_an_answer_that_never_ends_is_refused_and_the_gate_stays_open(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    assert shell.inside("run", "gate.dot", "--run-id", "gate").code == 75
    done = shell("answer", "gate", "--answers", "prompt", stdin="y" * (2 << 20))
    assert (done.code, "the answer is longer than 1,048,576 bytes; the gate stays open." in done.out) == (
        75,
        True,
    )
    assert shell("answer", "gate", "--answers", "prompt", stdin="y\ns\n").code == 0


def test_a_pipeline_may_come_out_of_a_pipe(shell: Shell) -> None:
    os.mkfifo(shell.directory / "pipe")
    started = shell.start("validate", "pipe")
    (shell.directory / "pipe").write_text(pipeline(("a", "true")))
    assert started.end().code == 0


def test_a_file_of_runs_that_never_ends_is_refused_and_nothing_is_created(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    done = shell.start("submit", "ok.dot", "--from-jsonl", "/dev/zero", before=FRUGAL).end()
    assert (done.code, "/dev/zero is larger than 67,108,864 bytes; submit it in parts." in done.err) == (
        2,
        True,
    )
    assert shell.inside("status", "--json").json == []
