"""An effect is begun and finished by one caller, and begun again only if a person decides so."""

from __future__ import annotations

import asyncio

from onward.store.port.leases import Effect
from onward.store.port.store import Store
from tests.conformance.processes import Connect

AT_US, LATER_US = 1_000, 2_000


async def begin(store: Store, token: str = "one", *, instead_of: str | None = None) -> Effect:
    return await store.effects.begin("charge", token, at_us=AT_US, instead_of=instead_of)


async def test_an_effect_that_nobody_began_is_not_there(store: Store) -> None:
    assert await store.effects.find("charge") is None


async def test_an_effect_is_begun_by_whoever_comes_first(store: Store, other: Store) -> None:
    ours = await begin(store)
    assert (ours.token, ours.owner, ours.is_alive) == ("one", store.leases.owner, True)
    assert (ours.begun_at_us, ours.finished_at_us, ours.result) == (AT_US, None, None)
    assert await begin(other, "two") == ours == await other.effects.find("charge")


async def test_beginning_again_under_the_same_token_is_the_same_beginning(store: Store) -> None:
    """After a lost reply, the caller asks again."""
    assert await begin(store) == await begin(store)


async def test_a_finished_effect_has_its_result_for_everybody(store: Store, other: Store) -> None:
    await begin(store)
    assert await store.effects.finish("charge", "one", b"\0paid\xff", at_us=LATER_US)
    found = await begin(other, "two")
    assert (found.token, found.result, found.finished_at_us) == ("one", b"\0paid\xff", LATER_US)


async def test_the_first_result_stays(store: Store) -> None:
    await begin(store)
    assert await store.effects.finish("charge", "one", b"first", at_us=AT_US)
    assert await store.effects.finish("charge", "one", b"second", at_us=LATER_US)
    found = await store.effects.find("charge")
    assert found is not None
    assert (found.result, found.finished_at_us) == (b"first", AT_US)


async def test_only_whoever_began_an_effect_can_finish_it(store: Store, other: Store) -> None:
    await begin(store)
    assert not await other.effects.finish("charge", "two", b"no", at_us=LATER_US)
    assert not await other.effects.finish("refund", "two", b"no", at_us=LATER_US)
    assert await store.effects.find("charge") == await begin(store)


async def test_an_effect_whose_process_ended_is_in_doubt_and_not_begun_again(
    connect: Connect, store: Store
) -> None:
    gone = await connect()
    await begin(gone)
    await gone.close()
    found = await begin(store, "two")
    assert (found.token, found.is_alive, found.result) == ("one", False, None)


async def test_an_effect_that_was_left_is_in_doubt_though_its_process_lives(
    store: Store, other: Store
) -> None:
    await begin(store)
    assert await store.effects.renew("charge", "one")
    assert (await begin(other, "two")).is_alive
    assert await store.effects.renew("charge", "one", is_at_it=False)
    assert not (await begin(other, "two")).is_alive
    assert not (await begin(store, "two")).is_alive


async def test_an_effect_in_doubt_is_begun_again_by_whoever_says_which(
    connect: Connect, store: Store
) -> None:
    """Of several callers, one succeeds: the others name a start that no longer exists."""
    gone = await connect()
    await begin(gone)
    await gone.close()
    again = await begin(store, "two", instead_of="one")
    assert (again.token, again.owner, again.is_alive) == ("two", store.leases.owner, True)
    assert (await begin(store, "three", instead_of="one")).token == "two"
    assert not await store.effects.finish("charge", "one", b"late", at_us=LATER_US)
    assert not await store.effects.renew("charge", "one")
    assert await store.effects.finish("charge", "two", b"paid", at_us=LATER_US)


async def test_a_finished_effect_is_not_begun_again(store: Store) -> None:
    await begin(store)
    await store.effects.finish("charge", "one", b"paid", at_us=LATER_US)
    assert (await begin(store, "two", instead_of="one")).result == b"paid"
    assert not await store.effects.renew("charge", "one")


async def test_a_forgotten_effect_can_be_begun(store: Store, other: Store) -> None:
    await begin(store)
    await store.effects.forget("charge", "two")
    assert (await begin(other, "two")).token == "one"
    await store.effects.forget("charge", "one")
    await store.effects.forget("charge", "one")
    assert (await begin(other, "two")).token == "two"


async def test_effects_of_different_keys_know_nothing_of_each_other(store: Store) -> None:
    await begin(store)
    other = await store.effects.begin("charge/2", "two", at_us=LATER_US)
    assert (other.token, other.begun_at_us) == ("two", LATER_US)
    found = await store.effects.find("charge")
    assert found is not None
    assert found.token == "one"


async def test_of_many_who_begin_an_effect_at_once_one_does(connect: Connect) -> None:
    stores = [await connect() for _ in range(4)]
    found = await asyncio.gather(*(begin(stores[n % 4], f"token {n}") for n in range(16)))
    assert len({effect.token for effect in found}) == 1
    for store in stores:
        await store.close()


async def test_the_effects_below_a_key_are_read_in_the_order_of_their_keys(
    store: Store, connect: Connect
) -> None:
    """Effects of a key with the same prefix are not among them."""
    gone = await connect()
    for key in ("run/pay#1/b", "run/pay#1/a", "run/pay#10/a", "run/pay#1", "run/pay#1.x/y", "run/pay#1/é"):
        await gone.effects.begin(key, f"token of {key}", at_us=AT_US)
    await gone.effects.finish("run/pay#1/a", "token of run/pay#1/a", b"paid", at_us=LATER_US)
    await gone.close()
    found = await store.effects.read("run/pay#1", limit=10)
    assert [(effect.key, effect.result) for effect in found] == [
        ("run/pay#1/a", b"paid"),
        ("run/pay#1/b", None),
        ("run/pay#1/é", None),
    ]
    assert not any(effect.is_alive for effect in found[1:])
    assert [effect.key for effect in await store.effects.read("run/pay#1", limit=1)] == ["run/pay#1/a"]
