"""A real command: what it gets, what counts as delivered, and that nothing of it is left."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from onward.notify.courier import SendResult
from onward.notify.senders import CommandSender
from onward.process import SystemSpawn
from tests.cli.shell import wait_until
from tests.notify.told import delivery

PATH = {"PATH": "/usr/bin:/bin"}


def sender(command: str | tuple[str, ...], cwd: Path, *, timeout_s: float = 30.0) -> CommandSender:
    return CommandSender(command, SystemSpawn(), environment=PATH, cwd=str(cwd), timeout_s=timeout_s)


@pytest.mark.parametrize("is_line", [True, False])
async def test_a_command_gets_the_facts_and_only_the_variables_it_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_line: bool
) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "hunter2")
    line = "cat > body.json; env > env.txt"
    told = delivery()
    assert await sender(line if is_line else ("sh", "-c", line), tmp_path).send(told) == SendResult(0)
    assert json.loads((tmp_path / "body.json").read_text()) == json.loads(told.body)
    environment = (tmp_path / "env.txt").read_text()
    for variable in ("DELIVERY_ID=abc", "NOTIFICATION=finished", "RUN_ID=run", "STATUS=completed"):
        assert f"ONWARD_{variable}\n" in environment
    assert "hunter2" not in environment


async def test_words_are_not_read_by_a_shell(tmp_path: Path) -> None:
    await sender(("touch", "$HOME; x"), tmp_path).send(delivery())
    assert os.listdir(tmp_path) == ["$HOME; x"]


async def test_an_exit_code_is_not_delivered_and_says_why(tmp_path: Path) -> None:
    found = await sender("echo no such channel >&2; exit 3", tmp_path).send(delivery())
    assert found == SendResult(3, "exit code 3: no such channel")


async def test_a_program_that_is_not_there_is_an_answer_and_not_an_error(tmp_path: Path) -> None:
    found = await sender(("no-such-program",), tmp_path).send(delivery())
    assert found.response is None
    assert "no-such-program" in found.error


async def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    line = "sleep 1000 & echo $! > child; sleep 1000"
    found = await sender(line, tmp_path, timeout_s=1.0).send(delivery())
    assert found.error == "timed out after 1 s"
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "the end of the child")
