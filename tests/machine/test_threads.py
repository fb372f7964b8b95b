"""Which conversation a `full` step goes on with."""

from __future__ import annotations

import pytest

from onward.model.events import StepStarted
from tests.machine.play import Play


@pytest.mark.parametrize(
    ("written", "thread"),
    [
        ("start -> a", "start"),
        ('subgraph x { label="Loop A"; a } start -> a', "loop-a"),
        ("subgraph o { label=Outer; subgraph i { label=Inner; a } } start -> a", "inner"),
        ("default_thread_id=all; subgraph x { label=Loop; a } start -> a", "all"),
        ("default_thread_id=all; start -> a [thread_id=edge]", "edge"),
        ("default_thread_id=all; a [thread_id=node]; start -> a [thread_id=edge]", "node"),
    ],
)
def test_the_node_then_the_edge_then_the_graph_then_the_subgraph_then_the_node_before(
    written: str, thread: str
) -> None:
    """C12, C13: the dialect's order, and our name for the graph's default."""
    play = Play(f"default_fidelity=full; a [prompt=p]; {written}; a -> exit")
    assert (play.started.fidelity, play.started.thread) == ("full", thread)


def test_a_class_that_was_written_is_for_the_stylesheet_and_names_no_thread() -> None:
    play = Play('default_fidelity=full; a [prompt=p, class="fast"]; start -> a -> exit')
    assert play.started.thread == "start"


@pytest.mark.parametrize("mode", ["truncate", "compact", "summary:low", "summary:medium", "summary:high"])
def test_a_mode_with_a_new_session_has_no_thread(mode: str) -> None:
    play = Play(f'a [prompt=p, thread_id=t, fidelity="{mode}"]; start -> a -> exit')
    assert play.started.thread == ""


def test_the_steps_of_one_thread_have_one_key() -> None:
    play = Play(
        "default_fidelity=full; node [prompt=p, thread_id=talk]; a; t [type=tool]; b; "
        "start -> a -> t -> b -> exit"
    )
    threads = [play.started.thread]
    play.succeed()
    assert (play.started.step, play.started.thread) == ("t#1", "")
    play.succeed()
    assert [*threads, play.started.thread] == ["talk", "talk"]


def test_a_degraded_step_keeps_its_thread_so_that_the_next_one_can_go_on_from_it() -> None:
    """K12: its new session is the conversation of that name from now on."""
    play = Play("default_fidelity=full; node [prompt=p, thread_id=talk]; a; b; start -> a -> b -> exit")
    play.claim("second")
    assert (play.started.fidelity, play.started.thread) == ("summary:high", "talk")
    play.succeed()
    assert (play.started.fidelity, play.started.thread) == ("full", "talk")


def test_branches_do_not_share_a_conversation_whatever_it_is_called() -> None:
    """C18: isolation wins, in branches of branches too."""
    play = Play(
        "default_fidelity=full; default_thread_id=talk; node [prompt=p]; f [shape=component]; a; b; "
        'g [shape=component]; c; d; h [shape=tripleoctagon, prompt=""]; j [shape=tripleoctagon, prompt=""]; '
        "start -> f; f -> a -> j; f -> b -> j; f -> g; g -> c -> h; g -> d -> h; h -> j; j -> exit"
    )
    threads = {e.node: e.thread for e in play.events if isinstance(e, StepStarted)}
    assert threads == {
        "a": "f#1.a/talk",
        "b": "f#1.b/talk",
        "c": "f#1.g/g#1.c/talk",
        "d": "f#1.g/g#1.d/talk",
    }


def test_another_attempt_and_another_visit_stay_in_the_conversation() -> None:
    play = Play(
        "default_fidelity=full; a [prompt=p, max_retries=1]; start -> a; a -> a; "
        'a -> exit [condition="context.ok=yes"]'
    )
    first = play.started.thread
    play.fail(retryable=True)
    play.now_us += 10_000_000
    play.go()
    assert (play.started.attempt, play.started.thread) == (2, first)
    play.succeed()
    assert (play.started.step, play.started.thread) == ("a#2", "a")
