"""How much of the past an agent step is shown, and what a resume does to it."""

from __future__ import annotations

import pytest

from onward.machine.plan.results import finish
from onward.model.events import StepStarted, StepStatus
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.machine.play import ALIVE, NO_ONE, Play, define

AGENTS = "a [prompt=p]; b [prompt=p]; c [prompt=p]; default_fidelity=full; start -> a -> b -> c -> exit"


@pytest.mark.parametrize(
    ("written", "mode"),
    [
        ("start -> a", "compact"),
        ("default_fidelity=truncate; start -> a", "truncate"),
        ("default_fidelity=truncate; a [fidelity=full]; start -> a", "full"),
        ('default_fidelity=truncate; a [fidelity=full]; start -> a [fidelity="summary:low"]', "summary:low"),
    ],
)
def test_the_edge_beats_the_node_and_the_node_beats_the_graph(written: str, mode: str) -> None:
    play = Play(f"a [prompt=p]; a -> exit; {written}")
    assert (play.started.fidelity, play.started.degraded_from) == (mode, "")


@pytest.mark.parametrize(
    "written",
    [
        "default_fidelity=best; start -> a",
        "default_fidelity=truncate; a [fidelity=best]; start -> a",
        "a [fidelity=full]; start -> a [fidelity=best]",
    ],
)
def test_a_mode_that_does_not_exist_counts_as_compact(written: str) -> None:
    """V10: lint warns and says so; what was meant is not guessed from a weaker place."""
    play = Play(f"a [prompt=p]; a -> exit; {written}")
    assert (play.started.fidelity, play.started.thread) == ("compact", "")


def test_only_agent_steps_have_a_fidelity() -> None:
    play = Play("default_fidelity=full; a [type=tool]; start -> a -> exit")
    assert play.started.fidelity == ""


def test_a_jump_came_by_no_edge() -> None:
    play = Play(
        "a [prompt=p, retry_target=a]; start -> a [fidelity=truncate]; a -> exit; "
        'a -> a [fidelity=full, condition="context.again=yes"]'
    )
    assert play.started.fidelity == "truncate"
    play.fail()
    assert (play.started.step, play.started.fidelity) == ("a#2", "compact")


def test_the_first_agent_step_after_a_resume_is_shown_a_summary_and_the_next_is_free() -> None:
    """K12, C11: recorded with the attempt, for one hop."""
    play = Play(AGENTS)
    assert play.started.fidelity == "full"
    play.succeed()
    play.claim()
    assert (play.started.step, play.started.fidelity, play.started.degraded_from) == (
        "b#1",
        "summary:high",
        "full",
    )
    play.succeed()
    assert (play.started.step, play.started.fidelity, play.started.degraded_from) == ("c#1", "full", "")


def test_each_line_that_lost_its_sessions_is_degraded_once() -> None:
    """K12: both branches that the dead process worked in, and the line that they came from."""
    play = Play(
        "f [shape=component]; j [shape=tripleoctagon]; default_fidelity=full; a [prompt=p]; b [prompt=p]; "
        "a2 [prompt=p]; b2 [prompt=p]; z [prompt=p]; f -> a -> a2 -> j; f -> b -> b2 -> j; start -> f; "
        "j -> z -> exit"
    )
    play.claim("second")
    hops = {node: degraded for node, degraded in finish_all(play)}
    assert hops == {"a": "full", "b": "full", "a2": "", "b2": "", "z": "full"}


def test_a_branch_that_is_opened_after_the_resume_has_lost_nothing() -> None:
    """Its conversations begin with it."""
    play = Play(
        "f [shape=component]; j [shape=tripleoctagon]; t [type=tool]; default_fidelity=full; a [prompt=p]; "
        "b [prompt=p]; z [prompt=p]; f -> a -> j; f -> b -> j; start -> t -> f; j -> z -> exit"
    )
    play.claim("second")
    play.succeed()
    hops = {node: degraded for node, degraded in finish_all(play)}
    assert hops == {"a": "", "b": "", "z": "full"}


def finish_all(play: Play) -> list[tuple[str, str]]:
    """Let every agent step succeed that is under way or comes; each node and the mode it lost."""
    seen: list[tuple[str, str]] = []
    while opened := next(iter(play.run.open_steps.values()), None):
        begun = [e for e in play.events if isinstance(e, StepStarted) and e.step == opened.step]
        seen.append((opened.node, begun[-1].degraded_from))
        play.go(finish(play.definition, play.run, opened.step, Result(), now_us=play.now_us, jitter=0.5))
    return seen


