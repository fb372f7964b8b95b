"""A command that was never started has done nothing: its key is as free as before."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cli.shell import Shell


def put(shell: Shell, name: str, text: str, mode: int) -> str:
    path = Path(shell.directory, name)
    path.write_text(text)
    os.chmod(path, mode)
    return f"./{name}"


@pytest.mark.parametrize(
    ("name", "text", "mode", "code", "why"),
    [
        (None, "", 0, 127, "No such file or directory"),
        ("plain", "echo hi", 0o644, 126, "Permission denied"),
        ("lost", "#!/no/such/interpreter\n", 0o755, 127, "No such file or directory"),
    ],
)
def test_a_command_that_cannot_be_started_leaves_its_key_free(
    shell: Shell, name: str | None, text: str, mode: int, code: int, why: str
) -> None:
    program = put(shell, name, text, mode) if name else "no-such-program"
    done = shell.inside("effect", "charge", "--", program, "7")
    assert done.code == code
    assert done.err == (
        f"onward: '{program}' cannot be started: {why}; nothing was run.\n"
        "effect charge was not started; the next call runs it\n"
    )
    assert shell.inside("effect", "charge", "--json").json["state"] == "absent"
    again = shell.inside("effect", "charge", "--", "echo", "charged")
    assert (again.code, again.out) == (0, "charged\n")


def test_an_exit_code_of_a_program_that_ran_is_a_result_whatever_it_is(shell: Shell) -> None:
    """Only the system's own refusal proves that nothing ran; a shell's 127 may follow half of its line."""
    line = "echo half >> ledger; no-such-program"
    for _ in range(2):
        assert shell.inside("effect", "charge", "--", "sh", "-c", line).code == 127
    assert shell.ledger == ["half"]


def test_a_script_that_names_no_interpreter_is_run_by_the_shell(shell: Shell) -> None:
    program = put(shell, "script", "echo ran $1\n", 0o755)
    assert shell.inside("effect", "charge", "--", program, "it").out == "ran it\n"


def test_a_retry_that_cannot_be_started_leaves_the_doubt(shell: Shell) -> None:
    latch = shell.latch("latch")
    started = shell.start("effect", "charge", "--", "sh", "-c", latch.command)
    latch.wait_reached()
    started.signal(signal.SIGKILL)
    started.end()
    assert shell.inside("effect", "charge", "--", "true").code == 75
    done = shell.inside("effect", "charge", "--retry", "--", "no-such-program")
    assert done.code == 127
    assert done.err.endswith("effect charge is still in doubt\n")
    assert shell.inside("effect", "charge", "--", "true").code == 75
