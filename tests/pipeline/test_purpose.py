"""Which messages a pipeline is for: what its graph says, how words are found, and what is refused."""

from __future__ import annotations

import pytest

from onward.pipeline.graph import BUILT_IN_TYPES
from onward.pipeline.purpose import MessageKind, Purpose, purpose_of
from onward.pipeline.rules.check import check
from tests.pipeline.reading import graph_of

GRAPH = "digraph g {{ graph [{}] start [shape=Mdiamond] exit [shape=Msquare] start -> exit }}"


def findings(attributes: str) -> list[str]:
    found = check(graph_of(GRAPH.format(attributes)), known_types=BUILT_IN_TYPES)
    return [f"{one.rule} {one.severity.value}: {one.message}; {one.fix}" for one in found]


def test_a_graph_names_intents_and_scopes_with_words_and_descriptions() -> None:
    attributes = (
        'intents="build, fix", intent.build="something new", intent.build.words="Create, from  scratch", '
        "intent.fix.has_files=true, scopes=all"
    )
    assert findings(attributes) == []
    assert purpose_of(graph_of(GRAPH.format(attributes))) == Purpose(
        (
            MessageKind("build", ("create", "from scratch"), "something new"),
            MessageKind("fix", has_files=True),
        ),
        (MessageKind("all"),),
    )


def test_a_graph_that_says_nothing_is_for_nothing_in_particular() -> None:
    assert purpose_of(graph_of(GRAPH.format(""))) == Purpose()


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        (
            'intents="build, build"',
            "attribute_type error: intents of the graph is 'build, build'; write",
        ),
        (
            'scopes="a b"',
            "scopes of the graph is 'a b'; write at most 50 different names",
        ),
        (
            'intent.sing="x"',
            "messages_described error: intent.sing of the graph is 'x'; name sing in",
        ),
        ('scopes=a, scope.a.word="x"', "write scope.a or scope.a.words"),
        ('scopes=a, scope.a.words="x,,y"', "write at most 200 words or phrases of up to 100 characters"),
        ('scopes=a, scope.a.words="!"', "write at most 200 words"),
        ('scopes=a, scope.a.words="^!x"', "write at most 200 words"),
        ("scopes=a, scope.a.has_files=true", "write scope.a or scope.a.words"),
        ('intents=a, intent.a.word="x"', "write intent.a, intent.a.words or intent.a.has_files"),
        ("intents=a, intent.a.has_files=maybe", "is 'maybe'; write true or false"),
        ('intents=a, intent.a=""', "write a description of at most 1,000 characters"),
        (
            'intent="build"',
            "attribute_known warning: intent of the graph has no effect; did you mean",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_to_write(attributes: str, expected: str) -> None:
    (found,) = findings(attributes)
    assert expected in found


def test_what_was_refused_says_nothing() -> None:
    """A source that was stored before a rule forbade it is still read."""
    attributes = 'intents=a, intent.a.words="!", intent.a.has_files=maybe, scopes="a b"'
    assert purpose_of(graph_of(GRAPH.format(attributes))) == Purpose((MessageKind("a"),))


@pytest.mark.parametrize(
    ("words", "text", "fits"),
    [
        ("", "A kind word", True),
        ("", "unkind", False),
        ("new", "Something NEW!", True),
        ("new", "renewed", False),
        ("from scratch", "write it\nfrom   scratch.", True),
        ("doesn't", "it doesn’t work", True),
        ("^what", "What is this", True),
        ("^what", "say what", False),
        ("?", "is it? ", True),
        ("?", "これは何ですか？", True),
        ("?", "is it? Yes.", False),
        ("?, !^could you", "could you do it?", False),
        ("!kind", "kind", False),
        ("ページ", "日本語のページです", True),
        ("c++", "write it in C++", True),
        ("a.b", "axb", False),
    ],
)
def test_words_are_found_whole_and_in_any_case(words: str, text: str, fits: bool) -> None:
    kind = MessageKind("kind", tuple(word.strip() for word in words.split(",") if word))
    assert kind.fits(text, has_files=False) is fits


def test_files_make_a_kind_fit_unless_it_is_excluded() -> None:
    kind = MessageKind("fix", ("!new",), has_files=True)
    assert kind.fits("make it blue", has_files=True)
    assert not kind.fits("make it blue", has_files=False)
    assert not kind.fits("something new", has_files=True)


ONE_NODE = "digraph g {{ start [shape=Mdiamond] exit [shape=Msquare] start -> a -> exit; a [{}] }}"


@pytest.mark.parametrize(
    ("value", "count"), [("true", 20), ("false", 0), ("0", 0), ("200", 200), ('"20"', 20), ('"true"', 20)]
)
def test_how_much_of_its_chat_an_agent_sees_is_a_number_or_a_boolean(value: str, count: int) -> None:
    graph = graph_of(ONE_NODE.format(f"prompt=x, chat_history={value}"))
    assert check(graph, known_types=BUILT_IN_TYPES) == ()
    assert graph.nodes["a"].chat_history == count


@pytest.mark.parametrize("value", ["201", "some", "-1", "2s"])
def test_another_value_is_refused(value: str) -> None:
    (found,) = check(graph_of(ONE_NODE.format(f"prompt=x, chat_history={value}")), known_types=BUILT_IN_TYPES)
    assert found.fix == "write true, false, or how many messages, from 0 to 200"


def test_only_an_agent_sees_its_chat() -> None:
    node = 'shape=parallelogram, tool_command="x", chat_history=true'
    (found,) = check(graph_of(ONE_NODE.format(node)), known_types=BUILT_IN_TYPES)
    assert (found.rule, found.severity.value) == ("attribute_unused", "warning")
    assert found.message == "chat_history of node 'a' has no effect: it is a shell command"
