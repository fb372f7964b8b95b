"""200 event streams and 50 requests a second at a server whose 50 runs stream 20 tokens a second each.

The server, the model's endpoint and the readers are processes of their own. Beside it: a bare Starlette
program that sends as many bytes to as many readers, as often. And what a request costs the server besides the
operation that it asks.

    python -m bench.feeds readers PORT TOKEN PATH …     reads streams until its input ends, and counts
    python -m bench.feeds bare PORT BYTES EVERY_S       sends so many bytes, so often, to whoever asks
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figure import Figure
from bench.models import endpoint
from onward.testing.script import ModelScript, ScriptedReply

STREAMS, RUNS, TOKENS_PER_S, REQUESTS_PER_S = 200, 50, 20, 50
ROUND_S, WARM_S = 15.0, 4.0
TOKEN = "a-token-of-the-benches-of-streams"
TICK_S = 0.15
P99_MS_MAX, ADDED_US_MAX, GROWTH_MB_MAX = 100.0, 150.0, 20.0
ASKED = 300
TALK = 'digraph { start [shape=Mdiamond]; say [prompt="go on"]; exit [shape=Msquare]; start -> say -> exit }'


def settings() -> str:
    """What the server's project says."""
    ceilings = "streams = 1000\nrequests = 100000\nburst = 100000\ncreations = 100000"
    return f"[serve]\n{ceilings}\n"


@contextmanager
def serving(db: str, directory: str, base_url: str) -> Iterator[tuple[int, int]]:
    """A server with a worker; its process and its port."""
    Path(directory, "onward.toml").write_text(settings())
    model = {"ONWARD_MODEL": "scripted", "OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "none-is-needed"}
    environment = {**os.environ, **model, "ONWARD_TOKEN": TOKEN, "ONWARD_DB": db}
    program = os.path.join(os.path.dirname(sys.executable), "onward")
    command = [program, "serve", "--port", "0", "--concurrency", str(RUNS)]
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process.pid, _port(process)
        finally:
            process.kill()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"Onward is at http://[^ ]+:(\d+) ", line):
            return int(found[1])
    raise AssertionError("the server did not begin")


@contextmanager
def reading(port: int, paths: list[str]) -> Iterator[Callable[[], dict[str, int]]]:
    """Readers of these streams in a process of their own; calling it counts what they have got since."""
    command = [sys.executable, "-m", "bench.feeds", "readers", str(port), TOKEN, *paths]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def count() -> dict[str, int]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("count\n")
            process.stdin.flush()
            found: dict[str, int] = json.loads(process.stdout.readline())
            return found

        try:
            yield count
        finally:
            process.kill()


class Asker:
    """One connection that asks again and again."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Asker:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *about: object) -> None:
        self._writer.close()

    async def ask(self, path: str, method: str = "GET", body: Any = None) -> Any:
        content = b"" if body is None else json.dumps(body).encode()
        kind = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n" if content else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Authorization: Bearer {TOKEN}\r\n{kind}\r\n"
        )
        self._writer.write(head.encode() + content)
        told = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        found = re.search(r"content-length: (\d+)", told, re.IGNORECASE)
        text = await self._reader.readexactly(int(found[1]) if found else 0)
        assert told.split(" ", 2)[1] in ("200", "201"), (told, text)
        return json.loads(text)


async def latencies(port: int, path: str, seconds: float) -> list[float]:
    """Milliseconds of each request, counted from when it was to be sent."""
    found: list[float] = []
    began = time.perf_counter()
    async with contextlib.AsyncExitStack() as stack:
        askers = [await stack.enter_async_context(Asker(port)) for _ in range(10)]
        free: asyncio.Queue[Asker] = asyncio.Queue()
        for one in askers:
            free.put_nowait(one)

        async def ask(due_s: float) -> None:
            asker = await free.get()
            await asker.ask(path)
            free.put_nowait(asker)
            found.append((time.perf_counter() - due_s) * 1_000)

        async with asyncio.TaskGroup() as group:
            for number in range(int(seconds * REQUESTS_PER_S)):
                due_s = began + number / REQUESTS_PER_S
                await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
                group.create_task(ask(due_s))
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """How much memory a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def feeds_cost(name: str, db: str, directory: str, rounds: int) -> list[Figure]:
    """The figures of one database."""
    length = int((rounds * ROUND_S + 60) * TOKENS_PER_S)
    reply = ScriptedReply(text="word" * length, chunk=4, delay_s=1 / TOKENS_PER_S, is_over_ceiling=True)
    with endpoint(directory, ModelScript(default=reply)) as url, serving(db, directory, url) as (pid, port):
        added_us = await _added_us(port, pid)
        runs = await _begin(port)
        paths = [f"/api/messages?of={runs[number % RUNS]}" for number in range(STREAMS)]
        with reading(port, paths) as count:
            await asyncio.sleep(WARM_S)
            p99s, shares, sizes, told = [], [], [resident_mb(pid)], []
            for _ in range(rounds):
                began_s, used_s, _ = time.perf_counter(), cpu_s(pid), count()
                ms = sorted(await latencies(port, f"/api/runs/{runs[0]}", ROUND_S))
                took_s = time.perf_counter() - began_s
                p99s.append(ms[int(len(ms) * 0.99)])
                shares.append((cpu_s(pid) - used_s) / took_s * 100)
                sizes.append(resident_mb(pid))
                told.append({what: number / took_s for what, number in count().items()})
    bytes_per_s = statistics.median(one["bytes"] for one in told)
    bare = await bare_share(bytes_per_s / STREAMS)
    good = sum(ms < P99_MS_MAX for ms in p99s)
    in_order = " ".join(f"{ms:.0f}" for ms in p99s)
    share, growth = statistics.median(shares), sizes[-1] - sizes[1]
    frames_per_s = statistics.median(one["frames"] for one in told)
    load = f"{frames_per_s:,.0f} frames/s, {bytes_per_s / 1024:,.0f} KiB/s"
    return [
        Figure(
            f"{name}: p99 of a status beside {STREAMS} streams",
            f"{in_order} ms ({load})",
            f"< {P99_MS_MAX:g} ms in {_most(rounds)} of {rounds}",
            good >= _most(rounds),
        ),
        Figure(
            f"{name}: memory beside them",
            f"{sizes[0]:.0f} MB, {sizes[-1]:.0f} MB at the end",
            f"grows < {GROWTH_MB_MAX:g} MB",
            growth < GROWTH_MB_MAX,
        ),
        Figure(
            f"{name}: CPU with {RUNS} runs that stream",
            f"{share:.0f} % (bare Starlette, the same bytes alone: {bare:.0f} %)",
            "< 100 %",
            share < 100,
        ),
        Figure(
            f"{name}: CPU of a status over HTTP",
            f"{added_us:.0f} us more than asked directly",
            f"<= {ADDED_US_MAX:g} us",
            added_us <= ADDED_US_MAX,
        ),
    ]


