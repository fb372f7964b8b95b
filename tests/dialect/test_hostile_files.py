"""Files that were written to hurt, taken through the whole preparation: reading, transforms and checks.

Each is answered with diagnostics that stand inside the text, or is a pipeline; soon, without a traceback, and
without anything being opened, imported, compiled or started on the way.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.errors import InvalidPipeline
from onward.pipeline.branches import LOOKS_MAX, joins
from onward.pipeline.build import Pipeline, build
from onward.pipeline.dot import STATEMENTS_MAX
from onward.pipeline.source import SOURCE_BYTES_MAX, Diagnostic, decode
from onward.pipeline.stylesheet import SETTINGS_MAX
from tests.pipeline.reading import FILE, body

# A second is what a person is promised; a machine that does many things at once can be thirty times slower.
pytestmark = pytest.mark.timeout(120)

N = 100_000
_watched: list[str] | None = None
_watcher = 0
"""The thread that is watched: what other threads of the process do is not about the file."""
_HARMLESS = ("object.__getattr__", "object.__setattr__", "sys._getframe", "code.__new__", "gc.")


def _watch(event: str, arguments: object) -> None:
    if _watched is not None and get_ident() == _watcher and not event.startswith(_HARMLESS):
        _watched.append(event)


sys.addaudithook(_watch)


@contextmanager
def nothing_happens() -> Iterator[None]:
    """Fail if Python opens, imports, compiles, executes or starts anything meanwhile."""
    global _watched, _watcher
    gc.disable()  # what other tests left may end processes when it is collected
    _watched, _watcher = [], get_ident()
    try:
        yield
    finally:
        # The watch ends before it is judged: telling of a failure imports and compiles, which it would see.
        seen, _watched = _watched, None
        gc.enable()
    assert seen == []


def outcome(text: str) -> Pipeline | tuple[Diagnostic, ...]:
    """The pipeline, or every diagnostic; each must have a place inside the text."""
    found: Pipeline | tuple[Diagnostic, ...]
    try:
        found = build(text, file=FILE)
    except InvalidPipeline as error:
        found = error.diagnostics
        assert found
    lines = text.count("\n") + text.count("\r") + 1
    for diagnostic in found.warnings if isinstance(found, Pipeline) else found:
        assert 1 <= diagnostic.line <= lines
        assert 1 <= diagnostic.column <= len(text) + 1
        assert "\n" not in str(diagnostic)
        assert len(str(diagnostic)) < 2_000
    return found


def flow(statements: str) -> str:
    return f"digraph G {{ start; exit; a [label=x]; start -> a -> exit; {statements} }}"


def repeated(pattern: str, count: int, join: str = ";") -> str:
    """The pattern with each number in turn."""
    return join.join(pattern.replace("#", str(number)) for number in range(count))


HOSTILE = {
    "subgraphs nested": "digraph {" + "subgraph {" * N,
    "named subgraphs nested": "digraph {" + "".join(f"subgraph s{n} {{" for n in range(N // 2)),
    "brackets nested": "digraph { a " + "[" * N + "]" * N + "}",
    "brackets as a value": "digraph { a [x=" + "[" * N + "]" * N + "}",
    "braces nested": "digraph " + "{" * N + "}" * N,
    "comments nested": "digraph {" + "/*" * N + "*/" * N + "}",
    "comments in a row": "digraph {" + "/**/ //\n" * N + "}",
    "a comment that never ends": "digraph { /" + "*" * N,
    "attributes": "digraph { a [" + repeated("k#=1", N, ",") + "] }",
    "graph attributes": "digraph { " + repeated("k#=1", N) + " }",
    "a key of many parts": "digraph { a [" + ".".join("k" * N) + "=1] }",
    "a chain of edges": "digraph { " + repeated("n#", N, "->") + " }",
    "edges": "digraph { " + "a->b;" * N + " }",
    "nodes": "digraph { " + repeated("n#", N) + " }",
    "one node again and again": "digraph { " + "a [x=1]\n" * N + " }",
    "defaults": "digraph { " + "node[x=1]\n" * N + " }",
    "errors": "digraph { " + "a [x=\n" * N + " }",
    "edges to nowhere": "digraph { " + "a ->\n" * N + " }",
    "blocks left open": "digraph { " + "a [x=1\nb [y=2\n" * (N // 2) + " }",
    "a huge integer": f"digraph {{ a [max_retries={'9' * 900_000}] }}",
    "a huge decimal": f"digraph {{ a [x={'9' * 400_000}.{'9' * 400_000}] }}",
    "a huge integer in quotes": flow(f'b [max_retries="{"9" * 900_000}"]'),
    "a huge duration": flow(f"b [timeout={'9' * 17}d]"),
    "a huge duration in quotes": flow(f'b [timeout="{"9" * 900_000}s"]'),
    "many signs": f"digraph {{ a [x={'-' * 900_000}1] }}",
    "a long string": flow(f'b [label="{"x" * 1_000_000}"]'),
    "a string of escapes": flow(f'b [label="{chr(92) * 900_000}"]'),
    "a string that never ends": 'digraph { a [x="' + '\\"' * (N * 5),
    "a condition of many clauses": flow(f'a -> exit [condition="{"a=b&&" * N}"]'),
    "a condition of one word": flow(f'a -> exit [condition="{"a" * 900_000}"]'),
    "a condition of many parts": flow(f'a -> exit [condition="{"a." * (4 * N)}"]'),
    "a condition of nothing": flow(f'a -> exit [condition="{" " * 900_000}|"]'),
    "conditions that are wrong": "digraph { " + repeated('a -> b [condition="(#"]', 19_000) + " }",
    "a stylesheet of many rules": flow(f'model_stylesheet="{"*{}" * (3 * N)}"'),
    "a stylesheet of many settings": flow(f'model_stylesheet="*{{{"llm_model:x;" * 80_000}}}"'),
    "a stylesheet that never ends": flow(f'model_stylesheet="{"* {" * (3 * N)}"'),
    "a class as long as the file": flow(f'b [class="{"a" * 900_000}"]; model_stylesheet=".a {{}}"'),
    "a label that makes a class": flow(f'subgraph {{ label="{"é-X " * 200_000}"; a }}'),
    "targets that resemble nodes": "digraph {"
    + repeated("n#", 190)
    + ";"
    + repeated(f"n0 -> {'m' * 40}#", 10_000)
    + "}",
    "byte order marks": "\ufeff" * 300_000 + "digraph {}",
    "line ends": "digraph {" + "\r" * 900_000 + "}",
    "a NUL": "digraph { a\0 }",
    "a NUL in a string": 'digraph { a [label="\0"] }',
    "half a surrogate pair": 'digraph { a [label="\ud800"] }',
    "the other half": "digraph { \udfff }",
    "nothing": "",
    "one mark": "{",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_answered_with_diagnostics_or_read(name: str) -> None:
    """S22: and nothing is executed or read meanwhile."""
    text = HOSTILE[name]
    assert len(text) <= SOURCE_BYTES_MAX
    with nothing_happens():
        outcome(text)


def test_the_watch_sees_what_a_reader_must_not_do() -> None:
    """What the tests above would find out."""
    with pytest.raises(AssertionError, match="open"), nothing_happens(), open(__file__):
        pass
    with pytest.raises(AssertionError, match="compile"), nothing_happens():
        compile("1", "<test>", "eval")


@pytest.mark.parametrize(
    "text",
    [
        "d\u0456graph { a }",  # a Cyrillic i
        "digr\uff41ph { a }",  # a full-width a
        "digraph\u200b { a }",  # a space of no width
        "digraph G \uff5b a \uff5d",
        "digraph { \uff41 -> b }",
        "digraph { a \u2192 b }",
        "digraph { a [label\uff1d1] }",
        "digraph { a [label=\u201cx\u201d] }",
        "digraph { a \u2013> b }",
        "digraph { n\u00f6de [x=1] }",
        "digraph { a\u0301 }",
        "digraph { a [max_retries=\u0663] }",  # an Arabic three
        'digraph { start; exit; a [label=x, max_retries="\u0663"]; start -> a -> exit }',
        'digraph { start; exit; a [label=x, goal_gate="tru\u0435"]; start -> a -> exit }',
        'digraph { start; exit; a [label=x]; start -> a -> exit [condition="outcome\uff1dsuccess"] }',
        'digraph { start; exit; a [label=x]; start -> a -> exit; model_stylesheet="\uff0a {}" }',
    ],
)
def test_what_only_looks_like_the_dialect_is_an_error_with_its_place(text: str) -> None:
    """S22: a look-alike is never taken for the real thing."""
    found = outcome(text)
    assert isinstance(found, tuple)
    assert {diagnostic.severity for diagnostic in found} == {"error"}


def test_look_alikes_inside_text_are_text() -> None:
    """D9: what a person writes for a person is left alone."""
    found = outcome(flow('b [label="d\u0456graph \u2192 \U0001f642"]; a -> b -> exit'))
    assert isinstance(found, Pipeline)
    assert found.graph.nodes["b"].label == "d\u0456graph \u2192 \U0001f642"


@pytest.mark.parametrize("extra", [0, 1])
def test_there_may_be_as_many_statements_as_the_limit(extra: int) -> None:
    """S22."""
    found = outcome("digraph { start exit start -> exit " + "exit " * (STATEMENTS_MAX + extra - 3) + "}")
    messages = [item.message for item in found] if isinstance(found, tuple) else []
    assert messages == ["there are more than 30,000 statements"] * extra


@pytest.mark.parametrize("extra", [0, 1])
def test_a_stylesheet_may_have_as_many_settings_as_the_limit(extra: int) -> None:
    """S22: in one rule or in all together."""
    rest = f"box {{ {'llm_model: x;' * (SETTINGS_MAX - 1 + extra)} }}"
    found = outcome(flow(f'model_stylesheet="* {{ llm_model: y }} {rest}"'))
    messages = [item.message for item in found] if isinstance(found, tuple) else []
    assert messages == ["the model stylesheet does not parse: there are more than 5,000 settings"] * extra


def test_parallels_that_are_knotted_without_end_are_given_up_in_time() -> None:
    """S22: each leads into the next and back again, so no search for a join would ever be short."""
    count = 2_400
    nodes = repeated("p# [shape=component]\nf# [shape=tripleoctagon]", count, "\n")
    edges = "\n".join(f"p{n} -> p{n + 1}; p{n} -> p{max(0, n - 1)}; p{n} -> f{n}" for n in range(count - 1))
    assert count * count > LOOKS_MAX
    assert set(joins(body(f"{nodes}\n{edges}\nexit")).values()) == {None}


VALID = (
    """digraph Smoke {
    goal = "Ship"; default_max_retry = 2
    graph [model_stylesheet="* { llm_model: m; } .deep { reasoning_effort: high } #plan { llm_provider: p }"]
    node [shape=box, timeout="900s"]
    start [shape=Mdiamond] // begin
    plan [prompt="Plan $goal", class="deep,fast"]
    subgraph cluster_0 { label = "Loop A"; build [label="Build \\"it\\"", goal_gate=true, retry_target=plan] }
    done [shape=Msquare]
    start -> plan -> build
    build -> done [condition="outcome=success && context.x != \\"no\\"", weight=2, fidelity="summary:high"]
    build -> plan [condition="outcome=fail", label="[A] Again", loop_restart=false]
}""",
    """digraph {
    start; exit; fork [shape=component, join_policy=first_success, max_parallel=2]
    a [shape=parallelogram, tool_command="true"]; b [shape=hexagon, human.default_choice=join]
    join [shape=tripleoctagon]; m [shape=house, stack.child_dotfile="c.dot", manager.max_cycles=3]
    start -> fork -> a -> join -> m -> exit /* and */ fork -> b -> join
}""",
)
PIECES = [*'{}[]"=,;:/*\\\n\r', "->", "--", "//", "subgraph", "graph [", "node", "true", "9" * 40, "1.5", "é"]
PIECES += ["$goal", "\0", "\ud800", "condition=", "shape=component", "shape=tripleoctagon", "=", "<b>", "#"]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A valid file after a few accidents: something cut out, doubled, moved or put in."""
    text = draw(st.sampled_from(VALID))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        piece = draw(st.sampled_from(["", text[start:end] * 2, *PIECES]))
        place = draw(st.sampled_from([start, draw(st.integers(0, len(text)))]))
        rest = text[:start] + text[end:]
        text = rest[:place] + piece + rest[place:]
    return text


def test_the_files_that_are_mutated_are_valid() -> None:
    for text in VALID:
        assert isinstance(outcome(text), Pipeline)


@given(mutated())
def test_a_file_after_accidents_is_read_or_told_what_is_wrong(text: str) -> None:
    """S22: almost a pipeline is the harder case."""
    outcome(text)


@given(st.sampled_from(VALID), st.data())
def test_bytes_after_accidents_are_read_or_told_what_is_wrong(text: str, data: st.DataObject) -> None:
    """S22: a flipped byte may not even be text."""
    content = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode(bytes(content), FILE)
    except InvalidPipeline as error:
        (diagnostic,) = error.diagnostics
        assert diagnostic.rule == "encoding"
    else:
        outcome(decoded)


@given(st.sampled_from(VALID), st.text(max_size=80))
def test_any_text_may_stand_where_text_is_expected(source: str, text: str) -> None:
    """S22: stylesheets, conditions and prompts are languages of their own, with places of their own."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    for key in ("Plan $goal", "outcome=success", "* { llm_model: m; }", "Loop A", "c.dot", "true"):
        outcome(source.replace(key, quoted))
