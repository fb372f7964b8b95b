"""The page that Prometheus reads: its format, to the letter, and what counters and histograms add up to."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.observe.figures import (
    OTHERS,
    SERIES_MAX,
    Counter,
    Family,
    Gauge,
    Histogram,
    Sample,
    gauge,
    number,
    render,
)
from onward.observe.metrics import Health, Metrics
from onward.observe.pages import Pages
from onward.store.memory.adapter import MemoryDatabase
from onward.testing.clock import ManualClock
from tests.shape.tree import ROOT

LABEL = re.compile(r'^x\{a="((?:[^"\\\n]|\\\\|\\n|\\")*)"\} 1$')
META = re.compile(r"^# (HELP [a-z_]+ \S.*|TYPE [a-z_]+ (counter|gauge|histogram))$")
NAME = re.compile(r"`(onward_[a-z_]+)")
SAMPLE = re.compile(r'^[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? (\+Inf|-?[0-9.e+-]+)$')


def test_a_family_has_its_help_its_type_and_its_samples_in_order() -> None:
    family = Family("x_total", "counter", "Things.", [Sample(2, {"a": "1", "b": "2"}), Sample(0.5, {})])
    assert render([family, gauge("y", "One.", 3)]) == (
        "# HELP x_total Things.\n"
        "# TYPE x_total counter\n"
        'x_total{a="1",b="2"} 2\n'
        "x_total 0.5\n"
        "# HELP y One.\n"
        "# TYPE y gauge\n"
        "y 3\n"
    )


def test_help_and_label_values_are_escaped_each_in_its_own_way() -> None:
    page = render([Family("x", "gauge", 'a "b" \\ \n c', [Sample(1, {"a": 'q"\\\nz'})])])
    assert page.splitlines()[0] == '# HELP x a "b" \\\\ \\n c'
    assert page.splitlines()[2] == 'x{a="q\\"\\\\\\nz"} 1'


@given(st.text())
def test_whatever_a_label_says_it_stays_one_line_and_can_be_read_back(value: str) -> None:
    page = render([Family("x", "gauge", "h", [Sample(1, {"a": value})])])
    lines = page.split("\n")
    assert len(lines) == 4
    found = LABEL.match(lines[2])
    assert found is not None
    read = re.sub(r'\\([\\n"])', lambda match: "\n" if match[1] == "n" else match[1], found[1])
    assert read == value


def test_a_label_that_is_no_text_does_not_break_the_page() -> None:
    render([Family("x", "gauge", "h", [Sample(1, {"a": "\ud800"})])]).encode()


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "0"), (3.0, "3"), (0.25, "0.25"), (1e20, "1e+20"), (math.inf, "+Inf"), (-math.inf, "-Inf")],
)
def test_numbers_are_written_as_the_format_wants_them(value: float, written: str) -> None:
    assert number(value) == written
    assert number(math.nan) == "NaN"


def test_a_counter_counts_by_label_and_a_gauge_is_set() -> None:
    counter, set_to = Counter("c_total", "C.", "pipeline"), Gauge("g", "G.")
    counter.add("a")
    counter.add("b", by=2)
    counter.add("a")
    set_to.set(5)
    set_to.set(4)
    assert [(sample.labels, sample.value) for sample in counter.family().samples] == [
        ({"pipeline": "a"}, 2),
        ({"pipeline": "b"}, 2),
    ]
    assert [sample.value for sample in set_to.family().samples] == [4]


def test_a_bucket_counts_what_is_not_larger_than_its_bound_and_buckets_add_up() -> None:
    histogram = Histogram("h", "H.", "kind", buckets=(0.1, 1))
    for measured in (0.05, 0.1, 0.5, 1.0, 7.0):
        histogram.observe(measured, "tool")
    lines = render([histogram.family()]).splitlines()[2:]
    assert lines == [
        'h_bucket{kind="tool",le="0.1"} 2',
        'h_bucket{kind="tool",le="1"} 4',
        'h_bucket{kind="tool",le="+Inf"} 5',
        'h_sum{kind="tool"} 8.65',
        'h_count{kind="tool"} 5',
    ]
    assert histogram.count("tool") == 5


@given(st.lists(st.floats(min_value=0, max_value=1e6)))
def test_a_histogram_never_counts_less_in_a_larger_bucket(measured: list[float]) -> None:
    histogram = Histogram("h", "H.", buckets=(0.5, 1, 10, 1e5))
    for one in measured:
        histogram.observe(one)
    *buckets, total, count = (sample.value for sample in histogram.family().samples)
    assert buckets == sorted(buckets)
    assert buckets[-1] == count == len(measured)
    assert total == pytest.approx(sum(measured))


def test_names_that_nobody_limits_cannot_fill_the_memory() -> None:
    counter = Counter("c_total", "C.", "pipeline")
    for name in range(SERIES_MAX + 100):
        counter.add(f"p{name}")
    counter.add("p0")
    assert len(counter.family().samples) == SERIES_MAX + 1
    assert (counter.value("p0"), counter.value(OTHERS)) == (2, 100)


def test_every_metric_of_a_worker_is_well_formed_and_listed_once() -> None:
    metrics = Metrics()
    metrics.claims.add("p")
    metrics.steps.observe(0.2, "p", "tool")
    families = list(metrics.families())
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert all((family.kind == "counter") == family.name.endswith("_total") for family in families)
    for row in render(families).splitlines():
        assert META.match(row) or SAMPLE.match(row), row


async def test_every_metric_is_in_the_operators_page() -> None:
    """And the page explains none that does not exist."""
    store = MemoryDatabase().connect()
    pages = Pages(Metrics(), Health(0.0), store.measures.measure, ManualClock(), "1")
    served = set(re.findall(r"^# TYPE (\S+)", (await pages.answer("/metrics")).body, re.MULTILINE))
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`onward_.*?) \|", text, re.MULTILINE)
    assert served == {name for row in rows for name in NAME.findall(row)}
