"""Numbers in the text format that Prometheus reads (0.0.4), and those of the database.

Counters, gauges and histograms have a bounded number of label sets. The database's numbers are for the page
of metrics and for `onward stats`.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from onward.model.run import RunStatus
from onward.model.values import rfc3339
from onward.store.owner import owner_label
from onward.store.port.runs import EndedRuns, HeldRuns, Measured, Undelivered

if TYPE_CHECKING:
    from onward.replies.database import NotificationsCounted, QueueMeasured, RunsCounted, Stats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(msgspec.Struct, frozen=True):
    """One number; `suffix` is added to the name of its family."""

    value: float
    labels: Mapping[str, str]
    suffix: str = ""


class Family(msgspec.Struct, frozen=True):
    """The samples of one metric: `kind` is counter, gauge or histogram."""

    name: str
    kind: str
    help: str
    samples: Sequence[Sample]


def render(families: Iterable[Family]) -> str:
    """A page."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += [
            f"{family.name}{sample.suffix}{_labels(sample.labels)} {number(sample.value)}"
            for sample in family.samples
        ]
    return "\n".join([*lines, ""])


def gauge(name: str, help: str, value: float) -> Family:
    """One number that goes up and down."""
    return Family(name, "gauge", help, [Sample(value, {})])


def number(value: float) -> str:
    """A number as the format writes it; whole ones without a point."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str, *, quotes: bool = False) -> str:
    """Escape backslashes, newlines and invalid text, and in label values quotation marks."""
    text = text.encode("utf-8", "backslashreplace").decode().replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


SERIES_MAX = 500
OTHERS = "(other)"
"""The label of everything beyond `SERIES_MAX`, so that names cannot fill the memory."""


class _Labelled:
    """A metric: its name, its help text, and its labels in order."""

    KIND = ""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name, self.help, self.labels = name, help, labels

    def _bounded(self, known: Mapping[tuple[str, ...], object], values: tuple[str, ...]) -> tuple[str, ...]:
        assert len(values) == len(self.labels), f"{self.name} has the labels {self.labels}"
        if values in known or len(known) < SERIES_MAX:
            return values
        return (OTHERS,) * len(values)

    def _named(self, values: tuple[str, ...]) -> dict[str, str]:
        return dict(zip(self.labels, values, strict=True))


class Counter(_Labelled):
    """A number that only grows."""

    KIND = "counter"

    def __init__(self, name: str, help: str, *labels: str) -> None:
        super().__init__(name, help, *labels)
        self._values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, *values: str, by: float = 1) -> None:
        """Count; `values` are the values of the labels."""
        key = self._bounded(self._values, values)
        self._values[key] = self._values.get(key, 0) + by

    def value(self, *values: str) -> float:
        """The count so far."""
        return self._values.get(values, 0)

    def family(self) -> Family:
        """As a part of the page."""
        samples = [Sample(value, self._named(key)) for key, value in sorted(self._values.items())]
        return Family(self.name, self.KIND, self.help, samples)


class Gauge(Counter):
    """A number that is set, or read when the page is made."""

    KIND = "gauge"
    _read: Callable[[], float] | None = None

    def follow(self, read: Callable[[], float]) -> None:
        """Let the number be what `read` says whenever the page is made."""
        self._read = read

    def family(self) -> Family:
        """As a part of the page."""
        if self._read is not None:
            self.set(self._read())
        return super().family()

    def set(self, value: float, *values: str) -> None:
        """Set the number."""
        self._values[self._bounded(self._values, values)] = value


class _Spread:
    """One histogram's numbers: how many in each bucket, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.total = 0.0


class Histogram(_Labelled):
    """The distribution of measurements; a bucket counts those that are not larger than its bound."""

    KIND = "histogram"

    def __init__(self, name: str, help: str, *labels: str, buckets: Sequence[float]) -> None:
        super().__init__(name, help, *labels)
        assert list(buckets) == sorted(set(buckets)), f"the buckets of {name} are in order"
        self._bounds = tuple(buckets)
        self._spreads: dict[tuple[str, ...], _Spread] = {} if labels else {(): _Spread(len(buckets))}

    def observe(self, measured: float, *values: str) -> None:
        """Count a measurement; `values` are the values of the labels."""
        key = self._bounded(self._spreads, values)
        spread = self._spreads.get(key)
        if spread is None:
            spread = self._spreads[key] = _Spread(len(self._bounds))
        spread.counts[bisect_left(self._bounds, measured)] += 1
        spread.total += measured

    def count(self, *values: str) -> int:
        """The number of measurements."""
        spread = self._spreads.get(values)
        return 0 if spread is None else sum(spread.counts)

    def family(self) -> Family:
        """The samples for the page; buckets are cumulative, as the format requires."""
        samples: list[Sample] = []
        for key, spread in sorted(self._spreads.items()):
            labels, so_far = self._named(key), 0
            for bound, found in zip((*self._bounds, float("inf")), spread.counts, strict=True):
                so_far += found
                samples.append(Sample(so_far, {**labels, "le": number(bound)}, "_bucket"))
            samples += [Sample(spread.total, labels, "_sum"), Sample(so_far, labels, "_count")]
        return Family(self.name, self.KIND, self.help, samples)


