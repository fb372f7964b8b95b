"""The plan of a run: which agents it may come to, known before it starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onward.errors import InvalidInput, Refused
from onward.machine.definition import AGENT, Definition
from onward.machine.plan.route import planned_agents
from onward.model.events import StepStarted, StepStatus
from onward.model.result import Result
from onward.model.run import AttemptState, RunStatus
from tests.chance import examples
from tests.machine.play import Play, define

Draw = Callable[[st.SearchStrategy[Any]], Any]

BUILDER = """
    research [prompt=p]; design [prompt=p]; answer [prompt=p]; review [prompt=p]; fix [prompt=p]
    frontend [prompt=p]; backend [prompt=p]; styling [prompt=p]; summary [prompt=p]
    fan [shape=component]; join [shape=tripleoctagon]; ask [shape=hexagon]; check [type=tool]
    start -> answer [condition="intent=question"]; answer -> exit
    start -> fan [condition="intent=fix"]; start -> research; research -> design -> ask
    ask -> fan [label=Fine]; ask -> design [label=Again]
    fan -> frontend [condition="scope=frontend"]; fan -> frontend [condition="context.scope=full"]
    fan -> backend [condition="scope=backend"]; fan -> backend [condition="scope=full"]
    fan -> styling [condition="scope=styling"]; fan -> styling [condition="scope=full"]
    frontend -> join; backend -> join; styling -> join; join -> review -> check
    check -> fix [condition="outcome=fail"]; fix -> check; check -> summary; summary -> exit
