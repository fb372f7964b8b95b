"""A typo, a misplaced attribute or another program's word never disarms a gate in silence."""

from __future__ import annotations

import pytest

from onward.errors import InvalidPipeline
from onward.pipeline.build import build
from onward.pipeline.graph import SHAPE_KINDS
from onward.pipeline.rules.attributes import EDGE_TYPES, GRAPH_TYPES, NODE_TYPES
from onward.pipeline.source import Diagnostic, Severity
from onward.pipeline.vocabulary import (
    EDGE_ATTRIBUTES,
    FOREIGN_GRAPH,
    FOREIGN_NODE,
    GRAPH_ATTRIBUTES,
    GUARDS,
    NODE_ATTRIBUTES,
)
from tests.pipeline.reading import findings

ERROR, WARNING = Severity.ERROR, Severity.WARNING


def one(statements: str, rule: str) -> Diagnostic:
    (found,) = findings(f"digraph {{\n{statements}\n}}", rule)
    return found


def told(statements: str, rule: str) -> tuple[str, Severity, str, str | None]:
    found = one(statements, rule)
    return f"{found.line}:{found.column}", found.severity, found.message, found.fix


# -- shapes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "severity", "fix"),
    [
        ("hexgon", ERROR, "did you mean 'hexagon', a human gate?"),
        ("Hexagon", ERROR, "did you mean 'hexagon', a human gate?"),
        ("msquare", ERROR, "did you mean 'Msquare', the exit?"),
        ("tripleoctogon", ERROR, "did you mean 'tripleoctagon', a fan-in?"),
        ("tab", WARNING, "write shape=box for an agent"),
        ("circle", WARNING, "write shape=Mdiamond for the start, or shape=box for an agent"),
        ("folder", WARNING, "write shape=house for another pipeline, or shape=box for an agent"),
        ("octagon", WARNING, "write shape=hexagon for a human gate, or shape=box for an agent"),
    ],
)
def test_an_unknown_shape_comes_with_what_to_write(shape: str, severity: Severity, fix: str) -> None:
    """A shape that no program knows is a typo; one that only Graphviz knows is an agent."""
    place, found, message, advice = told(f"a [label=x, shape={shape}]", "shape_known")
    assert (place, found, advice) == ("2:19", severity, fix)
    assert message.startswith(f"shape of node 'a' is {shape!r}, which ")


@pytest.mark.parametrize("shape", SHAPE_KINDS)
def test_every_shape_of_ours_has_words_for_people(shape: str) -> None:
    """A new kind of node must not turn a typo, or an attribute without effect, into a crash."""
    typo = one(f"a [shape={shape.swapcase()}]", "shape_known")
    assert (typo.fix or "").startswith(f"did you mean {shape!r}, ")
    unread = "join_policy=wait_all" if shape == "house" else "manager.max_cycles=3"
    assert " has no effect: it is " in one(f"a [shape={shape}, {unread}]", "attribute_unused").message


def test_a_shape_that_is_near_none_of_ours_lists_them() -> None:
    assert (one("a [shape=banana]", "shape_known").fix or "").startswith(
        "write one of Mdiamond, Msquare, box"
    )


@pytest.mark.parametrize(
    "statements",
    [
        'ask [shape=octagon]; a; b; ask -> a [label="[Y] Yes"]; ask -> b [label="[N] No"]',
        'ask [shape=octagon, human.question="Ship it?"]',
    ],
)
def test_a_gate_with_another_shape_is_an_error_because_it_would_not_ask(statements: str) -> None:
    assert one(statements, "shape_known").severity is ERROR


@pytest.mark.parametrize(
    "statements",
    [
        "a [shape=rect]; b [shape=rectangle]; c [shape=box]; d",
        "a [shape=tab, type=codergen]",  # the type decides
        "start [shape=circle]; exit [shape=doublecircle]",  # the name decides
    ],
)
def test_a_shape_that_decides_nothing_may_be_any(statements: str) -> None:
    assert findings(f"digraph {{ {statements} }}", "shape_known") == ()


