"""Choices that carry data: from the edges of a gate, or proposed by a step, to the steps after the answer."""

from __future__ import annotations

from typing import Any

import pytest

from onward.errors import InvalidInput
from onward.machine.plan.action import Stop
from onward.model.events import RunFailed, StepFinished
from onward.model.gate import GateOpened
from onward.pipeline.gate import edge_of
from onward.store.codec import seal, unseal
from onward.store.port.log import Position
from tests.machine.play import Play

AHEAD = "b [type=tool]; c [type=tool]; b -> exit; c -> exit; start -> g; "
ONE = "b [type=tool]; b -> exit; start -> g; "
CALM = {"description": "much white", "colors": ["#fff", "#0a3"], "columns": 2}
WRITTEN = (
    'g [shape=hexagon, label="Which?"]; '
    r'g -> b [label="[C] Calm", data="{\"description\": \"much white\", \"colors\": [\"#fff\", \"#0a3\"], '
    r'\"columns\": 2}"]; '
    'g -> c [label="[P] Plain"]'
)
PROPOSED = (
    'g [shape=hexagon, label="Which?", human.options="plan.ways", ATTRS]; g -> b; g -> c [label="[N] New"]'
)


def proposed(ways: Any, attrs: str = "") -> Play:
    return Play(AHEAD + PROPOSED.replace("ATTRS", attrs), {"plan": {"ways": ways}})


def opened(play: Play) -> GateOpened:
    return next(event for event in play.events if isinstance(event, GateOpened))


def offers(play: Play) -> list[tuple[str, str, str, dict[str, Any]]]:
    return [(choice.key, choice.label, choice.to, choice.data) for choice in opened(play).choices]


def answer(play: Play, choice: str) -> None:
    play.answer(choice)
    play.claim()


def finished(play: Play) -> StepFinished:
    return next(e for e in play.events if isinstance(e, StepFinished) and e.step == "g#1")


# -- edges with data -----------------------------------------------------------------------------------


def test_the_data_of_an_edge_are_stored_with_its_choice() -> None:
    play = Play(AHEAD + WRITTEN)
    assert offers(play) == [("C", "[C] Calm", "b", CALM), ("P", "[P] Plain", "c", {})]
    assert play.run.gates["g#1"].choices == opened(play).choices


def test_an_event_with_data_comes_back_from_the_store_and_one_without_is_stored_as_ever() -> None:
    event = opened(Play(AHEAD + WRITTEN))
    [record] = seal("r", Position(0, b""), [event], token=1, at_us=5).records
    assert unseal(record) == event
    assert '{"key":"P","label":"[P] Plain","to":"c"}' in record.body


def test_later_steps_find_the_data_of_what_was_chosen_whole_and_by_member() -> None:
    play = Play(AHEAD + WRITTEN)
    answer(play, "C")
    assert finished(play).context == {
        "human.gate.selected": "C",
        "human.gate.label": "[C] Calm",
        "human.gate.data": CALM,
        **{f"human.gate.data.{name}": value for name, value in CALM.items()},
    }


def test_an_answer_without_data_leaves_none_and_clears_those_of_the_gate_before() -> None:
    again = AHEAD.replace("b -> exit", "b -> g2").replace("c -> exit", "") + (
        "c -> exit; g2 [shape=hexagon, label=Then]; g2 -> exit [label=Fine]; "
    )
    play = Play(again + WRITTEN)
    answer(play, "C")
    play.succeed()
    answer(play, "F")
    context = play.run.root.context
    assert (context["human.gate.label"], context["human.gate.data"]) == ("Fine", {})
    assert context["human.gate.data.columns"] is None
    plain = Play(AHEAD + WRITTEN)
    answer(plain, "P")
    assert "human.gate.data" not in finished(plain).context


def test_the_edges_of_a_yes_no_question_may_carry_data() -> None:
    play = Play(ONE + r'g [shape=hexagon, label=Go, human.type=yes_no]; g -> b [data="{\"fast\": true}"]')
    assert offers(play) == [("Y", "Yes", "b", {"fast": True}), ("N", "No", "", {})]


# -- options that a step proposes ----------------------------------------------------------------------


def test_each_option_is_a_choice_that_leads_along_the_edge_without_a_label() -> None:
    """A step proposes directions, and each of them is a choice."""
    play = proposed(
        [
            "Quiet",
            {"label": "Loud", "description": "large type", "data": {"colors": ["#f00"]}},
            {"name": "Old", "columns": 1},
        ]
    )
    assert offers(play) == [
        ("Q", "Quiet", "b", {}),
        ("L", "Loud", "b", {"description": "large type", "colors": ["#f00"]}),
        ("O", "Old", "b", {"name": "Old", "columns": 1}),
        ("N", "[N] New", "c", {}),
    ]
    answer(play, "loud")
    step = finished(play)
    assert step.next is not None
    assert (step.next.to, step.next.edge) == ("b", 3)
    assert step.context["human.gate.data"] == {"description": "large type", "colors": ["#f00"]}


def test_a_written_choice_beside_the_options_keeps_its_own_edge() -> None:
    play = proposed(["Quiet"])
    answer(play, "N")
    assert play.run.root.next_node == "c"
    again = Play(
        ONE + 'g [shape=hexagon, human.options=ways]; g -> b [label="[B] Best"]; g -> b', {"ways": ["Quiet"]}
    )
    graph = again.definition.graph
    found = [edge_of(graph, "g", choice) for choice in opened(again).choices]
    assert [edge.label for edge in found if edge is not None] == ["[B] Best", ""]


def test_the_node_that_several_options_lead_to_names_none_of_them() -> None:
    """We do not guess what a person meant."""
    play = proposed(["Quiet", "Loud"])
    with pytest.raises(InvalidInput, match="has no choice 'b'"):
        play.answer("b")
    one = proposed(["Quiet"])
    answer(one, "b")
    assert finished(one).context["human.gate.label"] == "Quiet"


def test_the_deadline_takes_the_first_option_if_the_default_is_where_options_lead() -> None:
    """O0-11: without an answer in time, option 0 is taken."""
    play = proposed(["Quiet", "Loud"], "human.default_choice=b, human.timeout=1s")
    assert (opened(play).default, opened(play).on_timeout) == ("Q", "default")


@pytest.mark.parametrize(
    ("ways", "why"),
    [
        (None, "are missing; a step before the gate must set them"),
        ([], "are an empty list; a step before"),
        ("Quiet", "are no list; a step before"),
        ([{"description": "x"}], "option 1 of plan.ways has no label; give it one, as a string"),
        (["Quiet", {"label": " "}], "option 2 of plan.ways has no label"),
        ([7], "option 1 of plan.ways is '7'; it must be a string, or an object with a label"),
        ([{"label": "x", "data": 1}], "data of option 1 of plan.ways is '1'; it must be an object"),
        ([{"label": "x", "data": {"a": "b" * 9_000}}], "has more than 8,192 bytes; keep it short"),
        (["x"] * 51, "are 51; offer at most 50"),
    ],
)
def test_options_that_cannot_be_offered_stop_the_run_with_what_is_wrong(ways: Any, why: str) -> None:
    """The reason is recoverable: a resume from the step that proposes asks with what it proposes then."""
    play = proposed(ways)
    assert isinstance(play.action, Stop)
    [failed] = [event for event in play.events if isinstance(event, RunFailed)]
    assert (failed.reason, why in failed.detail) == ("pipeline_error", True)
