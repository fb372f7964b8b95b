"""A damaged file: found out, named, and only where it is; what is sound stays in use."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from onward.clock import SystemClock
from onward.engine.journal import Journal
from onward.errors import HistoryCorrupt, OnwardError, StoreCorrupt
from onward.model.run import FOLD_VERSION, Run
from onward.store.port.runs import RunQuery
from onward.store.sqlite.adapter import SqliteStore
from tests.conformance.drafts import Draft, held, step, stepped
from tests.store.disk import Onlooker

LARGE = random.Random(1).randbytes(1_500).hex() * 2
Find = Callable[[bytes, apsw.Connection], int]


async def made(path: Path) -> dict[str, Run]:
    """A database with three runs, all in one file, and what they fold to."""
    store = SqliteStore(str(path), connect=Onlooker)
    plain = await stepped(store, await held(store, "plain"), times=3)
    plain = await stepped(store, await stepped(store, plain, note="the needle"))
    large = await stepped(store, await held(store, "large", context={"text": LARGE}), text=LARGE[::-1])
    cached = await stepped(store, await held(store, "cached"), times=3)
    write, after = cached.then(*step(cached), with_row=False, snapshot_version=FOLD_VERSION)
    await store.log.append(write, cached.lease)
    cached = await stepped(store, after)
    await store.close()
    db = apsw.Connection(str(path))
    db.execute("VACUUM")  # otherwise old copies of rows lie about, and damage to them is none
    db.close()
    return {draft.id: draft.run for draft in (plain, large, cached)}


async def outcome(path: Path, run_id: str) -> Run | OnwardError:
    """What a new process finds of a run: its state, or the error that says why not."""
    store = None
    try:
        store = SqliteStore(str(path), connect=Onlooker)
        return (await Journal(store.log, SystemClock()).load(run_id)).run
    except OnwardError as error:
        return error
    finally:
        if store is not None:
            await store.close()


def flip(path: Path, offset: int, mask: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= mask
    path.write_bytes(content)


def in_body(content: bytes, db: apsw.Connection) -> int:
    return content.rindex(b"the needle")  # a page further up in the tree may have a stale copy


def in_kind(content: bytes, db: apsw.Connection) -> int:
    return content.rindex(b"StepFinished", 0, in_body(content, db))


def in_hash(content: bytes, db: apsw.Connection) -> int:
    return content.rindex(db.execute("SELECT hash FROM event WHERE run_id = 'plain' AND seq = 10").get)


def in_head(content: bytes, db: apsw.Connection) -> int:
    display_id = db.execute("SELECT display_id FROM run WHERE id = 'plain'").get
    hash_ = db.execute("SELECT hash FROM run WHERE id = 'plain'").get
    return content.index(hash_, content.index(f"plain{display_id}".encode()))


def in_status(content: bytes, db: apsw.Connection) -> int:
    display_id = db.execute("SELECT display_id FROM run WHERE id = 'plain'").get
    return content.index(b"running", content.index(f"plain{display_id}".encode()))


def in_blob(content: bytes, db: apsw.Connection) -> int:
    return content.index(db.execute("SELECT content FROM blob LIMIT 1").get[:50])


@pytest.mark.parametrize("mask", [1, 0x80], ids=["another letter", "no letter at all"])
@pytest.mark.parametrize(
    ("find", "run_id", "kind", "says"),
    [
        (in_body, "plain", HistoryCorrupt, "event 10 of run plain"),
        (in_kind, "plain", HistoryCorrupt, "event 10 of run plain"),
        (in_hash, "plain", HistoryCorrupt, "event 10 of run plain"),
        (in_head, "plain", HistoryCorrupt, "of run plain"),
        (in_status, "plain", StoreCorrupt, ""),
        (in_blob, "large", HistoryCorrupt, "(blob "),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_a_damaged_byte_is_found_where_it_is_and_harms_no_other_run(
    tmp_path: Path, find: Find, run_id: str, kind: type[OnwardError], says: str, mask: int
) -> None:
    path = tmp_path / "onward.db"
    runs = await made(path)
    db = apsw.Connection(str(path))
    offset = find(path.read_bytes(), db)
    db.close()
    flip(path, offset, mask)
    error = await outcome(path, run_id)
    assert type(error) is kind
    assert says in str(error)
    for other in runs.keys() - {run_id}:
        assert await outcome(path, other) == runs[other]


async def test_damaged_content_is_never_handed_out(tmp_path: Path) -> None:
    path = tmp_path / "onward.db"
    await made(path)
    db = apsw.Connection(str(path))
    name, stored = db.execute("SELECT hash, content FROM blob LIMIT 1").get
    db.close()
    flip(path, path.read_bytes().index(stored[:50]), 1)
    store = SqliteStore(str(path), connect=Onlooker)
    assert await store.blobs.find(name) is None
    await store.close()


async def test_a_damaged_snapshot_costs_time_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "onward.db"
    runs = await made(path)
    db = apsw.Connection(str(path))
    body = db.execute("SELECT body FROM snapshot").get
    db.close()
    place = path.read_bytes().index(body)
    for index in range(0, len(body), 7):
        flip(path, place + index, 1)
        assert await outcome(path, "cached") == runs["cached"]
        flip(path, place + index, 1)


@pytest.mark.slow
async def test_whatever_byte_is_damaged_no_run_is_ever_mistaken_for_another(tmp_path: Path) -> None:
    path = tmp_path / "onward.db"
    runs = await made(path)
    dice, sound = random.Random(0), path.read_bytes()
    answers: Counter[str] = Counter()
    for _ in range(250):
        path.write_bytes(sound)
        flip(path, dice.randrange(len(sound)), 1 << dice.randrange(8))
        for run_id, run in runs.items():
            answer = await outcome(path, run_id)
            assert answer == run or isinstance(answer, OnwardError)
            answers[type(answer).__name__] += 1
    assert answers["Run"] > answers["HistoryCorrupt"] > 0


@pytest.mark.slow
async def test_any_lost_page_is_found_out(tmp_path: Path) -> None:
    path = tmp_path / "onward.db"
    runs = await made(path)
    sound = path.read_bytes()
    for page in range(0, len(sound), 4096):
        path.write_bytes(sound[:page] + bytes(4096) + sound[page + 4096 :])
        for run_id, run in runs.items():
            answer = await outcome(path, run_id)
            assert answer == run or isinstance(answer, OnwardError)


async def test_a_torn_last_commit_is_dropped_whole_and_nothing_before_it(tmp_path: Path) -> None:
    """K3: what was torn is gone as one, and every commit before it is whole."""
    path = tmp_path / "onward.db"
    wal = tmp_path / "onward.db-wal"
    store = SqliteStore(str(path), connect=Onlooker)
    before = await stepped(store, await held(store, "run"), times=3)
    start = wal.stat().st_size
    after = await stepped(store, before, text="the last thing that happened")
    main, log = path.read_bytes(), wal.read_bytes()
    await store.close()

    async def after_a_crash(tail: bytes) -> Draft:
        copy = tmp_path / "copy.db"
        (tmp_path / "copy.db-wal").write_bytes(log[:start] + tail)
        copy.write_bytes(main)
        copy.chmod(0o600)
        store = SqliteStore(str(copy), connect=Onlooker)
        assert ("integrity", True, "ok") in await store.check()
        folded = await Journal(store.log, SystemClock()).load("run")
        await stepped(store, Draft(folded.run, folded.position), text="it goes on")
        await store.close()
        copy.unlink()
        return Draft(folded.run, folded.position)

    last = log[start:]
    assert await after_a_crash(last) == after
    for size in (*range(0, len(last), 512), len(last) - 1):
        assert await after_a_crash(last[:size]) == before
        assert await after_a_crash(last[:size] + bytes(len(last) - size)) == before


async def test_a_damaged_row_does_not_hide_which_run_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "onward.db"
    await made(path)
    db = apsw.Connection(str(path))
    offset = in_status(path.read_bytes(), db)
    db.close()
    flip(path, offset, 1)
    store = SqliteStore(str(path), connect=Onlooker)
    assert {listed.row.id for listed in await store.runs.list(RunQuery())} == {"large", "cached"}
    assert "the row of run 'plain' is damaged" in caplog.text
    for ask in (store.runs.find("plain"), store.log.load("plain", fold_version=FOLD_VERSION)):
        with pytest.raises(StoreCorrupt, match="the row of run 'plain' is damaged"):
            await ask
    with pytest.raises(StoreCorrupt, match="the row of run 'plain' is damaged"):
        await store.log.control("plain", since=0, append_id="request", decide=lambda *_: None)
    assert len(await store.runs.find("large")) == 1
    await store.close()