# -- names of attributes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statements", "severity", "message", "fix"),
    [
        ("a [goalgate=true]", ERROR, "goalgate of node 'a' has no effect", "did you mean goal_gate?"),
        ("a [goalGate=true]", ERROR, "goalGate of node 'a' has no effect", "did you mean goal_gate?"),
        ("a [goal_gates=true]", ERROR, "goal_gates of node 'a' has no effect", "did you mean goal_gate?"),
        ("a [shpae=hexagon]", ERROR, "shpae of node 'a' has no effect", "did you mean shape?"),
        ('a [tpye="wait.human"]', ERROR, "tpye of node 'a' has no effect", "did you mean type?"),
        ("a [repeatble=false]", ERROR, "repeatble of node 'a' has no effect", "did you mean repeatable?"),
        (
            "a [shape=hexagon, human.timout=1h]",
            ERROR,
            "human.timout of node 'a' has no effect",
            "did you mean human.timeout?",
        ),
        (
            'a; a -> a [conditon="outcome=success"]',
            ERROR,
            "conditon of edge a -> a has no effect",
            "did you mean condition?",
        ),
        (
            "a [tool_comand=ls]",
            WARNING,
            "tool_comand of node 'a' has no effect",
            "did you mean tool_command?",
        ),
        ("a [max_retrys=2]", WARNING, "max_retrys of node 'a' has no effect", "did you mean max_retries?"),
        ("graph [defaultFidelity=full]", WARNING, "defaultFidelity of the graph has no effect", None),
        ("node [goalgate=true]; a; b", ERROR, "goalgate of node [...] has no effect", None),
        ("a [type=mine, goalgate=true]", ERROR, "goalgate of node 'a' has no effect", None),
    ],
)
def test_an_attribute_that_is_nearly_ours_is_named(
    statements: str, severity: Severity, message: str, fix: str | None
) -> None:
    """It is an error where without the attribute a gate, a condition or a promise would not hold."""
    found = one(statements, "attribute_known")
    assert (found.severity, found.message) == (severity, message)
    assert fix is None or found.fix == fix


@pytest.mark.parametrize(
    ("statements", "severity", "message"),
    [
        (
            'a [condition="outcome=success"]',
            ERROR,
            "condition of node 'a' has no effect: it belongs to an edge",
        ),
        ("graph [goal_gate=true]", ERROR, "goal_gate of the graph has no effect: it belongs to a node"),
        ("a [max_steps=3]", WARNING, "max_steps of node 'a' has no effect: it belongs to the graph"),
        ("timeout=5s", WARNING, "timeout of the graph has no effect: it belongs to a node"),
        ("a; a -> a [prompt=x]", WARNING, "prompt of edge a -> a has no effect: it belongs to a node"),
    ],
)
def test_an_attribute_in_the_wrong_place_is_sent_to_the_right_one(
    statements: str, severity: Severity, message: str
) -> None:
    found = one(statements, "attribute_known")
    assert (found.severity, found.message) == (severity, message)


@pytest.mark.parametrize(
    ("statements", "fix"),
    [
        ("a [shape=parallelogram, script=ls]", "write tool_command"),
        ("a [model=large]", "write llm_model"),
        ("a [retries=3]", "write max_retries"),
        ("a [shape=hexagon, mode=yes_no]", "write human.type"),
        ("max_node_visits=3", "write max_visits"),
        ("a [handler=mine]", "write type=mine if you register such a handler, or remove it"),
    ],
)
def test_an_attribute_that_others_read_is_translated(statements: str, fix: str) -> None:
    found = one(statements, "attribute_known")
    assert (found.severity, found.fix) == (WARNING, fix)


def test_a_gate_that_another_program_would_open_is_an_error() -> None:
    """`handler=wait.human` asks a person there; here the node would be an agent, which does not ask."""
    found = one('a [handler="wait.human"]', "attribute_known")
    assert (found.severity, found.fix) == (ERROR, "write type=wait.human")
    for quiet in ('a [shape=hexagon, handler="wait.human"]', "a [type=mine, handler=yours]"):
        assert findings(f"digraph {{ {quiet} }}", "attribute_known") == ()


@pytest.mark.parametrize(
    "statements",
    [
        'a [color=red, style=filled, xlabel=x, height=2, fontname="Arial", tooltip=t, agent=me]',
        "a [human.metadata.ticket=7, shape=hexagon]; rankdir=LR; bgcolor=red",
        "a [type=mine, script=x, condition=y, max_visits=3, model=z]",  # its handler may read them
        "a [types=x, source=y, status=z, key=k, path=p, message=m, outputs=o, priority=high]",
        "a; a -> a [color=red, arrowhead=none, constraint=false, minlen=2]",
        "a [llm_model=x, model=y]",
    ],
)
def test_an_attribute_of_nobody_is_left_alone(statements: str) -> None:
    """Handlers read attributes of their own, and Graphviz draws by its own."""
    assert findings(f"digraph {{ {statements} }}", "attribute_known") == ()


def test_the_vocabulary_has_every_attribute_that_is_typed() -> None:
    """A new attribute that is not in the vocabulary would be taken for a typo of another."""
    assert set(GRAPH_TYPES) <= GRAPH_ATTRIBUTES
    assert set(NODE_TYPES) <= NODE_ATTRIBUTES
    assert set(EDGE_TYPES) <= EDGE_ATTRIBUTES
    every = GRAPH_ATTRIBUTES | NODE_ATTRIBUTES | EDGE_ATTRIBUTES
    assert every >= GUARDS
    foreign = [*FOREIGN_GRAPH.values(), *(name for names in FOREIGN_NODE.values() for name in names.values())]
    assert {name.split()[0] for name in foreign} - every == {"node"}


