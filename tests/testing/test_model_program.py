"""The programs for tests say in one sentence what is wrong with their arguments."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from onward.errors import StoreUnavailable
from onward.testing import model_endpoint
from onward.testing.postgres import PostgresServer


def outcome(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["model_endpoint", *arguments])
    try:
        return model_endpoint.main()
    except SystemExit as ended:
        return int(str(ended.code))


@pytest.mark.parametrize(
    ("script", "mistake"),
    [
        ('{"default": {"status": 99}}', "Expected `int` >= 200 - at `$.default.status`."),
        ('{"default": {"break_after": -1}}', "Expected `int` >= 0 - at `$.default.break_after`."),
        ('{"rules": [{"contains": "a"}]}', "Object missing required field `reply` - at `$.rules[0]`."),
        ('{"rules": [{"reply": {"txt": ""}}]}', "unknown field `txt` - at `$.rules[0].reply`."),
    ],
)
def test_a_mistake_in_a_script_is_told_with_its_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
    mistake: str,
) -> None:
    (tmp_path / "script.json").write_text(script)
    monkeypatch.chdir(tmp_path)
    assert outcome(monkeypatch, "script.json") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("script.json is not a script for a model: ")
    assert line.endswith(mistake)


@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_a_number_that_is_no_port_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], port: str
) -> None:
    assert outcome(monkeypatch, "--port", port) == 2
    assert f"{port!r} is not a port; write a number from 0 to 65535" in capsys.readouterr().err


def test_a_port_that_is_taken_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert outcome(monkeypatch, "--port", str(taken.getsockname()[1])) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cannot serve: ")
    assert "address already in use" in line


def test_a_ledger_that_cannot_be_written_is_told_before_the_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(monkeypatch, "--ledger", str(tmp_path)) == 1
    assert capsys.readouterr().err == f"cannot open {tmp_path}: Is a directory.\n"


def test_a_directory_without_the_programs_of_postgresql_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"does not hold initdb and postgres; name the directory"):
        PostgresServer(binaries=tmp_path)