ENDINGS = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)
NONE = EndedRuns(0, 0)


def families_of(found: Measured) -> Iterator[Family]:
    """The metrics of a database. Every worker at it reports the same, so do not sum them over workers."""
    runs = {(status.value, ""): 0 for status, number in found.statuses.items() if not number}
    for stand, number in sorted(found.runs.items()):
        key = stand.status.value, stand.reason
        runs[key] = runs.get(key, 0) + number
    samples = [Sample(number, {"status": status, "reason": why}) for (status, why), number in runs.items()]
    yield Family("onward_runs", "gauge", "Runs in the database, by status and reason.", samples)
    yield gauge("onward_runs_recoverable", "Stopped runs that a person may resume.", found.recoverable)
    yield gauge("onward_runs_held", "Runs that a process holds.", found.held)
    yield gauge(
        "onward_runs_stalled", "Held runs whose holder is dead or whose lease has expired.", found.stalled
    )
    yield gauge("onward_workers_holding", "Processes that hold runs.", len(found.holdings))
    yield gauge("onward_queue_due", "Runs that wait for a worker now.", found.due)
    yield gauge("onward_queue_later", "Runs that wait for their due time.", found.later)
    yield gauge("onward_runs_stuck", "Due runs that could not be claimed.", len(found.stuck))
    yield gauge(
        "onward_queue_unserved",
        "Due runs that no live worker can serve, of the first 10,000 in the queue.",
        sum(found.unserved.values()),
    )
    yield gauge("onward_workers", "Live workers.", sum(worker.is_alive for worker in found.workers))
    yield gauge("onward_queue_age_seconds", "How long the oldest due run has waited.", found.queue_age_s)
    undelivered = found.undelivered
    yield Family(
        "onward_notifications",
        "gauge",
        "Notifications that wait for delivery, and those that failed for good.",
        [
            Sample(undelivered.waiting, {"state": "waiting"}),
            Sample(undelivered.failed, {"state": "failed"}),
        ],
    )
    for window, ended in ended_of(found).items():
        samples = [Sample(number, {"status": status}) for status, number in ended.items()]
        help = f"Runs that ended within the last {window}, by status."
        yield Family(f"onward_runs_ended_last_{window}", "gauge", help, samples)
    yield gauge("onward_database_bytes", "Size of the database.", found.size)


def ended_of(found: Measured) -> dict[str, dict[str, int]]:
    """How many runs ended within the last hour and day, by status; zeros are included."""
    lately = [(status.value, found.ended.get(status, NONE)) for status in ENDINGS]
    return {
        "hour": {status: ended.hour for status, ended in lately},
        "day": {status: ended.day for status, ended in lately},
    }


def _idle(found: Measured) -> Iterator[HeldRuns]:
    """The live workers that hold no run."""
    holding = {one.owner for one in found.holdings}
    for worker in found.workers:
        if worker.is_alive and worker.owner not in holding:
            yield HeldRuns(worker.owner, 0, 0)


def view_measured(found: Measured) -> Stats:
    """As JSON with stable names."""
    return {
        "at": rfc3339(found.at_us),
        "runs": _view_runs(found),
        "queue": _view_queue(found),
        "ended": ended_of(found),
        "workers": [
            {"worker": owner_label(holding.owner), "runs": holding.runs, "stalled": holding.stalled}
            for holding in (*found.holdings, *_idle(found))
        ],
        "notifications": _view_undelivered(found.undelivered),
        "database_bytes": found.size,
    }


def _view_runs(found: Measured) -> RunsCounted:
    return {
        "total": sum(found.runs.values()),
        "by_status": {status.value: number for status, number in found.statuses.items()},
        "by_reason": [
            {
                "status": stand.status.value,
                "reason": stand.reason,
                "recoverable": stand.recoverable,
                "runs": number,
            }
            for stand, number in sorted(found.runs.items())
        ],
        "recoverable": found.recoverable,
        "held": found.held,
        "stalled": found.stalled,
        "waiting": found.statuses[RunStatus.WAITING],
    }


def _view_queue(found: Measured) -> QueueMeasured:
    return {
        "due": found.due,
        "later": found.later,
        "oldest_due": None if found.oldest_due_us is None else rfc3339(found.oldest_due_us),
        "age_s": found.queue_age_s,
        "stuck": [
            {
                "run": stuck.run,
                "failures": stuck.failures,
                "failed_at": rfc3339(stuck.failed_at_us),
                "why": stuck.why,
            }
            for stuck in found.stuck
        ],
        "unserved": [
            {
                "runs": number,
                "workers": waiting.workers,
                "handlers": list(waiting.handlers),
                "directory": waiting.directory,
                "says": waiting.says,
            }
            for waiting, number in found.unserved.items()
        ],
    }


def _view_undelivered(found: Undelivered) -> NotificationsCounted:
    oldest = None if found.oldest_us is None else rfc3339(found.oldest_us)
    return {"waiting": found.waiting, "failed": found.failed, "oldest_waiting": oldest}
