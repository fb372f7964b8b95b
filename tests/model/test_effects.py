"""What an effect left is what its caller gets: a command's result, or a function's value."""

from __future__ import annotations

import pytest

from onward.errors import EffectFailed, InvalidInput, StoreCorrupt
from onward.model.result import (
    EFFECT_KEY_MAX,
    LOG_LINE_MAX,
    CommandResult,
    EffectResult,
    FunctionResult,
    Result,
    SettledResult,
    as_command,
    as_value,
    check_effect_key,
    excerpt,
    log_line,
    pack_effect,
    unpack_effect,
)

RESULTS = (
    CommandResult(exit_code=1, stderr="no"),
    CommandResult(exit_code=None, signal=9),
    FunctionResult(value={"a": [1]}),
    FunctionResult(error="no"),
    SettledResult(text="done"),
)


@pytest.mark.parametrize("result", RESULTS)
def test_a_result_is_read_as_it_was_stored(result: EffectResult) -> None:
    assert unpack_effect("charge", pack_effect(result)) == result


def test_a_result_that_was_damaged_is_told() -> None:
    for stored in (b"{", b'{"type": "\xff"}', b'{"type": "unheard of"}'):
        with pytest.raises(StoreCorrupt, match="the result of effect 'charge' is damaged"):
            unpack_effect("charge", stored)


def test_what_ended_well_is_a_success() -> None:
    assert [one.is_success for one in (CommandResult(exit_code=0), *RESULTS)] == [
        *(True, False, False),
        *(True, False, True),
    ]


def test_a_command_gets_what_the_first_one_left_or_a_person_found() -> None:
    (failed, *_) = RESULTS
    assert as_command("charge", failed) == failed
    assert as_command("charge", SettledResult(text="paid")) == CommandResult(exit_code=0, stdout="paid")
    with pytest.raises(InvalidInput, match="'charge' was run by a Python function, not by a command"):
        as_command("charge", FunctionResult())


@pytest.mark.parametrize(("text", "value"), [("[1]", [1]), ("paid", "paid"), ("[" * 100_000, "[" * 100_000)])
def test_a_function_gets_what_a_person_found_as_json_if_it_is_some(text: str, value: object) -> None:
    assert as_value("charge", SettledResult(text=text)) == value


def test_a_function_gets_the_value_or_the_error_of_the_first_one() -> None:
    assert as_value("charge", FunctionResult(value=7)) == 7
    with pytest.raises(EffectFailed, match="no"):
        as_value("charge", FunctionResult(error="no"))
    with pytest.raises(InvalidInput, match="'charge' was run by a command, not by a Python function"):
        as_value("charge", CommandResult(exit_code=0))


def test_the_key_of_an_effect_can_be_stored_and_shown() -> None:
    assert check_effect_key("k" * EFFECT_KEY_MAX) == "k" * EFFECT_KEY_MAX
    for key in ("", "a\nb", "k" * (EFFECT_KEY_MAX + 1)):
        with pytest.raises(InvalidInput, match="cannot be an effect's key; use 1 to 500 printable"):
            check_effect_key(key)


def test_what_was_written_on_the_way_comes_before_what_was_returned() -> None:
    assert Result(log=("last",)).with_log(["first"]).log == ("first", "last")


def test_a_long_line_and_a_long_text_say_how_long_they_were() -> None:
    line = log_line("a" * 2_000)
    assert (len(line), line[-21:]) == (LOG_LINE_MAX, "aa… (2,000 characters)"[-21:])
    assert excerpt("a" * 10_000).endswith("a… (10,000 characters)")
    assert excerpt("short") == "short"