def test_a_claim_by_the_same_process_degrades_nothing() -> None:
    """R6: it waited for an answer, and its sessions are where they were."""
    play = Play("g [shape=hexagon]; a [prompt=p]; default_fidelity=full; start -> g -> a -> exit")
    play.answer("a")
    play.claim("first")
    assert (play.started.fidelity, play.started.degraded_from) == ("full", "")


def test_a_hop_that_a_person_skipped_has_not_been_taken() -> None:
    play = Play(AGENTS)
    play.claim("second")
    assert play.started.degraded_from == "full"
    play.fail()
    play.resume(NO_ONE, action="skip")
    assert (play.started.step, play.started.degraded_from) == ("b#1", "full")


def test_another_attempt_of_the_first_hop_is_still_the_first_hop() -> None:
    play = Play("default_max_retries=1; " + AGENTS)
    play.claim()
    play.result(Result.retry("busy"))
    play.now_us += 1_000_000
    play.go()
    assert (play.started.attempt, play.started.degraded_from) == (2, "full")


def test_a_mode_that_needs_no_session_survives_a_resume() -> None:
    play = Play("a [prompt=p]; default_fidelity=compact; start -> a -> exit")
    play.claim()
    assert (play.started.fidelity, play.started.degraded_from) == ("compact", "")


def test_a_step_without_a_session_does_not_bring_one_back() -> None:
    """C11: a tool between the resume and the agent does not make the agent's session live again."""
    play = Play("t [type=tool]; a [prompt=p]; default_fidelity=full; start -> t -> a -> exit")
    play.claim()
    play.succeed()
    assert (play.started.step, play.started.degraded_from) == ("a#1", "full")


def test_a_human_gate_on_the_way_does_not_bring_one_back_either() -> None:
    play = Play("g [shape=hexagon]; a [prompt=p]; default_fidelity=full; start -> g -> a -> exit")
    play.answer("a")
    play.claim()
    assert (play.started.step, play.started.degraded_from) == ("a#1", "full")


def test_a_resumed_run_reads_the_edge_it_came_by() -> None:
    play = Play('a [type=tool]; b [prompt=p]; start -> a -> b [fidelity="summary:low"]; b -> exit')
    play.succeed()
    play.claim()
    assert play.started.fidelity == "summary:low"


@pytest.mark.parametrize(
    ("changed", "mode"),
    [
        ("start -> a -> b -> exit; start -> x -> exit", "compact"),
        ("start -> a -> b; start -> x; x -> exit [fidelity=truncate]; b -> exit", "compact"),
        ("start -> a -> b; start -> x; x -> b [fidelity=truncate]; b -> exit", "compact"),
        ("start -> a -> b; start -> x; a -> x [fidelity=truncate]; x -> exit; b -> exit", "compact"),
        ("start -> a; a -> b [fidelity=truncate]; b -> exit; start -> x -> exit", "truncate"),
        (
            "start -> a; a -> b [fidelity=truncate, label=new]; a -> b; b -> exit; start -> x -> exit",
            "compact",
        ),
        ("start -> a; start -> x -> exit; a -> b [fidelity=truncate]; a -> b; b -> exit", "truncate"),
    ],
)
def test_an_edge_of_a_changed_pipeline_is_not_mistaken_for_the_one_it_came_by(
    changed: str, mode: str
) -> None:
    """The recorded place may be another edge's by now, or nobody's; an only edge between two is the one."""
    nodes = "a [type=tool]; b [prompt=p]; x [type=tool];"
    play = Play(f"{nodes} start -> a; start -> x -> exit; a -> b -> exit")
    play.succeed()
    assert play.run.root.edge == 3
    play.definition = define(f"{nodes} {changed}")
    play.claim()
    assert play.started.fidelity == mode


def test_a_skipped_agent_step_leaves_the_next_one_degraded() -> None:
    play = Play(AGENTS)
    play.pause(ALIVE)
    play.fail()
    play.resume(NO_ONE, action="skip")
    assert (play.started.step, play.started.degraded_from) == ("b#1", "full")
    assert play.run.status is RunStatus.RUNNING
    play.result(Result(status=StepStatus.PARTIAL_SUCCESS))
    assert play.started.degraded_from == ""
