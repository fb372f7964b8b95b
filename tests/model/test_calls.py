"""Keys of calls: chosen by handlers, told from an agent's own, the same when a lost call is repeated."""

from __future__ import annotations

import pytest

from onward.errors import InvalidInput
from onward.model.call import CALL_KEY_CHARACTERS_MAX, call_key, check_call_key, gate_of_call


def test_a_handler_may_choose_a_printable_key() -> None:
    for key in ("fetch page 1", "m", "é" * CALL_KEY_CHARACTERS_MAX):
        assert check_call_key(key) == key


@pytest.mark.parametrize("key", ["", "a\nb", "k" * (CALL_KEY_CHARACTERS_MAX + 1), 7, None])
def test_what_cannot_be_stored_as_a_key_is_refused(key: object) -> None:
    with pytest.raises(InvalidInput, match="cannot be the key of a call; use 1 to 200 printable"):
        check_call_key(key)


@pytest.mark.parametrize("key", ["m1", "m12.t3", "m1.t1.ask"])
def test_the_names_of_an_agents_own_calls_are_refused(key: str) -> None:
    with pytest.raises(
        InvalidInput, match="such names are reserved for an agent's own calls; choose another"
    ):
        check_call_key(key)


def test_a_lost_call_has_the_same_key_and_another_question_a_new_one() -> None:
    assert call_key("r", "a#1", "m1", 0) == "r/a#1/m1"
    assert call_key("r", "a#1", "m1", 2) == "r/a#1/m1~2"
    assert call_key("r", "a#1", "fetch", 2) == "r/a#1/fetch"


def test_an_agent_that_asks_anew_opens_another_gate() -> None:
    assert gate_of_call("a#1", "m1.t1.ask", 0) == "a#1:m1.t1.ask"
    assert gate_of_call("a#1", "m1.t1.ask", 1) == "a#1:m1.t1.ask~1"
    assert gate_of_call("a#1", "ok?", 1) == "a#1:ok?"
