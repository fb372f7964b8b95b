"""Counters, gauges and histograms, each with a bounded number of label sets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

from onward.observe.exposition import Family, Sample, number

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
