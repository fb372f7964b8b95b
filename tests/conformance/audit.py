"""The audit: a row before the change, completed after it."""

from __future__ import annotations

from msgspec.structs import replace

from onward.store.port.principals import AuditRow
from onward.store.port.store import Store

ROW = AuditRow(
    at_us=1_000,
    by="token:laptop",
    principal="t1",
    address="127.0.0.1",
    operation="CancelRun",
    subject="run-'1\" \0é",
    key="k1",
    on_behalf_of="ann@example",
)


async def test_an_attempt_is_written_before_it_is_complete(store: Store, other: Store) -> None:
    first = await store.audit.begin(ROW)
    second = await store.audit.begin(replace(ROW, key=None, on_behalf_of=None, code=200, done_at_us=1))
    assert second > first
    await store.audit.finish(first, code=409, at_us=2_000)
    assert await other.audit.read(limit=10) == [
        replace(ROW, n=second, key=None, on_behalf_of=None),
        replace(ROW, n=first, code=409, done_at_us=2_000),
    ]


async def test_the_first_completion_stays(store: Store) -> None:
    n = await store.audit.begin(ROW)
    await store.audit.finish(n, code=200, at_us=2_000)
    await store.audit.finish(n, code=500, at_us=3_000)
    await store.audit.finish(n + 1, code=500, at_us=3_000)
    await store.audit.finish(0, code=500, at_us=3_000)
    assert await store.audit.read(limit=10) == [replace(ROW, n=n, code=200, done_at_us=2_000)]


async def test_the_audit_is_read_in_pages_newest_first(store: Store, other: Store) -> None:
    numbers = [await (store, other)[n % 2].audit.begin(replace(ROW, at_us=n)) for n in range(5)]
    assert numbers == sorted(numbers)
    found: list[int] = []
    before: int | None = None
    while page := await store.audit.read(before=before, limit=2):
        found += [row.n for row in page]
        before = found[-1]
        await store.audit.begin(ROW)
    assert found == numbers[::-1]
    assert await store.audit.read(before=0, limit=2) == []


async def test_old_rows_are_removed_and_their_numbers_do_not_come_again(store: Store, other: Store) -> None:
    """The oldest first, at most so many at once."""
    numbers = [await store.audit.begin(replace(ROW, at_us=n)) for n in range(5)]
    assert await store.audit.tidy(before_us=3, limit=2) == 2
    assert [row.n for row in await other.audit.read(limit=10)] == numbers[:1:-1]
    assert await other.audit.tidy(before_us=3, limit=10) == 2
    assert await store.audit.tidy(before_us=3, limit=10) == 0
    await store.audit.finish(numbers[0], code=200, at_us=9)
    assert [row.n for row in await store.audit.read(limit=10)] == numbers[4:]
    assert await store.audit.tidy(before_us=4, limit=10) == 1
    assert await store.audit.begin(ROW) > numbers[-1]
