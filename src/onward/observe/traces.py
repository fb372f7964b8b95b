"""Sends the spans of runs to an OpenTelemetry collector. Imported only where `traces` is set.

The spans are those of `spans`; a thread of the SDK sends them in batches. A collector that is away costs
spans, and never work: nothing here can fail a run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import Status, StatusCode

from onward.model.events import Event
from onward.model.run import Run
from onward.observe.spans import RunSpan, SpanMaker, span_id, trace_id
from onward.threads import in_thread
from onward.version import VERSION

log = logging.getLogger("onward.traces")
SEND_S = 5.0
"""How long the end of a process waits for the last spans."""
PATH = "/v1/traces"


class Traces:
    """Observes an engine, and sends what becomes of its runs."""

    def __init__(self, collector: str) -> None:
        address = collector if collector.rstrip("/").endswith(PATH) else collector.rstrip("/") + PATH
        own = Resource({SERVICE_NAME: "onward", SERVICE_VERSION: VERSION})
        found = Resource.create()
        is_named = not str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service")
        self._resource = own.merge(found) if is_named else found.merge(own)
        self._scope = InstrumentationScope("onward", VERSION)
        self._sending = BatchSpanProcessor(OTLPSpanExporter(endpoint=address, timeout=SEND_S))
        self._maker = SpanMaker()
        self._is_warned = False

    def observe(self, run: Run, events: Sequence[Event]) -> None:
        """Note what was committed."""
        try:
            for span in self._maker.spans(run, events):
                self._sending.on_end(self._readable(span))
        except Exception:  # whatever it is, the run goes on
            if not self._is_warned:
                self._is_warned = True
                log.exception("spans are lost")

    async def close(self) -> None:
        """Send the rest, as far as the collector takes it in a few seconds."""
        try:
            await asyncio.wait_for(in_thread(self._sending.shutdown), SEND_S)
        except TimeoutError:
            log.warning("the trace collector did not accept the last spans within %g s", SEND_S)

    def _readable(self, span: RunSpan) -> ReadableSpan:
        links = []
        if span.linked_run is not None:
            links.append(Link(_place(trace_id(span.linked_run), span_id(span.linked_run))))
        return ReadableSpan(
            span.name,
            context=_place(span.trace, span.span),
            parent=None if span.parent is None else _place(span.trace, span.parent),
            resource=self._resource,
            attributes=span.attributes,
            links=links,
            kind=SpanKind.CLIENT if span.is_request else SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.OK),
            start_time=span.begun_at_us * 1_000,
            end_time=max(span.ended_at_us, span.begun_at_us) * 1_000,
            instrumentation_scope=self._scope,
        )


def _place(trace: int, span: int) -> SpanContext:
    return SpanContext(trace, span, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
