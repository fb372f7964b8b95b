"""A server as a process, and a client that speaks to it over its socket."""

from __future__ import annotations

import http.client
import json
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.shell import PATIENCE_S, Done, Shell, Started, wait_until

READY = r"Onward is at (http://[^ ]+) · sign in: ([^ \n]+)\n"


@dataclass
class Answered:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Serving:
    """One server that is running."""

    shell: Shell
    process: Started
    port: int
    link: str
    told: str

    @property
    def token(self) -> str:
        """The token of this machine, from its file."""
        if "ONWARD_TOKEN" in self.shell.environment:
            return self.shell.environment["ONWARD_TOKEN"]
        return token_file(self.shell).read_text().strip()

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, **headers: str
    ) -> Answered:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        sent = {"Authorization": f"Bearer {token or self.token}"} if token != "" else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = None if body is None else json.dumps(body)
        if content is not None:
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, path, content, sent)
            reply = connection.getresponse()
            return Answered(reply.status, dict(reply.getheaders()), reply.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        reply = self.ask("GET", path)
        assert reply.status == 200, reply.body
        return reply.json

    def post(self, path: str, body: Any = None) -> Any:
        reply = self.ask("POST", path, {} if body is None else body)
        assert reply.status < 300, reply.body
        return reply.json

    def add(self, name: str, source: str) -> None:
        reply = self.ask("PUT", f"/api/pipelines/{name}", {"source": source})
        assert reply.status == 200, reply.body

    def until(self, run: str, status: str) -> Any:
        """The run, once it has this status."""
        wait_until(lambda: bool(self.get(f"/api/runs/{run}")["status"] == status), f"{run} {status}")
        return self.get(f"/api/runs/{run}")

    def kill(self) -> None:
        """End it without a word."""
        self.process.process.kill()
        self.process.process.wait()

    def stop(self) -> Done:
        self.process.signal(signal.SIGTERM)
        return self.process.end()


def token_file(shell: Shell) -> Path:
    """Where the token of this machine is."""
    if "://" in shell.db:
        return shell.directory / ".onward" / "token"
    place = shell.directory / shell.db
    return place.parent / "token" if place.parent.name == ".onward" else Path(f"{place}-token")


def start(shell: Shell, *words: str, allow_shell: bool = True) -> Serving:
    """A server that accepts requests, also for pipelines with commands, unless it is to be as it comes."""
    flags = ("--allow-shell",) if allow_shell else ()
    process = shell.start("serve", "--port", "0", *flags, *words)
    process.wait_for(READY)
    told = process._out.text
    found = re.search(READY, told)
    assert found is not None
    return Serving(shell, process, int(found[1].rpartition(":")[2]), found[2], told)


@contextmanager
def serving(shell: Shell, *words: str, allow_shell: bool = True) -> Iterator[Serving]:
    """A server inside the block."""
    server = start(shell, *words, allow_shell=allow_shell)
    try:
        yield server
    finally:
        if server.process.process.poll() is None:
            server.kill()