# -- attributes on the wrong kind of node ------------------------------------------------------------


@pytest.mark.parametrize(
    ("statements", "severity", "message"),
    [
        ("a [shape=diamond, prompt=x]", WARNING, "prompt of node 'a' has no effect: it is a routing node"),
        ("start [prompt=x]; exit", WARNING, "prompt of node 'start' has no effect: it is the start"),
        (
            "a [shape=parallelogram, tool_command=ls, prompt=x]",
            WARNING,
            "prompt of node 'a' has no effect: it is a shell command",
        ),
        ("a [shape=component, prompt=x]", WARNING, "prompt of node 'a' has no effect: it is a fan-out"),
        ("a [tool_command=ls]", ERROR, "tool_command of node 'a' has no effect: it is an agent"),
        ('a [human.question="?"]', ERROR, "human.question of node 'a' has no effect: it is an agent"),
        ("exit [goal_gate=true]", ERROR, "goal_gate of node 'exit' has no effect: it is the exit"),
        ("a [manager.max_cycles=3]", WARNING, "manager.max_cycles of node 'a' has no effect: it is an agent"),
        ("a [join_policy=wait_all]", WARNING, "join_policy of node 'a' has no effect: it is an agent"),
    ],
)
def test_an_attribute_that_its_node_does_not_read_is_named(
    statements: str, severity: Severity, message: str
) -> None:
    """An error where the run would pass what it should test, ask or require."""
    found = one(statements, "attribute_unused")
    assert (found.severity, found.message) == (severity, message)


@pytest.mark.parametrize(
    "statements",
    [
        "a [shape=hexagon, prompt=x]; b [shape=tripleoctagon, prompt=x]; c [shape=house, prompt=x]",
        "node [human.timeout=1h, tool_command=ls, prompt=x]; a; b [shape=diamond]",  # for whoever reads it
        "a [type=mine, tool_command=ls, human.type=yes_no, prompt=x]",
        "exit [goal_gate=false]; a [goal_gate=true]; b [shape=diamond, goal_gate=true]",
    ],
)
def test_an_attribute_that_may_be_read_is_left_alone(statements: str) -> None:
    assert findings(f"digraph {{ {statements} }}", "attribute_unused") == ()


def test_a_label_with_the_goal_is_no_prompt_and_a_prompt_with_it_keeps_its_place() -> None:
    source = (
        'digraph {\ngoal="win"\nstart [label="to $goal"]\nexit\n'
        'd [shape=diamond,\nprompt="is $goal met"]\nstart -> d -> exit\n}'
    )
    (found,) = build(source, file="<test>").warnings
    assert (found.rule, found.line, found.column) == ("attribute_unused", 6, 8)


# -- outcomes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "fix"),
    [
        ("outcome=succeeded", "did you mean outcome=success?"),
        ("outcome=SUCCESS", "did you mean outcome=success?"),
        ("outcome=failed", "did you mean outcome=fail?"),
        ("outcome=sucess", "did you mean outcome=success?"),
        ("context.x=1 && outcome=partial", "did you mean outcome=partial_success?"),
        (
            "outcome=approved",
            "write one of success, partial_success, retry, fail; for other words use preferred_label or the "
            "context",
        ),
    ],
)
def test_a_word_that_no_outcome_is_comes_with_the_right_one(condition: str, fix: str) -> None:
    """Nothing else can be taken there, so the run would stop and say so: a warning."""
    place, severity, message, advice = told(f'a; b; a -> b [condition="{condition}"]', "outcome_known")
    assert (severity, advice) == (WARNING, fix)
    assert place == f"2:{26 + condition.rindex('=') + 1}"
    assert message.endswith("which is not an outcome: it is never true")


@pytest.mark.parametrize(
    "statements",
    [
        'a -> b [condition="outcome!=failed"]',  # always true: failures go there too
        't [shape=diamond]; t -> a [condition="outcome=failed"]; t -> b',  # a failure goes to b
        'a -> b [condition="outcome=passed"]; a -> c',  # a success goes to c
        'a -> b [condition="outcome=failed"]; a -> c [condition="outcome!=success"]',
        't [continue_on_fail=true]; t -> a [condition="outcome=failed"]; t -> b',
        'a -> b [condition="outcom!=fail"]',
        't [shape=diamond]; t -> a [condition="outcom=fail"]; t -> b',
    ],
)
def test_a_word_that_no_outcome_is_is_an_error_if_another_edge_is_taken_instead(statements: str) -> None:
    """It would let a failure pass for a success, or the other way around."""
    assert one(f"a; b; c; {statements}", "outcome_known").severity is ERROR


