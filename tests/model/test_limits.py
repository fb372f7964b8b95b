"""Limits: which scopes there are, how amounts are written and counted, and which names can be stored."""

from __future__ import annotations

import msgspec
import pytest

from onward.errors import InvalidInput
from onward.model.call import LimitHit, Usage
from onward.model.limits import (
    NAME_CHARACTERS_MAX,
    SCOPED_CHARACTERS_MAX,
    Amounts,
    check_name,
    check_names,
    check_path,
    check_scope,
    check_scoped,
    check_text,
    leaves_more_room,
    part_of,
    raise_argument,
    raised_amount,
    read_amount,
    scopes_of,
    shown_amount,
    used_amounts,
)
from onward.model.row import directory_need
from tests.machine.play import created

DAY_US = 1_700_000_000_000_000


def test_a_call_counts_in_its_day_its_run_its_chat_and_its_project() -> None:
    assert scopes_of(root="r", chat=None, project=None, at_us=DAY_US) == ("day/2023-11-14", "run/r")
    every = scopes_of(root="r", chat="talk", project="shop", at_us=DAY_US)
    assert every == ("chat/talk", "day/2023-11-14", "project/shop", "run/r")
    assert (part_of(every, "project"), part_of(every[:2], "project")) == ("shop", "")


@pytest.mark.parametrize("scope", ["chat/a", "project/a b", "run/r", "day/2024-02-29", "day", "chat"])
def test_a_scope_is_a_kind_with_an_id_or_the_default_of_the_kind(scope: str) -> None:
    assert check_scope(scope) == scope


@pytest.mark.parametrize("text", ["week", "chat/", "chat/a\nb", "", "/a"])
def test_other_words_are_no_scope(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a scope; write chat/ID, project/ID, run/ID or day/YYYY"):
        check_scope(text)


@pytest.mark.parametrize("day", ["2023-02-29", "2023-1-1", "today"])
def test_a_day_that_is_not_in_the_calendar_is_refused(day: str) -> None:
    with pytest.raises(InvalidInput, match=f"'{day}' is not a day; write day/YYYY-MM-DD"):
        check_scope(f"day/{day}")


def test_amounts_are_counted_each_for_itself() -> None:
    assert Amounts(1, 2, 3).plus(Amounts(10, 20, 30)) == Amounts(11, 22, 33)
    assert Amounts(11, 22, 33).minus(Amounts(10, 20, 30)) == Amounts(1, 2, 3)


def test_a_call_is_charged_for_what_the_provider_counted() -> None:
    most, usage = Amounts(900, 500, 1), Usage(input=10, output=5)
    assert used_amounts(usage, 7, most) == Amounts(15, 7, 1)


def test_without_a_price_the_reserved_money_counts_and_without_usage_only_the_call() -> None:
    most, usage = Amounts(900, 500, 1), Usage(input=10, output=5)
    assert used_amounts(usage, None, most) == Amounts(15, 500, 1)
    assert used_amounts(None, None, most) == Amounts(0, 0, 1)
    assert used_amounts(None, 3, most) == Amounts(0, 3, 1)


@pytest.mark.parametrize(
    ("measure", "text", "amount"),
    [
        ("tokens", "200,000", 200_000),
        ("calls", "0", 0),
        ("cost", "2.50", 2_500_000),
        ("cost", "$1,000", 1_000_000_000),
    ],
)
def test_an_amount_is_a_whole_number_or_dollars(measure: str, text: str, amount: int) -> None:
    assert read_amount(measure, text) == amount


@pytest.mark.parametrize(
    ("measure", "text", "told"),
    [
        ("tokens", "2.5", "cannot be a limit on tokens; write a whole number, such as 200000"),
        ("cost", "much", "cannot be a limit on cost; write dollars, such as 2.50"),
        ("calls", "9" * 20, "is too large; write 0 for no limit"),
        ("minutes", "1", "unknown limit 'minutes'; write tokens, cost or calls"),
    ],
)
def test_what_is_no_amount_is_refused_with_what_to_write(measure: str, text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        read_amount(measure, text)


def test_amounts_are_shown_as_people_write_them() -> None:
    assert shown_amount("tokens", 200_000) == "200,000"
    assert shown_amount("cost", 1_234_500_000) == "$1,234.50"
    assert shown_amount("cost", 1_234_567) == "$1.234567"


def test_what_is_suggested_for_raising_can_be_typed() -> None:
    assert raise_argument("run/r", "tokens", 200_000) == "run.tokens=200000"
    assert raise_argument("day/2024-01-01", "cost", 1_002_500_000) == "day.cost=1002.50"


HIT = LimitHit(scope="run/r", measure="tokens", limit=1_000, spent=800, reserved=0, wanted=300)


def test_a_call_that_did_not_fit_may_fit_once_there_is_more_room() -> None:
    assert not leaves_more_room(HIT, limit=1_000, spent=800)
    assert leaves_more_room(HIT, limit=1_001, spent=800)
    assert leaves_more_room(HIT, limit=1_000, spent=700)
    assert leaves_more_room(HIT, limit=0, spent=10_000)


def test_a_suggested_limit_is_at_least_twice_the_present_one_and_leaves_room_for_the_call() -> None:
    assert raised_amount(HIT, limit=1_000, spent=800, reserved=0) == 2_000
    assert raised_amount(HIT, limit=1_000, spent=5_000, reserved=123) == 5_500
    assert raised_amount(HIT, limit=3, spent=0, reserved=1) == 310


def test_a_name_is_stored_as_it_is_up_to_a_length() -> None:
    for name in ("a", "é" * NAME_CHARACTERS_MAX, "a" * NAME_CHARACTERS_MAX):
        assert check_name("the node id", name) == name
    with pytest.raises(InvalidInput, match=r"the node id 'aaa.*…' has 501 characters; shorten it"):
        check_name("the node id", "a" * (NAME_CHARACTERS_MAX + 1))


def test_bytes_that_are_no_characters_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"the chat 'a\?' is not valid UTF-8"):
        check_text("the chat", "a\udcff")


def test_a_path_that_no_file_system_has_is_refused() -> None:
    check_path("the directory", None)
    check_path("the directory", "/tmp")
    with pytest.raises(InvalidInput, match=r"the directory '/tmp.*has a NUL character"):
        check_path("the directory", "/tmp\0")


def test_an_id_that_could_have_no_limits_is_refused() -> None:
    check_scoped("the chat", None)
    check_scoped("the chat", "a" * SCOPED_CHARACTERS_MAX)
    for unprintable in ("", "a\nb"):
        with pytest.raises(InvalidInput, match="cannot be stored; use printable characters"):
            check_scoped("the chat", unprintable)
    with pytest.raises(InvalidInput, match=f"has {SCOPED_CHARACTERS_MAX + 1} characters; shorten it"):
        check_scoped("the chat", "a" * (SCOPED_CHARACTERS_MAX + 1))


def test_every_name_of_a_run_is_looked_at() -> None:
    long, run = "a" * (NAME_CHARACTERS_MAX + 1), created()
    check_names(
        msgspec.structs.replace(
            run, exclusive_key="k", chat="c", project="p", needs=("h", directory_need("/d"))
        )
    )
    for changes, told in (
        ({"exclusive_key": long}, "the exclusive key"),
        ({"chat": "run/x"}, "has the name of a run's own chat; choose another"),
        ({"project": "\n"}, "the project"),
        ({"needs": (long,)}, "the handler name"),
        ({"needs": (directory_need(f"/{long}"),)}, "the directory"),
    ):
        with pytest.raises(InvalidInput, match=told):
            check_names(msgspec.structs.replace(run, **changes))
