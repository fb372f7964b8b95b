"""Limits of chats: the defaults, what is checked before a run begins, and what is said about it."""

from __future__ import annotations

import pytest

from onward.chats.decide import precheck, scopes_checked
from onward.model.chat import IntakeOutcome, Wish
from onward.model.limits import CALLS_PER_CHAT_RUN, CALLS_PER_RUN, CHAT_TOKENS, Amounts
from onward.operations.local.database import LocalLimits
from onward.operations.requests import ListLimits, ResetLimits, SetLimit
from onward.store.port.limits import Scope
from tests.chats.desk import desk_of
from tests.chats.test_dispatch import killed
from tests.world import World

pytestmark = pytest.mark.anyio


def scope(id: str, *, tokens: int = 0, cost: int = 0, spent: tuple[int, int] = (0, 0)) -> Scope:
    return Scope(id=id, own=(tokens, cost, 0), spent=Amounts(*spent))


CHAT, DAY, PROJECT = "chat/talk", "day/2026-11-17", "project/shop"
OVER_CHAT = scope(CHAT, tokens=100, spent=(100, 0))
OVER_DAY = scope(DAY, cost=2_000_000, spent=(0, 2_500_000))
OVER_PROJECT = scope(PROJECT, cost=10, spent=(0, 10))
NEAR_CHAT, NEAR_DAY = scope(CHAT, tokens=100, spent=(80, 0)), scope(DAY, cost=100, spent=(0, 99))


@pytest.mark.parametrize(
    ("scopes", "blocked", "warnings"),
    [
        ([], "", 0),
        ([scope(CHAT, tokens=0, spent=(10**9, 0))], "", 0),
        ([scope(CHAT, tokens=100, spent=(79, 0))], "", 0),
        ([NEAR_CHAT], "", 1),
        ([NEAR_CHAT, NEAR_DAY], "", 2),
        ([OVER_CHAT, OVER_DAY, OVER_PROJECT], "chat/talk has used 100 of 100 tokens", 0),
        ([OVER_PROJECT, OVER_DAY], "day/2026-11-17 has used $2.50 of $2.00", 0),
        ([OVER_PROJECT, NEAR_CHAT], "project/shop has used $0.00001 of $0.00001", 0),
    ],
)
def test_limits_are_checked_in_their_order_and_the_first_blocks(
    scopes: list[Scope], blocked: str, warnings: int
) -> None:
    """S0-30: the tokens of the chat, the cost of the day, the cost of the project; all, then 80 %."""
    found = precheck(scopes)
    assert found.blocked.startswith(blocked)
    assert bool(found.blocked) is bool(blocked)
    assert len(found.warnings) == warnings


def test_a_block_says_what_to_type() -> None:
    found = precheck([OVER_DAY])
    assert "`onward limits set day/2026-11-17 cost 5.00`, then send it again" in found.blocked


def test_the_day_is_that_of_the_moment_and_a_chat_without_project_has_no_third() -> None:
    assert scopes_checked("talk", "", 0) == ["chat/talk", "day/1970-01-01"]
    assert scopes_checked("talk", "shop", 0)[2:] == ["project/shop"]


async def test_every_chat_has_a_limit_on_tokens_until_another_is_set(world: World) -> None:
    """A new database has it; 0 is none, and a reset brings it back."""
    desk = await desk_of(world)
    limits = LocalLimits(desk.process.store, desk.process.clock)
    (of_chat, of_run) = await desk.process.store.limits.read(["chat/any", "run/any"])
    assert (of_chat.limit.tokens, of_run.limit) == (CHAT_TOKENS, Amounts(calls=CALLS_PER_RUN))
    await limits.set_limit(SetLimit(scope="chat", measure="tokens", value=0))
    (of_chat,) = await desk.process.store.limits.read(["chat/any"])
    assert of_chat.limit == Amounts()
    await limits.set_limit(SetLimit(scope="run", measure="calls", value=7))
    for kind in ("chat", "run"):
        await limits.reset_limits(ResetLimits(scope=kind))
    (of_chat, of_run) = await desk.process.store.limits.read(["chat/any", "run/any"])
    assert (of_chat.limit.tokens, of_run.limit.calls) == (CHAT_TOKENS, CALLS_PER_RUN)


async def test_a_run_of_a_chat_may_make_so_many_calls_unless_something_is_said_about_runs(
    world: World,
) -> None:
    desk = await desk_of(world)
    limits = LocalLimits(desk.process.store, desk.process.clock)
    assert (await limits.list_limits(ListLimits()))["chat_run_calls"] == CALLS_PER_CHAT_RUN
    said = await desk.say("build me a site", "one")
    await limits.set_limit(SetLimit(scope="run", measure="calls", value=0))
    free = await desk.say("build me a site", "two")
    scopes = await desk.process.store.limits.read([f"run/{said.run_id}", f"run/{free.run_id}"])
    assert [one.limit.calls for one in scopes] == [CALLS_PER_CHAT_RUN, 0]
    assert (await limits.list_limits(ListLimits()))["chat_run_calls"] is None


async def test_a_spent_limit_blocks_a_start_and_is_said_in_the_chat(memory: World) -> None:
    """S0-30, B0-16: the reply says so, the message is kept, and nothing was started or resumed."""
    desk = await desk_of(memory)
    memory_of(desk.process.store)["chat/talk"] = scope(CHAT, tokens=100, spent=(120, 0))
    said = await desk.say("build me a site")
    assert said.outcome is IntakeOutcome.LIMIT
    assert "chat/talk has used 120 of 100 tokens" in said.notice
    assert (await desk.spoken(), await desk.runs()) == ([said.notice], [])
    memory_of(desk.process.store)["chat/talk"] = scope(CHAT, tokens=150, spent=(120, 0))
    again = await desk.say("build me a site")
    assert again.outcome is IntakeOutcome.STARTED
    assert "chat/talk has used 120 of 150 tokens." in await desk.spoken()


@pytest.mark.parametrize("wish", [Wish.NONE, Wish.RESUME])
async def test_a_spent_limit_blocks_a_resume(memory: World, wish: Wish) -> None:
    """S0-30, S0-36, B0-16: it is not said to be resumed, and the run stays as it was."""
    desk, _ = await killed(memory, "check")
    memory_of(desk.process.store)["chat/talk"] = scope(CHAT, tokens=100, spent=(100, 0))
    said = await desk.say("continue?", wish=wish)
    assert (said.outcome, said.run_id) == (IntakeOutcome.LIMIT, "")
    assert await desk.statuses() == [("interrupted", "crash")]
    memory_of(desk.process.store)["chat/talk"] = scope(CHAT, tokens=1_000, spent=(100, 0))
    assert (await desk.say("continue?", wish=wish)).outcome is IntakeOutcome.RESUMED


def memory_of(store: object) -> dict[str, Scope]:
    """The scopes of a store in memory."""
    found: dict[str, Scope] = store.store.database.scopes  # type: ignore[attr-defined]
    return found
