"""Spans of runs, at a collector."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from onward.agents.model import ToolCall
from onward.observe.spans import span_id, trace_id
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.cli.agents import with_model
from tests.cli.shell import Shell, pipeline

TALK = 'a [prompt="Look around", allowed_tools="list"]; start -> a -> exit'
LOOKS = ScriptRule(nth=1, reply=ScriptedReply(tool_calls=(ToolCall("c1", "list", "{}"),)))


class Collector:
    """Receives OTLP over HTTP."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        found = self.spans

        class Receive(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                sent = ExportTraceServiceRequest.FromString(body)
                for resource in sent.resource_spans:
                    for scope in resource.scope_spans:
                        found.extend(scope.spans)
                self.send_response(200 if self.path == "/v1/traces" else 404)
                self.send_header("Content-Type", "application/x-protobuf")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Receive)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def named(self, name: str) -> Any:
        """The only span of this name."""
        (span,) = (span for span in self.spans if span.name == name)
        return span


def about(span: Any) -> dict[str, Any]:
    """The attributes of a span."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@pytest.fixture
def collector(shell: Shell) -> Iterator[Collector]:
    """A collector, which the shell's onward.toml names."""
    collector = Collector()
    shell.write("onward.toml", f'traces = "{collector.address}"\n')
    yield collector
    collector.close()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, str(tmp_path / "onward.db"))
    yield shell
    shell.close()


def test_a_run_its_steps_and_its_calls_are_spans(shell: Shell, collector: Collector) -> None:
    """With the names that the conventions for generative AI give to models, tools and tokens."""
    shell.write("work.dot", f"digraph work {{ start [shape=Mdiamond]; exit [shape=Msquare]; {TALK} }}")
    with with_model(shell, ModelScript(rules=(LOOKS,), default=ScriptedReply(text="Empty."))):
        assert shell("run", "work.dot", "--run-id", "seen", "--chat", "talk").code == 0
    run, step, tool = (collector.named(name) for name in ("run work", "step a", "execute_tool list"))
    assert not run.parent_span_id
    assert step.parent_span_id == run.span_id == span_id("seen").to_bytes(8, "big")
    assert {span.trace_id for span in collector.spans} == {trace_id("seen").to_bytes(16, "big")}
    asked = [span for span in collector.spans if span.name == "chat gpt-4o-mini"]
    assert [span.parent_span_id for span in (*asked, tool)] == [step.span_id] * 3
    first = about(asked[0])
    assert (first["gen_ai.operation.name"], first["gen_ai.provider.name"]) == ("chat", "openai")
    assert (first["gen_ai.request.model"], first["gen_ai.conversation.id"]) == ("gpt-4o-mini", "talk")
    assert first["gen_ai.usage.input_tokens"] > 0 < first["gen_ai.usage.output_tokens"]
    assert about(tool)["gen_ai.tool.name"] == "list"
    assert run.start_time_unix_nano <= step.start_time_unix_nano <= asked[0].start_time_unix_nano
    assert asked[0].end_time_unix_nano <= step.end_time_unix_nano <= run.end_time_unix_nano


def test_a_run_that_another_process_resumes_is_the_same_trace(shell: Shell, collector: Collector) -> None:
    """The failed attempt of the first and the steps of the second hang below one run."""
    shell.write("work.dot", pipeline(("a", "true"), ("b", "test -e mended")))
    assert shell("run", "work.dot", "--run-id", "seen").code == 1
    assert collector.named("attempt 1").status.message
    (held,) = (span for span in collector.spans if span.name.startswith("hold "))
    assert about(held)["onward.run.status"] == "failed"
    shell.write("mended", "")
    assert shell("resume", "seen").code == 0
    (run,) = (span for span in collector.spans if span.name.startswith("run "))
    assert {span.trace_id for span in collector.spans} == {run.trace_id}
    failed, mended = collector.named("attempt 1"), collector.named("step b")
    assert failed.parent_span_id == mended.span_id
    assert mended.parent_span_id == held.parent_span_id == run.span_id


def test_a_collector_that_is_away_costs_no_work(shell: Shell) -> None:
    shell.write("onward.toml", 'traces = "http://127.0.0.1:9"\n')
    shell.write("work.dot", pipeline(("a", "true")))
    assert shell("run", "work.dot").code == 0


def test_without_the_setting_nothing_of_it_is_imported(tmp_path: Path) -> None:
    """Nor is it needed: the extra may be missing."""
    program = "import sys; from onward import Onward; import asyncio\n"
    program += "async def main():\n    async with Onward('x.db'): pass\nasyncio.run(main())\n"
    program += "print([name for name in sys.modules if name.startswith('opentelemetry')])"

    async def run() -> bytes:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program), cwd=tmp_path, stdout=asyncio.subprocess.PIPE
        )
        return (await process.communicate())[0]

    assert asyncio.run(run()) == b"[]\n"


def test_a_collector_must_be_an_address(shell: Shell) -> None:
    shell.write("onward.toml", 'traces = "yes"\n')
    assert "write a collector, such as http://127.0.0.1:4318" in shell.inside("status").err
