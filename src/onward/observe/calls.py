"""What one process counts about calls: how they end, what they cost, and the text that streams from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onward.model.call import AttemptHeld, CallFinished
from onward.model.events import Event
from onward.observe.exposition import Family
from onward.observe.series import Counter, Gauge, Histogram
from onward.store.port.messages import Flushed, Growth

CALLS_S = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
FLUSHES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
REFUSED = "refused"
"""The error of a flush whose message is not streaming under the writer's lease any more."""


class CallMetrics:
    """Counters of a worker's calls. `observe` sees what was committed, `flushed` what was streamed."""

    def __init__(self) -> None:
        self.calls = Counter(
            "onward_calls_total",
            "Calls that ended in this worker, by kind, model and status: ok or error.",
            *("kind", "model", "status"),
        )
        self.seconds = Histogram(
            "onward_call_seconds", "How long calls took, by kind and model.", "kind", "model", buckets=CALLS_S
        )
        self.lost = Counter(
            "onward_calls_lost_total",
            "Calls that will never be answered, because their attempt, holder or run ended first.",
        )
        self.tokens = Counter(
            "onward_tokens_total",
            "Tokens of model requests, by model and kind: reasoning is part of output, others of input.",
            *("model", "kind"),
        )
        self.cost = Counter("onward_cost_dollars_total", "What calls with a known price cost.", "model")
        self.holds = Counter(
            "onward_holds_total",
            "Attempts that stopped between two calls, by reason: limit, rate_limit, gate or pause.",
            "reason",
        )
        self.waiting = Gauge(
            "onward_reservations_waiting", "Calls that wait for what other calls have reserved."
        )
        self.streams = Gauge("onward_streams_open", "Messages into which calls of this worker stream.")
        self.chunks = Counter("onward_flushed_chunks_total", "Chunks of messages that were stored.")
        self.bytes = Counter("onward_flushed_bytes_total", "Bytes of text that were stored in messages.")
        self.flushes = Histogram(
            "onward_flush_seconds", "Flushes of streams, until the database confirmed.", buckets=FLUSHES_S
        )
        self.flush_failures = Counter(
            "onward_flush_failures_total",
            "Flushes that failed, by error; refused: the message's call has ended, or its lease was lost.",
            "error",
        )

    def observe(self, event: Event) -> None:
        """Count an event that was committed."""
        if isinstance(event, CallFinished):
            if not event.by:  # else a person said what came of a lost call
                self._finished(event)
        elif isinstance(event, AttemptHeld):
            self.holds.add(event.reason)

    def _finished(self, event: CallFinished) -> None:
        self.calls.add(event.type, event.model, event.status.value)
        self.seconds.observe(event.duration_us / 1_000_000, event.type, event.model)
        usage = event.usage
        if usage is not None:
            for kind in ("input", "output", "cached", "reasoning", "cache_write"):
                self.tokens.add(event.model, kind, by=getattr(usage, kind))
        if event.cost_micro is not None:
            self.cost.add(event.model, by=event.cost_micro / 1_000_000)

    def flushed(self, batch: Sequence[Growth], answers: Sequence[Flushed], took_s: float) -> None:
        """Count a flush that was answered. What was put off for the next one is counted there."""
        self.flushes.observe(took_s)
        for sent, came in zip(batch, answers, strict=True):
            if came is Flushed.STORED:
                self.chunks.add(by=len(sent.chunks))
                self.bytes.add(by=sum(_size(text) for _, text in sent.chunks))
            elif came is Flushed.REFUSED:
                self.flush_failures.add(REFUSED)

    def families(self) -> Iterator[Family]:
        """All of them, in the order of the page."""
        for series in vars(self).values():
            yield series.family()


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
