"""A real receiver on loopback: keeps what it was sent, and answers as it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Mapping[str, str], bytes]
FINE: Answer = (204, {}, b"")


@dataclass
class Receiver:
    """What came, in order, and how the next is answered: by `answer`, which may take as long as it likes."""

    url: str = ""
    answer: Callable[[], Answer] = lambda: FINE
    bodies: list[dict[str, Any]] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [headers["webhook-id"] for headers in self.headers]

    @property
    def events(self) -> list[str]:
        return [body["event"] for body in self.bodies]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver, as long as the block lasts."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
            receiver.raw.append(body)
            receiver.bodies.append(json.loads(body))
            status, headers, content = receiver.answer()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that hung up is what some tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook?team=a"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
