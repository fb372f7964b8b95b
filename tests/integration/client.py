"""What tests of whole stories share: a scripted model as a process, and clients of `/ws`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from websockets.sync.client import ClientConnection, connect

from onward.testing.script import ModelScript
from tests.cli.shell import PATIENCE_S, Shell
from tests.server.serving import Serving


@contextmanager
def model(shell: Shell, played: ModelScript) -> Iterator[Path]:
    """A model that plays a script, over HTTP; gives the ledger of its requests."""
    ledger, script = shell.directory / "requests.jsonl", shell.directory / "script.json"
    script.write_bytes(msgspec.json.encode(played))
    command = [sys.executable, "-m", "onward.testing.model_endpoint", str(script), "--ledger", str(ledger)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            shell.environment |= {"OPENAI_BASE_URL": address, "ONWARD_MODEL": "openai:scripted"}
            yield ledger
        finally:
            process.terminate()


class Socket:
    """A client of `/ws`, and everything that it was told."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.told: list[Any] = []

    def until(self, wanted: Callable[[Any], bool]) -> Any:
        """The first message, of those that came or come, that is wanted."""
        seen, deadline_s = 0, time.monotonic() + PATIENCE_S
        while True:
            for message in self.told[seen:]:
                if wanted(message):
                    return message
            seen = len(self.told)
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, f"it never came; this did: {self.told}"
            self.told.append(json.loads(self._connection.recv(timeout=left_s)))

    def until_type(self, type: str, **fields: Any) -> Any:
        """The first message of this type with these fields."""
        return self.until(lambda one: one["type"] == type and fields.items() <= one.items())


@contextmanager
def listening(server: Serving, query: str = "") -> Iterator[Socket]:
    """A client that is told what happens."""
    headers = {"Authorization": f"Bearer {server.token}"}
    with connect(
        f"ws://127.0.0.1:{server.port}/ws{query}", additional_headers=headers, compression=None, proxy=None
    ) as connection:
        yield Socket(connection)
