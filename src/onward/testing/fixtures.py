"""Fixtures for pytest: a project in a directory of its own, a scripted model, and `kill -9` in the middle.

    pytest_plugins = ["onward.testing.fixtures"]  # in conftest.py

`onward_project` executes `onward` as a person would, in processes of its own. So a test needs no event loop,
and may kill. `onward_model` plays a script to whatever the test executes.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from onward.testing.model_endpoint import ModelEndpoint, serving_model
from onward.testing.script import ModelScript

PATIENCE_S = 120.0
KEPT = ("ONWARD_MODEL",)


class Ended(NamedTuple):
    """A command that has ended; `code` is its exit code: 0 completed, 1 failed, 75 not finished."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What a command with `--json` printed."""
        return json.loads(self.out)


class OnwardProject:
    """A directory with a database of its own, in which `onward` is executed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, name: str, text: str) -> Path:
        """Write a file of the project: a pipeline, an app, an onward.toml."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def onward(self, *words: str) -> Ended:
        """Execute a command to its end: `project.onward("run", "site.dot")`."""
        done = subprocess.run(
            self._command(words),
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def show(self, run: str) -> dict[str, Any]:
        """A run as `onward show RUN --json` prints it: `status`, `context`, `steps`, …"""
        ended = self.onward("show", run, "--json")
        assert ended.code == 0, ended.err
        shown: dict[str, Any] = ended.json
        return shown

    def kill_in(self, step: str, *words: str) -> str:
        """Execute a command, and kill its process with SIGKILL as soon as a step has started.

        `step` is a node, or a step such as `test#2`. Returns what the command had printed. It must not end
        before the step starts: that is an AssertionError.
        """
        started = re.compile(rf"\s*started\s+{re.escape(step)}(#|\s|$)")
        lines: list[str] = []
        with subprocess.Popen(
            self._command(words),
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            late = threading.Timer(PATIENCE_S, process.kill)
            late.start()
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    lines.append(line)
                    if started.match(line):
                        break
                else:
                    said = "".join(lines)
                    raise AssertionError(f"step {step} never started; the command printed:\n{said}")
            finally:
                late.cancel()
                process.send_signal(signal.SIGKILL)
        return "".join(lines)

    def _command(self, words: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "onward", *words]

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ONWARD_")}
        kept |= {name: os.environ[name] for name in KEPT if name in os.environ}
        home = str(self.directory / ".state")
        return kept | {"ONWARD_DB": str(self.directory / "onward.db"), "XDG_STATE_HOME": home}


class OnwardModel:
    """Plays scripts to agents until the test is over; the newest one counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._threads: list[tuple[threading.Thread, threading.Event]] = []

    def play(self, script: Mapping[str, Any] | ModelScript) -> ModelEndpoint:
        """Serve a script, in the form of docs/testing.md; its `ledger.entries` are the requests."""
        found = script if isinstance(script, ModelScript) else msgspec.convert(script, ModelScript)
        ready, over = Future[ModelEndpoint](), threading.Event()

        async def serve() -> None:
            async with serving_model(found) as endpoint:
                ready.set_result(endpoint)
                await asyncio.to_thread(over.wait)

        thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
        thread.start()
        self._threads.append((thread, over))
        endpoint = ready.result(PATIENCE_S)
        self._monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        self._monkeypatch.setenv("ONWARD_MODEL", "openai:scripted")
        return endpoint

    def close(self) -> None:
        """Serve nothing more."""
        for thread, over in self._threads:
            over.set()
            thread.join(PATIENCE_S)


@pytest.fixture
def onward_project(tmp_path: Path) -> OnwardProject:
    """An empty project in a directory of its own."""
    return OnwardProject(tmp_path)


@pytest.fixture
def onward_model(monkeypatch: pytest.MonkeyPatch) -> Iterator[OnwardModel]:
    """A model for agents: `onward_model.play({"default": {"text": "Yes."}})`."""
    model = OnwardModel(monkeypatch)
    yield model
    model.close()
