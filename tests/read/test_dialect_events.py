"""The dialect's event names, told from the log (dialect §18)."""

from __future__ import annotations

from onward.model.events import StepStarted
from onward.model.result import Result
from onward.read.dialect_events import DialectEvent, Translator
from tests.machine.play import Play


def events(play: Play) -> list[DialectEvent]:
    translator = Translator("r")
    return [one for event, at_us, _ in play.log for one in translator.translate(event, at_us)]


def names(play: Play) -> list[str]:
    return [one.name for one in events(play)]


def test_a_simple_run_is_told_from_start_to_end() -> None:
    play = Play('a [prompt="do"]; start -> a -> exit')
    play.now_us += 2_000_000
    play.succeed()
    assert names(play) == [
        *("PipelineStarted", "CheckpointSaved"),
        *("StageStarted", "StageCompleted", "CheckpointSaved"),
        *("StageStarted", "StageCompleted", "CheckpointSaved"),
        *("StageStarted", "StageCompleted", "CheckpointSaved"),
        "PipelineCompleted",
    ]
    stage = next(one for one in events(play) if one.name == "StageCompleted" and one.fields["name"] == "a")
    assert stage.fields == {"name": "a", "index": 1, "duration_s": 2.0}
    assert events(play)[-1].fields == {"duration_s": 2.0, "artifact_count": 0}


def test_a_retry_says_that_it_failed_and_when_it_is_tried_again() -> None:
    play = Play('a [prompt="do", max_retries=1]; start -> a -> exit')
    play.result(Result.retry("busy"), jitter=0.5)
    failed, retrying = events(play)[-2:]
    assert failed.fields == {"name": "a", "index": 1, "error": "busy", "will_retry": True}
    assert (retrying.name, retrying.fields["attempt"], retrying.fields["delay_s"]) == (
        "StageRetrying",
        2,
        0.2,
    )


def test_a_failure_for_good_ends_the_pipeline() -> None:
    play = Play('a [prompt="do"]; start -> a -> exit')
    play.fail("broken")
    assert names(play)[-2:] == ["StageFailed", "PipelineFailed"]
    assert events(play)[-2].fields["will_retry"] is False
    assert "broken" in events(play)[-1].fields["error"]


def test_a_question_and_its_answer_are_an_interview() -> None:
    play = Play('g [shape=hexagon, label="Go?"]; start -> g; g -> exit [label="[Y] yes"]')
    play.now_us += 3_000_000
    play.answer("yes")
    asked, answered = (one for one in events(play) if one.name.startswith("Interview"))
    assert asked.fields == {"question": "Go?", "stage": "g"}
    assert answered.fields == {"question": "Go?", "answer": "[Y] yes", "duration_s": 3.0}


def test_a_question_that_nobody_answered_in_time_says_so() -> None:
    play = Play(
        "g [shape=hexagon, label=Go, human.timeout=2s, human.default_choice=exit]; start -> g -> exit"
    )
    play.now_us += 2_000_000
    play.claim()
    late, answered = [one for one in events(play) if one.name.startswith("Interview")][1:]
    assert (late.name, late.fields) == (
        "InterviewTimeout",
        {"question": "Go", "stage": "g", "duration_s": 2.0},
    )
    assert answered.fields["answer"] == "exit"


def test_words_are_the_answer_where_words_are_asked_for() -> None:
    play = Play("g [shape=hexagon, human.type=freeform]; start -> g; g -> exit; g -> g [weight=-1]")
    play.answer("by noon")
    assert events(play)[-1].fields["answer"] == "by noon"


def test_branches_are_counted_and_told_one_by_one() -> None:
    body = "f [shape=component]; j [shape=tripleoctagon]; start -> f; f -> j; f -> d -> j; j -> exit; "
    play = Play(body + "d [shape=diamond]")
    found = [one for one in events(play) if one.name.startswith("Parallel")]
    assert [one.name for one in found] == [
        "ParallelStarted",
        *("ParallelBranchStarted", "ParallelBranchStarted"),
        *("ParallelBranchCompleted", "ParallelBranchCompleted"),
        "ParallelCompleted",
    ]
    assert found[0].fields == {"branch_count": 2}
    assert found[-1].fields == {"duration_s": 0.0, "success_count": 2, "failure_count": 0}


def test_a_degraded_step_says_so() -> None:
    event = StepStarted(step="a#1", node="a", attempt=1, fidelity="summary:high", degraded_from="full")
    assert [one.name for one in Translator("r").translate(event, 1)] == ["StageStarted", "FidelityDegraded"]
