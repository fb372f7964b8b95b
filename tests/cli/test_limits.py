"""Limits and usage through the real command line."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from onward.model.events import RunPaused
from onward.model.ids import called
from onward.wiring import open_store
from tests.cli.shell import Shell
from tests.conformance.drafts import requested
from tests.conformance.limits import begun, ended, used, working


def spent(shell: Shell, run_id: str, *scopes: str, tokens: int, cost_micro: int = 0, **fields: Any) -> None:
    """Let a run make one call."""

    async def spend() -> None:
        store = await open_store(shell.db)
        run = await begun(store, await working(store, run_id, **fields), *scopes, tokens=tokens)
        run = await ended(store, run, usage=used(tokens), cost_micro=cost_micro)
        await requested(store, run, RunPaused(reason="operator"))
        await store.close()

    asyncio.run(spend())


def test_limits_are_set_shown_and_reset(any_shell: Shell) -> None:
    shell = any_shell
    done = shell.inside("limits", "set", "day", "tokens", "200000")
    assert (done.code, done.out) == (0, "limits of every day: tokens 200,000, cost none, calls none\n")
    assert shell.inside("limits", "set", "chat/c", "cost", "2.50").out.endswith("cost $2.50, calls none\n")
    spent(shell, "a", "chat/c", "day/2023-11-14", "run/a", tokens=50_000, cost_micro=2_250_000)
    lines = [line.split() for line in shell.inside("limits").out.splitlines()]
    assert lines[0] == ["SCOPE", "OF", "LIMIT", "SPENT", "RESERVED", "USED"]
    assert ["every", "day", "tokens", "200,000"] in lines
    assert any(
        line[:4] == ["chat/c", "cost", "$2.50", "$2.25"] and line[-2:] == ["90", "%"] for line in lines
    )
    assert any(line[:4] == ["day/2023-11-14", "tokens", "200,000", "(default)"] for line in lines)
    found = shell.inside("limits", "--json").json["scopes"]
    (chat,) = [one for one in found if one["scope"] == "chat/c"]
    assert chat["cost_micro"] == {"limit": 2_500_000, "is_own": True, "spent": 2_250_000, "reserved": 0}
    assert chat["warned"] == ["cost"]
    assert "cost none" in shell.inside("limits", "reset", "chat/c").out
    (chat,) = [one for one in shell.inside("limits", "--json").json["scopes"] if one["scope"] == "chat/c"]
    assert (chat["cost_micro"]["limit"], chat["cost_micro"]["spent"]) == (None, 2_250_000)


def test_a_run_in_the_list_of_limits_has_the_name_that_other_commands_print(shell: Shell) -> None:
    run_id = "01m7rr22qt9qbr6t15tbc9850a"
    spent(shell, run_id, f"run/{run_id}", tokens=10)
    listed = shell.inside("limits").out
    assert f"run/{called(run_id)} " in listed
    assert run_id not in listed


@pytest.mark.parametrize("value", ["1_000", "1,0", "1,00,000", "0,5", "1e3", ",1", "1,000,", "-1", "1.5"])
def test_a_number_that_could_be_read_otherwise_is_no_limit(shell: Shell, value: str) -> None:
    done = shell.inside("limits", "set", "day", "tokens", value)
    assert done.code == 2
    assert "cannot be a limit on tokens; write a whole number, such as 200000 or 200,000" in done.err


def test_thousands_may_be_set_apart_by_commas(shell: Shell) -> None:
    assert "tokens 1,200,000" in shell.inside("limits", "set", "day", "tokens", "1,200,000").out
    assert "cost $1,250.50" in shell.inside("limits", "set", "day", "cost", "$1,250.50").out
    assert shell.inside("limits", "set", "day", "cost", "1_250").code == 2


def test_a_limit_below_what_is_spent_says_that_runs_stop(shell: Shell) -> None:
    today = f"day/{datetime.now(UTC).date().isoformat()}"
    spent(shell, "a", "chat/c", today, "run/a", tokens=500)
    assert "its runs stop" not in shell.inside("limits", "set", "chat/c", "tokens", "501").out
    lowered = shell.inside("limits", "set", "chat/c", "tokens", "400")
    assert (
        lowered.out.splitlines()[1] == "chat/c has spent 500 of 400 tokens: its runs stop at their next call"
    )
    default = shell.inside("limits", "set", "day", "tokens", "400")
    assert f"{today} has spent 500 of 400 tokens: its runs stop at their next call" in default.out


def test_a_changed_default_says_which_scopes_keep_a_limit_of_their_own(shell: Shell) -> None:
    shell.inside("limits", "set", "day/2001-01-01", "tokens", "7")
    shell.inside("limits", "set", "day/2999-01-01", "tokens", "9")
    for words in (("set", "day", "tokens", "0"), ("reset", "day")):
        changed = shell.inside("limits", *words).out.splitlines()[1:]
        assert changed == [
            "day/2999-01-01 keeps its own limits (tokens 9); "
            "to remove them: onward limits reset day/2999-01-01"
        ]
    assert shell.inside("limits", "set", "day", "calls", "3").out.count("\n") == 1
    found = shell.inside("limits", "set", "day", "tokens", "5", "--json").json
    assert [one["scope"] for one in found["apart"]] == ["day/2999-01-01"]


def test_a_run_is_named_in_short_and_its_root_is_meant(shell: Shell) -> None:
    spent(shell, "first", "run/first", tokens=10)
    spent(shell, "second", "run/first", tokens=10, charged_to="first")
    changed = shell.inside("limits", "set", "run/seco", "calls", "7", "--json").json
    assert changed["scope"]["scope"] == "run/first"
    assert changed["scope"]["calls"] == {"limit": 7, "is_own": True, "spent": 2, "reserved": 0}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("set", "dya", "tokens", "1"), "'dya' is not a scope"),
        (("set", "day/2026-02-30", "tokens", "1"), "'2026-02-30' is not a day"),
        (("set", "chat/", "tokens", "1"), "'chat/' is not a scope"),
        (("set", "day", "token", "1"), "write tokens, cost or calls"),
        (("set", "day", "tokens", "many"), "write a whole number, such as 200000"),
        (("set", "day", "tokens", "1.5"), "write a whole number"),
        (("set", "day", "tokens", "-1"), ""),
        (("set", "day", "cost", "2.1234567"), "write dollars, such as 2.50"),
        (("set", "day", "tokens", "9999999999999999"), "too large"),
        (("set", "day", "tokens"), "as in `onward limits set day tokens 200000`"),
        (("set", "run/nowhere", "tokens", "1"), "no run 'nowhere'"),
        (("reset",), "name the scope to reset"),
        (("show", "day"), "takes no scope"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_sentence(
    shell: Shell, words: tuple[str, ...], says: str
) -> None:
    refused = shell.inside("limits", *words)
    assert refused.code in (1, 2)
    assert says in refused.err
    assert "Traceback" not in refused.err


def test_a_database_that_is_not_there_is_not_made_by_looking(shell: Shell) -> None:
    for command in ("limits", "usage"):
        assert "does not exist yet" in shell.inside(command).err


def test_usage_is_shown_with_bars(any_shell: Shell) -> None:
    shell = any_shell
    spent(shell, "a", "chat/c", "day/2023-11-14", tokens=300, cost_micro=4_000_000, pipeline="story")
    spent(shell, "b", "chat/c", "day/2023-11-15", tokens=100, cost_micro=1_000_000, pipeline="tale")
    lines = shell.inside("usage", "--by", "pipeline").out.splitlines()
    assert [line.split()[0] for line in lines] == ["PIPELINE", "story", "tale"]
    assert lines[1].count("█") == 20
    assert lines[2].count("█") == 5
    assert "$4.00" in lines[1]
    found = shell.inside("usage", "--by", "chat", "--json").json
    assert found["by"] == "chat"
    assert [(one["what"], one["tokens"], one["cost_micro"], one["calls"]) for one in found["usage"]] == [
        ("c", 400, 5_000_000, 2)
    ]
    days = [one["what"] for one in shell.inside("usage", "--json").json["usage"]]
    assert days == ["2023-11-15", "2023-11-14"]


def test_verify_finds_a_reservation_that_is_not_what_the_log_says(shell: Shell) -> None:
    import apsw

    spent(shell, "a", "day/2023-11-14", tokens=300)
    assert shell.inside("verify", "a").code == 0
    db = apsw.Connection(shell.db)
    db.execute("UPDATE reservation SET charged_tokens = 1")
    db.close()
    damaged = shell.inside("verify", "a")
    assert damaged.code == 1
    assert "the reservation of call m1" in damaged.out + damaged.err


def test_a_limit_to_raise_is_checked_before_the_run_is_looked_at(shell: Shell) -> None:
    spent(shell, "a", "run/a", tokens=10)
    for text, says in (
        ("day", "names no limit"),
        ("week.tokens=1", "names no limit"),
        ("day.cost=x", "dollars"),
        ("day/2026-02-30.tokens=1", "is not a day"),
        ("day/2001-01-01.tokens=1", "not in day/2001-01-01"),
    ):
        refused = shell.inside("resume", "a", "--raise", text)
        assert refused.code in (1, 2)
        assert says in refused.err
