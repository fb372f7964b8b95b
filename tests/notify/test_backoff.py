"""When a try is made again: later each time, never all at once, and not for ever."""

from __future__ import annotations

from onward.model.row import DeliveryState
from onward.notify.courier import (
    AGE_S_MAX,
    TRIES_MAX,
    WAIT_S_MAX,
    SendResult,
    attempted,
    is_too_late,
    wait_us,
)
from tests.notify.told import AT_US, delivery

WAITING, DELIVERED, FAILED = DeliveryState


def test_the_pause_doubles_up_to_an_hour_and_chance_spreads_it() -> None:
    assert [wait_us(tries, 1.0) // 1_000_000 for tries in (1, 2, 3, 4)] == [5, 10, 20, 40]
    assert wait_us(99, 1.0) == WAIT_S_MAX * 1_000_000
    assert wait_us(3, 0.0) * 2 == wait_us(3, 1.0)


def test_what_arrived_is_not_tried_again() -> None:
    assert attempted(delivery(), SendResult(204), 0.5) == (DELIVERED, 204, "", None)


def test_a_failure_waits_until_the_last_try_and_then_stands() -> None:
    state, response, error, wait = attempted(delivery(tries=TRIES_MAX - 1), SendResult(500, "HTTP 500"), 0.5)
    assert (state, response, error) == (WAITING, 500, "HTTP 500")
    assert wait is not None
    assert attempted(delivery(tries=TRIES_MAX), SendResult(500, "HTTP 500"), 0.5) == (
        FAILED,
        500,
        "HTTP 500",
        None,
    )


def test_one_whose_processes_kept_dying_is_given_up() -> None:
    assert is_too_late(delivery(tries=TRIES_MAX), AT_US) is None
    found = is_too_late(delivery(tries=TRIES_MAX + 1), AT_US)
    assert found is not None
    assert (found.state, found.error) == (FAILED, "the process that delivered it died")


def test_old_news_is_not_told_but_what_was_asked_for_again_is_tried() -> None:
    later_us = AT_US + AGE_S_MAX * 1_000_000 + 1
    found = is_too_late(delivery(), later_us)
    assert found is not None
    assert (found.state, found.error) == (FAILED, "it was not delivered within 3 days")
    assert is_too_late(delivery(tries=2), later_us) is None
