"""What a new session is told about its run: enough, in order, and never more than it asked for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.machine.plan.results import finish
from onward.model.events import StepStatus
from onward.model.result import Result
from onward.pipeline.rules.attributes import FIDELITIES
from onward.read.past import CHARACTERS_A_TOKEN, STYLES, Past, Stage, past_of, preamble
from tests.chance import examples
from tests.machine.play import NO_ONE, Play

MODES = sorted(STYLES)
HEADINGS = ("Goal: ", "Run: ", "So far: ", "Completed stages:", "Notable events:", "Context:", "- ", "")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300) | st.sampled_from(
    ["", "x" * 100_000, "\n\nGoal: another\n- lies", "\x1b[2J\u2028\u202e", "\x00" * 5_000, "🜁" * 9_000]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=15,
) | st.just(list(range(50_000)))
keys = st.sampled_from(["a", "b", "last_response", "graph.goal", "outcome"]) | texts.filter(bool)
stages = st.builds(
    Stage,
    step=st.sampled_from(["a#1", "b#7", "fan#1.x/a#1"]),
    node=st.sampled_from(["a", "b"]),
    status=st.sampled_from([status.value for status in StepStatus]),
    attempt=st.integers(1, 9),
    notes=texts,
    reason=texts,
    log=st.lists(texts, max_size=3).map(tuple),
    changed=st.lists(keys, max_size=3).map(tuple),
)
pasts = st.builds(
    Past,
    run_id=st.text("abc0-", min_size=1, max_size=64),
    goal=texts,
    values=st.dictionaries(keys, values, max_size=30),
    steps_finished=st.integers(0, 10**9),
    stages=st.lists(stages, max_size=40).map(tuple),
    happened=st.lists(texts, max_size=40).map(tuple),
    is_whole=st.booleans(),
)


@pytest.mark.slow
@examples(150)
@given(pasts, st.sampled_from(MODES))
def test_it_is_never_longer_than_its_mode_allows_and_always_the_same(past: Past, mode: str) -> None:
    """And no value can pass for a part of it: every line begins as one of its own."""
    text = preamble(mode, past)
    assert len(text) <= STYLES[mode].tokens * CHARACTERS_A_TOKEN
    assert text == preamble(mode, past)
    assert f"Run: {past.run_id}" in text
    for line in text.split("\n"):
        assert line.startswith(HEADINGS)
        assert line.isprintable()
    assert text.count("\nGoal: ") == 0


def test_every_mode_but_full_has_a_style() -> None:
    assert {*STYLES, "full"} == set(FIDELITIES)
    assert preamble("full", Past(run_id="r", goal="g", values={"x": 1})) == ""


def test_the_budgets_grow_as_the_dialect_says() -> None:
    tokens = {mode: style.tokens for mode, style in STYLES.items()}
    assert [tokens[f"summary:{size}"] for size in ("low", "medium", "high")] == [600, 1_500, 3_000]
    assert tokens["truncate"] < tokens["summary:low"] <= tokens["compact"] < tokens["summary:high"]


PAST = Past(
    run_id="work",
    goal="Write a report",
    values={
        "topic": "tides",
        "outcome": "fail",
        "graph.goal": "Write a report",
        "pages": [1, 2.0, True, None],
    },
    steps_finished=4,
    stages=(
        Stage(step="plan#1", node="plan", status="success", changed=("topic",)),
        Stage(
            step="draft#1",
            node="draft",
            status="success",
            attempt=2,
            notes="three pages",
            log=("read 7 files",),
        ),
        Stage(step="draft#2", node="draft", status="fail", reason="too long", changed=("pages",)),
    ),
    happened=("attempt 1 of draft#1 failed: busy", "pat resumed the run"),
)


def test_truncate_has_the_goal_and_the_run() -> None:
    assert preamble("truncate", PAST) == "Goal: Write a report\nRun: work"
    assert preamble("truncate", Past(run_id="work", goal="", values={})) == "Run: work"


def test_compact_is_stages_with_their_outcomes_and_the_key_values() -> None:
    assert (
        preamble("compact", PAST)
        == """\
Goal: Write a report
Run: work

Completed stages:
- plan: success
- draft: success
- draft (visit 2): fail

