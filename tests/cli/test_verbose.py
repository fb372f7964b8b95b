"""`--verbose`: what commands print is seen while they run, each line with its step."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell, pipeline


def test_lines_of_commands_are_printed_with_their_step(shell: Shell) -> None:
    shell.write("line.dot", pipeline(("a", "echo from a; echo odd >&2"), ("b", "printf unended; exit 1")))
    done = shell.inside("run", "line.dot", "--verbose", "--run-id", "run")
    lines = done.out.splitlines()
    started, finished = (
        lines.index("  started   a#1"),
        next(n for n, x in enumerate(lines) if "finished  a#1" in x),
    )
    assert sorted(lines[started + 1 : finished]) == ["    a#1 | from a", "    a#1 | odd"]
    assert lines.count("    b#1 | unended") == 1
    assert "    | unended" not in lines, "it was seen already"
    assert "    b#1 | unended\n" in shell.inside("resume", "run", "-v").out


def test_without_it_nothing_of_a_command_that_succeeds_is_printed(shell: Shell) -> None:
    shell.write("line.dot", pipeline(("a", "echo from a")))
    assert "from a" not in shell.inside("run", "line.dot").out


def test_with_json_the_lines_are_on_standard_error(shell: Shell) -> None:
    shell.write("line.dot", pipeline(("a", "echo from a")))
    done = shell.inside("run", "line.dot", "-v", "--json")
    assert done.json["status"] == "completed"
    assert "    a#1 | from a\n" in done.err


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_line_is_seen_before_its_command_ends(shell: Shell, is_terminal: bool) -> None:
    latch = shell.latch("latch")
    shell.write("line.dot", pipeline(("a", f"printf '\\\\033[31mred\\\\033[0m\\\\n'; {latch.command}")))
    words = ("run", "line.dot", "-v")
    running = shell.terminal(*words) if is_terminal else shell.start(*words)
    latch.wait_reached()
    running.wait_for(r"    a#1 \| red")
    latch.release()
    assert running.end().code == 0


def test_lines_that_were_printed_as_they_came_are_not_repeated_with_the_failure(shell: Shell) -> None:
    shell.write("line.dot", pipeline(("a", "echo one; echo two; exit 3")))
    out = shell.inside("run", "line.dot", "--verbose").out
    assert "    a#1 | one\n" in out
    assert "    | one\n" not in out
    assert "    | one\n" in shell.inside("run", "line.dot").out
