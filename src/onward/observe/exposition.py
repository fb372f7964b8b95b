"""The text format that Prometheus reads, version 0.0.4."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

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