"""
MADE = ("frontend", "backend", "styling")
FINISH = ("review", "fix", "summary")


@pytest.mark.parametrize(
    ("intent", "scope", "expected"),
    [
        ("build", "full", ("research", "design", *MADE, *FINISH)),
        ("build", "styling", ("research", "design", "styling", *FINISH)),
        ("fix", "backend", ("backend", *FINISH)),
        ("question", "full", ("answer",)),
    ],
)
def test_the_plan_follows_from_intent_and_scope(intent: str, scope: str, expected: tuple[str, ...]) -> None:
    """The same intent and scope always give the same plan."""
    assert planned_agents(define(BUILDER), {"intent": intent, "scope": scope}) == expected


def test_what_is_not_known_may_turn_out_either_way() -> None:
    assert planned_agents(define(BUILDER), {"intent": "fix"}) == (*MADE, *FINISH)
    everything = planned_agents(define(BUILDER), {})
    assert sorted(everything) == sorted(("research", "design", "answer", *MADE, *FINISH))


def test_an_edge_below_one_whose_condition_is_certain_is_never_taken() -> None:
    body = """a [prompt=p]; b [prompt=p]; c [prompt=p]; d [shape=diamond]; start -> d
        a -> exit; b -> exit; c -> exit
        d -> a [condition="intent=build"]; d -> b; d -> c [condition="outcome=success", weight=WEIGHT]"""
    certain = {"intent": "build"}
    assert planned_agents(define(body.replace("WEIGHT", "-1")), certain) == ("a",)
    assert planned_agents(define(body.replace("WEIGHT", "1")), certain) == ("a", "c")


def test_a_person_may_choose_any_edge_of_a_gate_and_a_failure_may_jump() -> None:
    body = """a [prompt=p]; b [prompt=p]; c [prompt=p, retry_target=d]; d [prompt=p]; g [shape=hexagon]
        start -> g; g -> a; g -> b [condition="intent=fix"]; a -> c; b -> c; c -> exit; d -> exit
        c -> d [condition="intent=never"]"""
    assert planned_agents(define(body), {"intent": "build"}) == ("a", "b", "c", "d")


def test_what_a_restart_executes_is_the_plan_of_another_run() -> None:
    body = """a [prompt=p]; b [prompt=p]; start -> a; a -> exit; b -> exit
        a -> b [condition="outcome=fail", loop_restart=true]"""
    assert planned_agents(define(body), {}) == ("a",)


def test_attributes_of_the_graph_are_known_too() -> None:
    body = """mode=fast; a [prompt=p]; b [prompt=p]; a -> exit
        start -> a [condition="graph.mode=fast"]; start -> b -> exit"""
    assert planned_agents(define(body), {}) == ("a",)


# -- properties ----------------------------------------------------------------------------------------

KINDS = ("prompt=p", "prompt=p", "type=tool", "shape=diamond", "shape=hexagon")
GUARDS = (
    *("", "", "intent=build", "intent!=build", "context.scope=full", "scope=styling"),
    *("outcome=success", "outcome=fail", "k=1", "intent=build && k=1", "scope"),
)
EXTRAS = ("", "", "retry_target=n0", "goal_gate=true", "continue_on_fail=true")
INPUTS = st.fixed_dictionaries(
    {"intent": st.sampled_from(["build", "fix"]), "scope": st.sampled_from(["full", "styling"])}
)
SOME_INPUTS = st.dictionaries(st.sampled_from(["intent", "scope"]), st.sampled_from(["build", "full"]))


@st.composite
def pipelines(draw: Draw, *, loops: bool = True) -> Definition:
    """A few nodes that hang together anyhow; the last but one may fan out to all before the exit."""
    count = draw(st.integers(1, 5))
    names = [f"n{number}" for number in range(count)]
    kinds = KINDS if loops else KINDS[:4]
    lines = ["max_visits=4; max_steps=30; max_reroutes=2"]
    for name in names:
        lines.append(
            f"{name} [{draw(st.sampled_from(kinds))}, {draw(st.sampled_from(EXTRAS)) if loops else ''}]"
        )
    edges = [("start", "n0")]
    edges += [(names[draw(st.integers(0, index - 1))], names[index]) for index in range(1, count)]
    edges.append((names[-1], "exit"))
    for _ in range(draw(st.integers(0, 4))):
        source = draw(st.integers(0, count - 1))
        targets = [*names[0 if loops else source + 1 :], "exit"]
        edges.append((names[source], draw(st.sampled_from(targets))))
    for source, target in edges:
        guard = draw(st.sampled_from(GUARDS if loops else GUARDS[:6]))
        lines.append(f'{source} -> {target} [condition="{guard}", weight={draw(st.integers(0, 1))}]')
    if draw(st.booleans()):
        lines += ["f [shape=component]; j [shape=tripleoctagon]; j -> exit; n0 -> f"]
        lines += [f"b{number} [prompt=p]; b{number} -> j" for number in range(2)]
        lines += [f'f -> b{number} [condition="{draw(st.sampled_from(GUARDS[:6]))}"]' for number in range(2)]
    return define("; ".join(lines))


def executed(play: Play, draw: Draw | None = None) -> list[str]:
    """Bring a run to some end, and name its agents in the order in which they first started."""
    for _ in range(40):
        under_way = [step for step in play.run.open_steps.values() if step.state is AttemptState.OPEN]
        if under_way and play.run.status is RunStatus.RUNNING:
            results = [StepStatus.SUCCESS, StepStatus.SUCCESS, StepStatus.FAIL]
            status = draw(st.sampled_from(results)) if draw else StepStatus.SUCCESS
            updates = {"k": draw(st.integers(0, 1))} if draw else {}
            result = Result(status=status, context_updates=updates, failure_reason="r", retryable=False)
            play.end(under_way[0].step, result)
        elif play.run.status is RunStatus.WAITING and draw:
            [gate] = [gate for gate in play.run.gates.values() if gate.decided is None][:1]
            try:
                play.answer(draw(st.sampled_from([choice.key for choice in gate.choices])))
            except (Refused, InvalidInput):
                break
            play.claim()
        else:
            break
    started = [event.node for event in play.events if isinstance(event, StepStarted)]
    return [node for node in dict.fromkeys(started) if play.definition.kind(node) == AGENT]


@given(pipelines(), INPUTS, st.data())
@examples(150)
def test_no_agent_starts_that_is_not_in_the_plan(
    definition: Definition, inputs: dict[str, str], data: st.DataObject
) -> None:
    plan = planned_agents(definition, inputs)
    assert set(executed(Play(definition, inputs), data.draw)) <= set(plan)
    assert len(set(plan)) == len(plan)


@given(pipelines(loops=False), INPUTS)
@examples(100)
def test_if_inputs_decide_every_condition_the_plan_is_what_runs_in_this_order(
    definition: Definition, inputs: dict[str, str]
) -> None:
    play = Play(definition, inputs)
    ran = executed(play)
    plan = planned_agents(definition, inputs)
    assert list(plan[: len(ran)]) == ran
    if play.run.status is RunStatus.COMPLETED and all(
        _is_decided(definition, node) for node in definition.graph.nodes
    ):
        assert list(plan) == ran


def _is_decided(definition: Definition, node: str) -> bool:
    """Whether at most one plain edge leaves it: a label could choose another one."""
    return sum(not edge.guard.clauses for edge in definition.graph.outgoing(node)) <= 1


@given(pipelines(), SOME_INPUTS, INPUTS)
@example(define(BUILDER), {}, {"intent": "fix", "scope": "styling"})
@examples(100)
def test_to_know_more_never_adds_an_agent(
    definition: Definition, some: dict[str, str], more: dict[str, str]
) -> None:
    assert set(planned_agents(definition, {**more, **some})) <= set(planned_agents(definition, some))


def test_a_plan_of_a_large_pipeline_needs_no_deep_stack() -> None:
    chain = " -> ".join(["start", *(f"n{number}" for number in range(3_000)), "exit"])
    nodes = "; ".join(f"n{number} [prompt=p]" for number in range(3_000))
    plan = planned_agents(define(f"{nodes}; {chain}"), {})
    assert plan == tuple(f"n{number}" for number in range(3_000))
