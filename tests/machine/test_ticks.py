"""The ticks of a run: kept so that a step costs little, and the same as if all were looked through."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from onward.machine.ticks import TICKS_MAX, begun, ended, read_ticks, ticks_text, way_of
from onward.model.events import StepStatus
from onward.model.run import NO_TICKS, AttemptState, Run
from tests.chance import examples

NODES = [f"n{number}" for number in range(60)]
DONE = {"+": StepStatus.SUCCESS, "!": StepStatus.FAIL, "-": StepStatus.SKIPPED}


def run_with(**fields: Any) -> Run:
    """As much of a run as ticks look at."""
    at = fields.pop("at", None)
    known = {
        "ticks": NO_TICKS,
        "way": (),
        "steps_finished": 0,
        "open_steps": {},
        "gates": {},
        "parallels": {},
    }
    known |= {"is_final": False, "branches": {"": SimpleNamespace(next_node=at)}}
    return cast(Run, SimpleNamespace(**(known | fields)))


@examples(200)
@given(st.lists(st.tuples(st.sampled_from(NODES[:6]), st.sampled_from("*+!-"), st.booleans()), max_size=90))
def test_ticks_are_the_newest_steps_in_the_order_in_which_they_began(
    plan: list[tuple[str, str, bool]],
) -> None:
    ticks, shown = NO_TICKS, dict[str, str]()
    visits, opened = dict[str, int](), list[tuple[str, str]]()
    finished = 0
    for node, sign, ends_older in plan:
        if ends_older and opened and sign != "*":
            step, node = opened.pop(0)
        else:
            visits[node] = visits.get(node, 0) + 1
            step = f"{node}#{visits[node]}"
        if sign == "*":
            ticks = begun(ticks, step, node)
            opened.append((step, node))
        else:
            ticks = ended(ticks, step, node, DONE[sign])
            finished += 1
        shown[step] = sign
        if len(shown) > TICKS_MAX:
            del shown[next(iter(shown))]
    open_steps = {step: SimpleNamespace(state=AttemptState.OPEN) for step, _ in opened}
    text = ticks_text(run_with(ticks=ticks, steps_finished=finished, open_steps=open_steps))
    expected = [f"{sign}{step.removesuffix('#1')}" for step, sign in shown.items()]
    assert text.split(" ")[1:] == expected


def test_a_long_run_shows_twenty_steps_behind_it_and_twenty_before_it() -> None:
    ticks, way = NO_TICKS, way_of(NODES)
    for number, node in enumerate(NODES):
        ticks = begun(ticks, f"{node}#1", node)
        opened = {f"{node}#1": SimpleNamespace(state=AttemptState.OPEN)}
        run = run_with(ticks=ticks, way=way, steps_finished=number, open_steps=opened, at=node)
        planned, shown = read_ticks(ticks_text(run))
        assert planned == len(NODES)
        assert [tick.state for tick in shown].count("open") == 1
        begins = next(place for place, tick in enumerate(shown) if tick.state == "open")
        assert len(shown) == min(TICKS_MAX, begins + len(NODES) - number)
        assert [tick.step for tick in shown] == NODES[number - begins :][: len(shown)]
        ticks = ended(ticks, f"{node}#1", node, StepStatus.SUCCESS)


def test_branches_that_began_are_not_planned_again() -> None:
    way, ticks = way_of(["fan", "x", "y", "join"]), NO_TICKS
    ticks = begun(begun(ticks, "fan#1", "fan"), "fan#1.x/x#1", "x")
    opened = {"fan#1.x/x#1": SimpleNamespace(state=AttemptState.OPEN)}
    run = run_with(ticks=ticks, way=way, open_steps=opened, parallels={"fan#1": 1}, at="fan")
    assert ticks_text(run) == "4 *fan *x .y .join"


def test_a_run_off_its_way_shows_what_follows_the_last_step_on_it() -> None:
    way, ticks = way_of(["a", "b", "c"]), NO_TICKS
    for node in ("a", "aside"):
        ticks = ended(ticks, f"{node}#1", node, StepStatus.SUCCESS)
    run = run_with(ticks=ticks, way=way, steps_finished=2, at="elsewhere")
    assert ticks_text(run) == "4 +a +aside .b .c"
