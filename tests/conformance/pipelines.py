"""A registered pipeline has versions 1, 2, …; none changes, and new runs get the one that is enabled."""

from __future__ import annotations

import asyncio

from onward.store.codec import content_hash
from onward.store.port.retention import Added, NewSource, RegisteredPipeline, RegisteredVersion
from onward.store.port.store import Store
from tests.conformance.processes import Connect

AT_US, LATER_US, LATEST_US = 1_000, 2_000, 3_000
FIRST, SECOND, THIRD = b"digraph { a }", b"digraph { b }", b"digraph { c }"
ALL = 1_000


async def add(
    store: Store,
    content: bytes = FIRST,
    *,
    name: str = "site",
    by: str = "ann",
    at_us: int = AT_US,
    enables: bool = True,
) -> Added:
    new = NewSource(name, content_hash(content), content, "site.dot", by)
    return await store.pipelines.add(new, at_us=at_us, enables=enables)


async def versions(store: Store, name: str = "site") -> list[tuple[int, str]]:
    found = await store.pipelines.versions(name, limit=ALL)
    return [(one.version, one.hash) for one in reversed(found)]


async def swept(store: Store) -> int:
    return (await store.blobs.sweep(LATEST_US, ALL)).blobs


async def test_a_pipeline_that_nobody_added_is_not_there(store: Store) -> None:
    assert await store.pipelines.find("site") is None
    assert await store.pipelines.list(limit=ALL) == []
    assert await store.pipelines.versions("site", limit=ALL) == []
    assert await store.pipelines.enable("site", 1, by="ann", at_us=AT_US) is None
    assert await store.pipelines.remove("site", by="ann", at_us=AT_US) is None


async def test_the_first_source_of_a_name_is_its_version_1_for_every_process(
    store: Store, other: Store
) -> None:
    added = await add(store)
    assert added.pipeline == RegisteredPipeline("site", 1, 1, "ann", AT_US)
    assert added.version == RegisteredVersion("site", 1, content_hash(FIRST), "site.dot", "ann", AT_US)
    assert await other.pipelines.find("site") == added.pipeline
    assert await other.pipelines.list(limit=ALL) == [added.pipeline]
    assert await other.pipelines.versions("site", limit=ALL) == [added.version]
    assert await other.blobs.find(content_hash(FIRST)) == FIRST


async def test_another_source_is_the_next_version_and_is_enabled(store: Store) -> None:
    first = await add(store)
    second = await add(store, SECOND, by="bob", at_us=LATER_US)
    assert second.pipeline == RegisteredPipeline("site", 2, 2, "bob", LATER_US)
    assert second.version.version == 2
    assert await store.pipelines.versions("site", limit=ALL) == [second.version, first.version]


async def test_the_same_source_again_is_the_same_version(store: Store, other: Store) -> None:
    first = await add(store)
    assert await add(other, by="bob", at_us=LATER_US) == first
    assert await store.pipelines.versions("site", limit=ALL) == [first.version]


async def test_an_older_source_that_is_added_again_is_enabled_as_the_version_it_is(store: Store) -> None:
    first = await add(store)
    await add(store, SECOND)
    again = await add(store, FIRST, by="bob", at_us=LATER_US)
    assert again.version == first.version
    assert again.pipeline == RegisteredPipeline("site", 1, 2, "bob", LATER_US)


async def test_a_version_that_is_only_stored_leaves_the_enabled_one(store: Store) -> None:
    first = await add(store)
    stored = await add(store, SECOND, by="bob", at_us=LATER_US, enables=False)
    assert stored.version.version == 2
    assert stored.pipeline == first.pipeline._replace(newest=2)


async def test_the_only_version_of_a_name_is_enabled_whatever_was_asked(store: Store) -> None:
    assert (await add(store, enables=False)).pipeline.enabled == 1