@pytest.mark.parametrize(
    "statements",
    [
        'a -> b [condition="outcome=failed"]; a -> c',  # a failure follows no plain edge: the run stops
        'a -> b [condition="outcome=failed"]; a -> c [condition="outcome=success"]',
        'a -> b [condition="outcom=success"]',
    ],
)
def test_a_word_that_no_outcome_is_is_a_warning_if_the_run_would_stop(statements: str) -> None:
    assert one(f"a; b; c; {statements}", "outcome_known").severity is WARNING


@pytest.mark.parametrize(
    "condition",
    [
        *(
            f"outcome{sign}{word}"
            for sign in ("=", "!=")
            for word in ("success", "partial_success", "retry", "fail")
        ),
        "outcome",
        'outcome=\\"\\"',
        "context.outcomes=x",
        "preferred_label=failed",
        "came_out=failed",
    ],
)
def test_a_condition_that_can_be_true_is_left_alone(condition: str) -> None:
    assert findings(f'digraph {{ a; a -> a [condition="{condition}"] }}', "outcome_known") == ()


# -- ways to the exit --------------------------------------------------------------------------------


def test_nodes_that_cannot_reach_the_exit_are_named_together() -> None:
    found = one("start; exit; a; b; c\nstart -> a -> exit; a -> b -> c -> b", "exit_reachable")
    assert (found.line, found.column, found.severity) == (2, 17, WARNING)
    assert found.message == ("no edge leads from 'b', 'c' to the exit: a run that reaches them cannot finish")
    assert found.fix == "add an edge with a condition, for example b -> exit"


@pytest.mark.parametrize(
    "statements",
    [
        "start -> a -> b -> a; b -> exit",
        "start -> a -> exit; a -> b",  # a dead end, which has its own rule
        "start -> a -> exit; a -> b -> c -> b [loop_restart=true]",
        "b [retry_target=a]; start -> a -> exit; a -> b -> c -> b",
    ],
)
def test_nodes_from_which_a_run_can_end_are_left_alone(statements: str) -> None:
    assert findings(f"digraph {{ start; exit; a; b; c; {statements} }}", "exit_reachable") == ()


# -- as a whole --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "gate",
    [
        "ask [shape=hexgon]",
        "ask [shpae=hexagon]",
        "ask [tpye=wait.human]",
        "ask [handler=wait.human]",
        "ask [node_type=wait.human]",
        'ask [human.question="Ship it?"]',
        "ask [shape=hexagon]; work [goalgate=true]",
        "ask [shape=hexagon]; work [goal_gat=true]",
    ],
)
def test_no_typo_disarms_a_gate(gate: str) -> None:
    """Each of these ran to its end without asking, or without the goal gate."""
    extra = "" if "work" in gate else "; work [prompt=p]"
    source = f"digraph {{ start; exit; {gate}{extra}; start -> work -> ask -> exit }}"
    with pytest.raises(InvalidPipeline):
        build(source, file="<test>")


LOOP = "start; exit; impl [prompt=x]; test [shape=parallelogram, tool_command=true]; ask [shape=hexagon]\n"
ROUND = 'start -> impl -> test; test -> impl [condition="outcome=fail"]; test -> exit'


def test_a_loop_through_an_agent_that_nothing_ends_is_named() -> None:
    found = one(f"{LOOP} {ROUND}; exit_by [shape=hexagon]", "loop_bounded")
    assert found.severity is Severity.WARNING
    assert found.node_id == "impl"
    assert found.message == (
        "nothing ends the loop of 'impl', 'test' if its condition is never true: it calls its model again"
    )
    assert "max_visits=10" in (found.fix or "")


@pytest.mark.parametrize(
    "statements",
    [
        f"graph [max_visits=5]; {LOOP} {ROUND}",
        f"graph [max_steps=50]; {LOOP} {ROUND}",
        f"{LOOP} {ROUND}; test [max_visits=5]",
        f"{LOOP} start -> impl -> ask; ask -> impl [label=again]; ask -> exit [label=done]",
        f'{LOOP} start -> test; test -> test [condition="outcome=fail"]; test -> impl -> exit',
        LOOP + ROUND.replace('outcome=fail"', 'outcome=fail", loop_restart=true'),
        f"{LOOP} start -> impl -> exit",
    ],
)
def test_a_loop_that_something_ends_or_without_an_agent_is_none(statements: str) -> None:
    assert findings(f"digraph {{ {statements} }}", "loop_bounded") == ()


def test_an_agent_that_leads_to_itself_is_a_loop() -> None:
    found = one(
        f'{LOOP} start -> impl; impl -> impl [condition="outcome=fail"]; impl -> exit', "loop_bounded"
    )
    assert found.node_id == "impl"