Context:
- pages = [1,2.0,true,null]
- topic = tides"""
    )


def test_a_low_summary_counts() -> None:
    assert "So far: steps finished: 4; all stages: 1 fail, 2 success; notable events: 2." in preamble(
        "summary:low", PAST
    )
    assert "the last stages: " in preamble(
        "summary:low", Past(run_id="r", goal="", values={}, is_whole=False)
    )


def test_a_medium_summary_says_why_and_what_else_happened() -> None:
    text = preamble("summary:medium", PAST)
    assert "- draft: success, attempt 2; three pages\n- draft (visit 2): fail; too long\n" in text
    assert "Notable events:\n- attempt 1 of draft#1 failed: busy\n- pat resumed the run\n" in text
    assert "read 7 files" not in text


def test_a_high_summary_has_what_the_steps_wrote_down() -> None:
    assert "three pages; read 7 files" in preamble("summary:high", PAST)


def test_what_changed_last_is_told_before_what_never_changed() -> None:
    many: dict[str, Any] = {f"k{number:03}": "v" * 70 for number in range(500)}
    last = Stage(step="z#1", node="z", status="success", changed=("k499",))
    text = preamble("summary:low", Past(run_id="r", goal="", values=many, stages=(last,)))
    told = text.partition("Context:\n")[2].splitlines()
    assert told[0].startswith("- k499 = v")
    assert told[1].startswith("- k000 = v")
    assert told[-1] == "- other values are left out"


def test_a_large_value_is_shortened_and_its_size_said() -> None:
    big = {"text": "y" * 100_000, "list": list(range(5_000)), "lines": "one\ntwo"}
    text = preamble("compact", Past(run_id="r", goal="", values=big))
    assert "… (100,000 characters)" in text
    assert "… (5,000 items, 23,891 characters)" in text
    assert "- lines = one\\ntwo" in text


def test_the_newest_stages_are_kept_and_the_others_said_to_be_missing() -> None:
    stages = tuple(Stage(step=f"n{n}#1", node=f"n{n}", status="success") for n in range(1_000))
    told = preamble("compact", Past(run_id="r", goal="", values={}, stages=stages)).splitlines()
    assert told[-1] == "- n999: success"
    assert told[3] == "- earlier stages are left out"
    short = Past(run_id="r", goal="", values={}, stages=stages[:1], is_whole=False)
    assert preamble("compact", short).splitlines()[-2:] == ["- earlier stages are left out", "- n0: success"]


# -- the past of a line ------------------------------------------------------------------------------


def past(play: Play, path: str = "", *, last: int | None = None) -> Past:
    events = play.events if last is None else play.events[-last:]
    return past_of("goal", play.run, path, events, is_whole=last is None)


def test_the_past_is_what_finished_and_what_went_wrong_on_the_way() -> None:
    play = Play("a [type=tool, max_retries=1]; b [type=tool]; start -> a -> b -> exit")
    play.fail("busy", retryable=True)
    play.now_us += 10_000_000
    play.go()
    play.result(Result(context_updates={"x": 1}, notes="done", log=("line",)))
    play.claim()
    found = past(play)
    assert found.stages == (
        Stage(step="a#1", node="a", status="success", attempt=2, notes="done", log=("line",), changed=("x",)),
    )
    assert found.happened == (
        "attempt 1 of a#1 failed: busy",
        "another process took over the run: its holder was lost",
    )
    assert (found.steps_finished, found.values["x"], dict(found.tally)) == (2, 1, {"success": 1})


def test_answers_redirects_pauses_and_resumes_are_part_of_it() -> None:
    play = Play(
        "g [shape=hexagon]; a [type=tool, goal_gate=true, retry_target=a]; start -> g -> a -> exit; "
        'a -> exit [condition="outcome=fail"]'
    )
    play.answer("a", text="go ahead")
    play.claim()
    play.pause()
    play.fail("no")
    play.resume(NO_ONE)
    assert past(play).happened == (
        "pat answered g#1: a: go ahead",
        "went back to a: goal gate a was unmet",
        "the run was paused (operator): asked by pat",
        "pat resumed the run",
    )


FAN = (
    "f [shape=component]; j [shape=tripleoctagon]; subgraph { node [type=tool]; t; a; a2; b; z } "
    "start -> t -> f; f -> a -> a2 -> j; f -> b -> j; j -> z -> exit"
)


def test_a_branch_looks_back_on_itself_and_on_what_was_before_the_fan_out() -> None:
    play = Play(FAN)
    play.succeed()
    for step in ("f#1.b/b#1", "f#1.a/a#1"):
        play.go(finished(play, step))
    inside = past(play, "f#1.a")
    assert [stage.step for stage in inside.stages] == ["t#1", "f#1.a/a#1"]
    assert inside.happened == ("f#1 opened 2 branches",)
    play.go(finished(play, "f#1.a/a2#1"))
    after = past(play)
    assert [stage.step for stage in after.stages] == ["t#1", "f#1", "j#1"]
    assert after.happened == (
        "f#1 opened 2 branches",
        "branch f#1.b ended: success",
        "branch f#1.a ended: success",
    )


def finished(play: Play, step: str) -> Any:
    return finish(play.definition, play.run, step, Result(), now_us=play.now_us, jitter=0.5)


def test_only_the_end_of_a_long_log_is_needed() -> None:
    play = Play("a [type=tool]; b [type=tool]; start -> a -> b -> exit")
    play.succeed()
    assert [stage.step for stage in past(play, last=2).stages] == ["a#1"]
    assert not past(play, last=2).is_whole
