"""Credentials: found by their id, ended for good, and a code that works once."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from onward.errors import InvalidInput, Refused
from onward.store.port.principals import USED_EVERY_US, Principal, PrincipalKind, secret_hash
from onward.store.port.store import Store
from tests.conformance.processes import Connect

AT_US, LATER_US = 1_000, 2_000
ROLES = ("operator", "approver")


def token(id: str = "t1", name: str = "laptop", *, at_us: int = AT_US) -> Principal:
    return Principal(
        id=id,
        kind="token",
        name=name,
        secret_hash=secret_hash(f"secret of {id}"),
        roles=ROLES,
        made_at_us=at_us,
    )


def opened(
    kind: PrincipalKind, id: str, *, by: str | None = "t1", expires_at_us: int | None = None
) -> Principal:
    """A session or a code of a token."""
    return replace(token(id), kind=kind, token=by, expires_at_us=expires_at_us)


async def test_a_principal_is_found_by_its_id_in_every_process(store: Store, other: Store) -> None:
    ours = replace(token(), expires_at_us=LATER_US)
    await store.principals.put(ours)
    assert await other.principals.find("t1") == ours
    for id in ("t", "t11", "T1", "", "'", "laptop"):
        assert await other.principals.find(id) is None, id


async def test_the_same_principal_again_is_no_other(store: Store) -> None:
    """After a lost reply, the caller asks again; by then it may have been used."""
    await store.principals.put(token())
    await store.principals.used("t1", at_us=LATER_US)
    await store.principals.put(token())
    found = await store.principals.find("t1")
    assert found == replace(token(), used_at_us=LATER_US)


async def test_no_principal_replaces_another(store: Store, other: Store) -> None:
    """S20: to create is not to overwrite."""
    await store.principals.put(token())
    for rival in (token(name="other"), replace(token(), secret_hash=secret_hash("x")), token("t2")):
        with pytest.raises(Refused, match="there is another token named") as refused:
            await other.principals.put(rival)
        assert refused.value.code == "token_exists"
    assert await store.principals.read() == [token()]


async def test_the_name_of_a_revoked_token_is_free(store: Store) -> None:
    await store.principals.put(token())
    assert await store.principals.revoke("t1", at_us=LATER_US)
    again = token("t2", at_us=LATER_US)
    await store.principals.put(again)
    assert await store.principals.read() == [again, replace(token(), revoked_at_us=LATER_US)]


async def test_tokens_are_listed_newest_first_and_others_on_request(store: Store) -> None:
    for number in range(3):
        await store.principals.put(token(f"t{number}", f"name-{number}", at_us=AT_US + number // 2))
    await store.principals.put(opened("session", "s1"))
    await store.principals.put(opened("code", "c1"))
    assert [one.id for one in await store.principals.read()] == ["t2", "t1", "t0"]
    assert [one.id for one in await store.principals.read(limit=1)] == ["t2"]
    assert [one.id for one in await store.principals.read(("session", "code"))] == ["s1", "c1"]
    assert await store.principals.read(()) == []


async def test_a_revoked_token_takes_its_sessions_and_codes_with_it(store: Store, other: Store) -> None:
    """S24. Also those that are stored by a process that did not hear of it in time."""
    await store.principals.put(token())
    await store.principals.put(token("t2", "other"))
    await store.principals.put(opened("session", "s1"))
    await store.principals.put(opened("code", "c1"))
    await store.principals.put(opened("session", "s2", by="t2"))
    assert await other.principals.revoke("t1", at_us=LATER_US)
    await store.principals.put(opened("session", "late"))
    for id in ("t1", "s1", "c1", "late"):
        found = await store.principals.find(id)
        assert found is not None
        assert found.revoked_at_us == LATER_US, id
        assert not found.is_valid(AT_US)
    found = await store.principals.find("s2")
    assert found is not None
    assert found.is_valid(LATER_US)
    assert not await store.principals.revoke("t1", at_us=LATER_US + 1)
    assert not await store.principals.revoke("nobody", at_us=LATER_US)


async def test_a_revoked_session_leaves_its_token_in_force(store: Store) -> None:
    """S24: signing out."""
    await store.principals.put(token())
    await store.principals.put(opened("session", "s1"))
    assert await store.principals.revoke("s1", at_us=LATER_US)
    assert not await store.principals.revoke("s1", at_us=LATER_US)
    assert await store.principals.find("t1") == token()


async def test_a_session_ends_no_later_than_its_token(store: Store) -> None:
    await store.principals.put(replace(token(), expires_at_us=50))
    await store.principals.put(opened("session", "long", expires_at_us=90))
    await store.principals.put(opened("session", "short", expires_at_us=20))
    await store.principals.put(opened("session", "unsaid"))
    await store.principals.put(opened("session", "orphan", by="unknown"))
    found = {one.id: one for one in await store.principals.read(("session",))}
    assert {id: one.expires_at_us for id, one in found.items()} == {
        "long": 50,
        "short": 20,
        "unsaid": 50,
        "orphan": None,
    }
    assert [id for id, one in found.items() if one.is_valid(20)] == ["unsaid", "long"]
    assert not found["orphan"].is_valid(0)


async def test_use_is_noted_once_in_a_while(store: Store, other: Store) -> None:
    await store.principals.put(token())
    for at_us, noted_us in (
        (AT_US, AT_US),
        (AT_US + USED_EVERY_US - 1, AT_US),
        (AT_US + USED_EVERY_US, AT_US + USED_EVERY_US),
        (AT_US, AT_US + USED_EVERY_US),
    ):
        await other.principals.used("t1", at_us=at_us)
        found = await store.principals.find("t1")
        assert found is not None
        assert found.used_at_us == noted_us
    await store.principals.used("nobody", at_us=AT_US)


async def test_a_code_is_redeemed_once(store: Store, other: Store) -> None:
    await store.principals.put(token())
    await store.principals.put(opened("code", "c1", expires_at_us=LATER_US))
    await store.principals.used("c1", at_us=AT_US)
    won = await store.principals.redeem("c1", now_us=LATER_US - 1)
    assert won is not None
    assert (won.id, won.token, won.roles, won.used_at_us) == ("c1", "t1", ROLES, LATER_US - 1)
    assert not won.is_valid(LATER_US - 1)
    assert await store.principals.redeem("c1", now_us=LATER_US - 1) is None
    assert await other.principals.redeem("c1", now_us=LATER_US - 1) is None


async def test_what_is_no_valid_code_is_not_redeemed(store: Store) -> None:
    await store.principals.put(token())
    await store.principals.put(replace(token("t2", "expired"), expires_at_us=AT_US))
    await store.principals.put(opened("code", "late", expires_at_us=LATER_US))
    await store.principals.put(opened("code", "revoked"))
    await store.principals.put(opened("session", "s1"))
    await store.principals.put(opened("code", "of-expired", by="t2"))
    await store.principals.put(opened("code", "of-nobody", by="unknown"))
    await store.principals.revoke("revoked", at_us=AT_US)
    for id in ("t1", "s1", "late", "revoked", "of-expired", "of-nobody", "unknown", ""):
        assert await store.principals.redeem(id, now_us=LATER_US) is None, id
    await store.principals.put(opened("code", "alone", by=None))
    assert await store.principals.redeem("alone", now_us=LATER_US) is not None


async def test_of_many_who_redeem_a_code_at_once_one_does(connect: Connect) -> None:
    stores = [await connect() for _ in range(4)]
    await stores[0].principals.put(token())
    for number in range(5):
        code = f"c{number}"
        await stores[0].principals.put(opened("code", code))
        won = await asyncio.gather(*(stores[n % 4].principals.redeem(code, now_us=AT_US) for n in range(16)))
        assert [one.id for one in won if one is not None] == [code]
    for store in stores:
        await store.close()


async def test_names_are_of_a_few_characters() -> None:
    """S14. So no text that is made of them can mean two callers."""
    for name in ("", "x y", "X", "x/y", "é", "x'", "x\n", "x" * 65):
        with pytest.raises(InvalidInput, match="use 1 to 64 of the characters"):
            token(name=name)
        with pytest.raises(InvalidInput, match="use 1 to 64 of the characters"):
            token(id=name)
    with pytest.raises(InvalidInput, match="32 bytes"):
        replace(token(), secret_hash=b"short")
    with pytest.raises(InvalidInput, match="belongs to no other"):
        replace(token(), token="t2")
    with pytest.raises(InvalidInput, match="a role must be a single word"):
        replace(token(), roles=("admin operator",))


async def test_sessions_and_codes_that_are_over_are_removed_and_tokens_stay(
    store: Store, other: Store
) -> None:
    """However they ended: in time, revoked, or used up. At most so many at once."""
    for name in ("t1", "t2"):
        await store.principals.put(replace(token(name, name), expires_at_us=LATER_US))
    for id in ("late", "later"):
        await store.principals.put(opened("session", id, expires_at_us=LATER_US + (id == "later")))
    await store.principals.put(opened("session", "revoked", expires_at_us=LATER_US * 9))
    await store.principals.put(opened("code", "used", expires_at_us=LATER_US * 9))
    await store.principals.put(opened("session", "busy", expires_at_us=LATER_US * 9))
    await store.principals.revoke("revoked", at_us=LATER_US)
    assert await store.principals.redeem("used", now_us=AT_US + 1) is not None
    await store.principals.used("busy", at_us=AT_US + 1)
    await store.principals.revoke("t2", at_us=AT_US + 1)
    assert await store.principals.tidy(before_us=AT_US, limit=10) == 0
    assert await store.principals.tidy(before_us=LATER_US, limit=2) == 2
    assert await other.principals.tidy(before_us=LATER_US, limit=10) == 1
    left = await store.principals.read(("token", "session", "code"))
    assert {one.id for one in left} == {"t1", "t2", "later", "busy"}
