"""What a queued run waits for that no live worker has."""

from __future__ import annotations

from onward.model.row import Offer, RegisteredWorker, WaitingFor, waiting_for, with_directory


def worker(*handlers: str, lacks: tuple[str, ...] = (), is_alive: bool = True) -> RegisteredWorker:
    return RegisteredWorker("1@host/1", Offer(handlers, lacks), 1, is_alive)


def test_a_run_that_one_live_worker_can_serve_waits_for_nothing() -> None:
    assert waiting_for(("a", "b"), [worker("a"), worker("a", "b")]) is None
    assert waiting_for((), [worker()]) is None


def test_without_a_live_worker_a_run_waits_for_any() -> None:
    for workers in ([], [worker("a", is_alive=False)]):
        found = waiting_for(("a",), workers)
        assert found == WaitingFor(workers=0)
        assert found.says == "no worker is running; start one with `onward worker`"


def test_the_handlers_that_no_live_worker_has_are_named() -> None:
    workers = [worker("a"), worker("b"), worker("c", "d", is_alive=False)]
    found = waiting_for(("a", "c"), workers)
    assert found == WaitingFor(workers=2, handlers=("c",))
    assert found.says == "no live worker has the handler 'c': start one with --app"
    several = waiting_for(("a", "c", "d"), workers)
    assert several is not None
    assert several.says == "no live worker has the handlers 'c', 'd': start one with --app"


def test_where_only_the_handler_of_agents_is_missing_a_model_provider_is_named() -> None:
    found = waiting_for(("codergen",), [worker("a")])
    assert found is not None
    assert found.says == (
        "no live worker has a model provider, which the agent steps need: set its API key there"
    )


def test_handlers_that_no_live_worker_has_together_are_named() -> None:
    found = waiting_for(("a", "b"), [worker("a"), worker("b")])
    assert found == WaitingFor(workers=2, handlers=("a", "b"), is_split=True)
    assert found.says == "no live worker has all of the handlers 'a', 'b'"


def test_a_directory_that_no_worker_with_the_handlers_has_is_named() -> None:
    needs = with_directory(("a",), "/my work")
    workers = [worker("a", lacks=("/my work",)), worker("b")]
    found = waiting_for(needs, workers)
    assert found == WaitingFor(workers=2, directory="/my work")
    assert found.says == "no live worker has the directory /my work"
    assert waiting_for(needs, [*workers, worker("a", lacks=("/other",))]) is None