async def test_the_enabled_version_is_the_one_that_was_chosen_last(store: Store, other: Store) -> None:
    await add(store)
    await add(store, SECOND)
    chosen = await other.pipelines.enable("site", 1, by="bob", at_us=LATER_US)
    assert chosen == RegisteredPipeline("site", 1, 2, "bob", LATER_US) == await store.pipelines.find("site")
    assert await store.pipelines.enable("site", 1, by="cid", at_us=LATEST_US) == chosen


async def test_a_removed_name_is_not_listed_and_cannot_be_enabled(store: Store, other: Store) -> None:
    await add(store)
    await add(store, SECOND)
    removed = await other.pipelines.remove("site", by="bob", at_us=LATER_US)
    assert removed == RegisteredPipeline("site", None, 2, "bob", LATER_US)
    assert await store.pipelines.list(limit=ALL) == []
    assert await store.pipelines.find("site") == removed
    assert await store.pipelines.enable("site", 1, by="cid", at_us=LATEST_US) == removed
    assert await store.pipelines.remove("site", by="cid", at_us=LATEST_US) == removed


async def test_a_removed_name_that_is_added_again_gives_no_number_to_another_source(store: Store) -> None:
    await add(store)
    await store.pipelines.remove("site", by="bob", at_us=AT_US)
    second = await add(store, SECOND, at_us=LATER_US)
    assert second.pipeline == RegisteredPipeline("site", 2, 2, "ann", LATER_US)
    await store.pipelines.remove("site", by="bob", at_us=AT_US)
    assert (await add(store, FIRST, enables=False)).pipeline.enabled == 1
    assert await versions(store) == [(1, content_hash(FIRST)), (2, content_hash(SECOND))]


async def test_the_sources_of_all_versions_stay_while_their_name_is_registered(
    store: Store, other: Store
) -> None:
    await add(store)
    await add(store, SECOND)
    await add(store, FIRST, name="shop")
    assert await swept(other) == 0
    await store.pipelines.remove("site", by="ann", at_us=LATER_US)
    assert await swept(other) == 1
    assert await store.blobs.find(content_hash(FIRST)) == FIRST
    assert await store.blobs.find(content_hash(SECOND)) is None


async def test_a_source_that_was_collected_is_stored_again_when_it_is_added(
    store: Store, other: Store
) -> None:
    await add(store)
    await store.pipelines.remove("site", by="ann", at_us=AT_US)
    assert await swept(other) == 1
    assert (await add(store, at_us=LATER_US)).version.version == 1
    assert await other.blobs.find(content_hash(FIRST)) == FIRST
    assert await swept(other) == 0


async def test_names_are_listed_in_their_order_a_page_at_a_time(store: Store) -> None:
    for name in ("b", "a_1", "B", "a-1", "a"):
        await add(store, name=name)
    listed = [one.name for one in await store.pipelines.list(limit=ALL)]
    assert listed == ["B", "a", "a-1", "a_1", "b"]
    assert [one.name for one in await store.pipelines.list(after="a", limit=2)] == ["a-1", "a_1"]


async def test_versions_are_read_from_one_on_a_page_at_a_time(store: Store) -> None:
    for content in (FIRST, SECOND, THIRD):
        await add(store, content)
    found = await store.pipelines.versions("site", upto=2, limit=1)
    assert [one.version for one in found] == [2]
    assert [one.version for one in await store.pipelines.versions("site", limit=2)] == [3, 2]
    assert [one.version for one in await store.pipelines.versions("site", upto=9, limit=1)] == [3]


async def test_sources_that_many_processes_add_at_once_get_versions_without_gaps(connect: Connect) -> None:
    stores = [await connect() for _ in range(4)]
    contents = [b"digraph { n%d }" % number for number in range(12)]
    adding = [
        add(stores[number % 4], content, by=f"process {number % 4}")
        for number, content in enumerate([*contents, *contents])
    ]
    added = await asyncio.gather(*adding)
    assert {one.version.version for one in added} == set(range(1, 13))
    found = await versions(stores[0])
    assert [number for number, _ in found] == [*range(1, 13)]
    assert {hash for _, hash in found} == {content_hash(content) for content in contents}
    assert all((one.version.version, one.version.hash) in found for one in added)
    for store in stores:
        await store.close()