def _most(rounds: int) -> int:
    return max(1, rounds * 4 // 5)


async def _begin(port: int) -> list[str]:
    """Let the runs begin; their ids, once all of them speak."""
    async with Asker(port) as asker:
        await asker.ask("/api/pipelines/talk", "PUT", {"source": TALK})
        runs = [
            (await asker.ask("/api/runs", "POST", {"pipeline": "talk"}))["run"]["id"] for _ in range(RUNS)
        ]
        for run in runs:
            while (status := (await asker.ask(f"/api/runs/{run}"))["status"]) != "running":
                assert status == "queued", status
                await asyncio.sleep(0.05)
    return runs


async def _added_us(port: int, pid: int) -> float:
    """CPU of a status over HTTP, without what the operation costs. Nothing else happens meanwhile."""
    async with Asker(port) as asker:
        await asker.ask("/api/pipelines/talk", "PUT", {"source": TALK})
        wake_us = time.time_ns() // 1_000 + 3_600_000_000
        made = await asker.ask("/api/runs", "POST", {"pipeline": "talk", "wake_at_us": wake_us})
        run = made["run"]["id"]
        await asker.ask(f"/api/runs/{run}")
        used_s = cpu_s(pid)
        for _ in range(ASKED):
            await asker.ask(f"/api/runs/{run}")
        over_http = cpu_s(pid) - used_s
    return (over_http / ASKED - await _direct_s(run)) * 1e6


_database: list[str] = []


async def _direct_s(run: str) -> float:
    """CPU seconds of the operation alone, encoded."""
    import msgspec

    from onward.clock import SystemClock
    from onward.operations.local.look import LocalLook
    from onward.operations.requests import GetRun
    from onward.wiring import open_store

    def nothing() -> Any:
        raise AssertionError

    store = await open_store(_database[-1])
    look = LocalLook(store, SystemClock(), nothing, nothing)
    began = time.process_time()
    for _ in range(ASKED):
        msgspec.json.encode(await look.get_run(GetRun(run=f"id:{run}")))
    took = time.process_time() - began
    await store.close()
    return took / ASKED


async def bare_share(bytes_per_s: float) -> float:
    """CPU of a program that only sends, in percent."""
    size = max(1, int(bytes_per_s * TICK_S))
    command = [sys.executable, "-m", "bench.feeds", "bare", str(size), str(TICK_S)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with reading(port, ["/stream"] * STREAMS):
            await asyncio.sleep(2)
            used_s, began_s = cpu_s(process.pid), time.perf_counter()
            await asyncio.sleep(8)
            share = (cpu_s(process.pid) - used_s) / (time.perf_counter() - began_s) * 100
        process.kill()
    return share


async def read_streams(port: int, token: str, paths: list[str]) -> None:
    """Read all of them, and print what came whenever a line is read."""
    got = {"bytes": 0, "frames": 0}

    async def read(path: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
            f"Accept: text/event-stream\r\n\r\n".encode()
        )
        while data := await reader.read(2**16):
            got["bytes"] += len(data)
            got["frames"] += data.count(b"\nid: ")

    tasks = [asyncio.create_task(read(path)) for path in paths]
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(got), flush=True)
        got.update(bytes=0, frames=0)
    for task in tasks:
        task.cancel()


async def send_bare(size: int, every_s: float) -> None:
    """Starlette and uvicorn, and nothing else."""
    import socket

    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    text = b"x" * size

    async def body() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(every_s)
            yield text

    async def stream(request: Request) -> StreamingResponse:
        return StreamingResponse(body(), media_type="text/event-stream")

    app = Starlette(routes=[Route("/stream", stream)])
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(2048)
        print(sock.getsockname()[1], flush=True)
        config = uvicorn.Config(app, http="h11", lifespan="off", access_log=False, log_config=None)
        await uvicorn.Server(config).serve(sockets=[sock])


async def feeds(name: str, fresh: Callable[[], str], directory: str, rounds: int) -> list[Figure]:
    """The figures of a new database."""
    _database.append(fresh())
    return await feeds_cost(name, _database[-1], directory, rounds)


if __name__ == "__main__":
    if sys.argv[1] == "readers":
        asyncio.run(read_streams(int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
    else:
        asyncio.run(send_bare(int(sys.argv[2]), float(sys.argv[3])))
