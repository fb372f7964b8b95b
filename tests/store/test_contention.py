"""Real processes compete for one database: every race has one winner, and nobody is starved."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from onward.store.codec import check_chain
from onward.store.port.log import ORIGIN
from onward.store.port.principals import Principal, secret_hash
from onward.store.port.store import Store
from onward.wiring import open_store
from tests.cli.nursery import INHERITED
from tests.cli.nursery import start as start_python
from tests.conformance.drafts import created, log_of

ROOT = Path(__file__).parents[2]
PROCESSES = 5
# What a request may have to sit through. Measured were up to 80 on SQLite, where waiting is polling; one that
# is starved sits through all there are.
COMMITS_MAX = 2_000

pytestmark = pytest.mark.slow
Start = Callable[..., "Contender"]


class Contender:
    """A process running `tests.store.contender`; it waits to be told to begin, and afterwards to end."""

    def __init__(self, db: str, *task: object) -> None:
        command = ["-m", "tests.store.contender", db, *map(str, task)]
        self.process = start_python(command, ROOT, INHERITED, stdin=subprocess.PIPE)

    def hear(self) -> list[str]:
        assert self.process.stdout is not None
        words = self.process.stdout.readline().decode().split()
        assert words, "the process ended before it had said everything"
        return words

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "onward.db")
    url: str = request.getfixturevalue("postgres_emptied_url")
    return url


@pytest.fixture
async def store(db: str) -> AsyncIterator[Store]:
    store = await open_store(db)
    yield store
    await store.close()


@pytest.fixture
def start(db: str) -> Iterator[Start]:
    """Starts contenders; `begin` lets all that are waiting go at the same moment."""
    started: list[Contender] = []

    def start(*task: object) -> Contender:
        started.append(Contender(db, *task))
        return started[-1]

    yield start
    for contender in started:
        contender.process.kill()
        contender.process.communicate()


def begin(contenders: list[Contender]) -> None:
    for contender in contenders:
        assert contender.hear()[0] == "ready"
    for contender in contenders:
        contender.tell()


async def test_of_many_processes_that_claim_a_run_exactly_one_wins(start: Start, store: Store) -> None:
    """H13."""
    runs = [(await created(store)).id for _ in range(20)]
    contenders = [start("claim", *runs) for _ in range(PROCESSES)]
    begin(contenders)
    for run_id in runs:
        answers = [contender.hear() for contender in contenders]
        assert {answer[0] for answer in answers} == {run_id}
        assert Counter(answer[1] for answer in answers) == {"won": 1, "lost": PROCESSES - 1}
        assert len({answer[2] for answer in answers}) == 1, "the losers must be told who won"
        claims = [record for record in await log_of(store, run_id) if record.kind == "RunClaimed"]
        assert len(claims) == 1
        assert answers[0][2] in claims[0].body


async def test_many_processes_that_create_one_run_make_one(start: Start, store: Store) -> None:
    contenders = [start("create", "wanted") for _ in range(PROCESSES)]
    begin(contenders)
    for contender in contenders:
        # Their creations are one and the same request, so each of them succeeds.
        assert contender.hear() == ["created"]
    assert [record.kind for record in await log_of(store, "wanted")] == ["RunCreated"]


async def test_many_processes_append_to_their_own_runs_without_a_gap(start: Start, store: Store) -> None:
    runs, times = 4, 25
    contenders = [start("append", f"team-{number}", runs, times) for number in range(PROCESSES)]
    begin(contenders)
    for contender in contenders:
        for _ in range(runs):
            run_id, head, hash_ = contender.hear()
            log = await log_of(store, run_id)
            assert len(log) == int(head) == 2 + 2 * times
            assert check_chain(ORIGIN, log) == (int(head), bytes.fromhex(hash_))


async def test_many_processes_that_register_sources_at_once_leave_no_gap(start: Start, store: Store) -> None:
    times = 10
    contenders = [start("register", f"team-{number}", times) for number in range(PROCESSES)]
    begin(contenders)
    told = {tuple(contender.hear()) for contender in contenders for _ in range(2 * times)}
    found = await store.pipelines.versions("site", limit=1_000)
    assert [one.version for one in reversed(found)] == [*range(1, (PROCESSES + 1) * times + 1)]
    assert {(str(one.version), one.hash) for one in found} == told
    hashes = {one.hash for one in found}
    assert (await store.blobs.find_many(hashes)).keys() == hashes


async def test_of_many_processes_that_redeem_a_code_exactly_one_wins(start: Start, store: Store) -> None:
    """S24."""
    codes = [f"code-{number}" for number in range(20)]
    for code in codes:
        await store.principals.put(
            Principal(
                id=code,
                kind="code",
                name="link",
                secret_hash=secret_hash(code),
                roles=("admin",),
                made_at_us=0,
            )
        )
    contenders = [start("redeem", *codes) for _ in range(PROCESSES)]
    begin(contenders)
    for code in codes:
        answers = [contender.hear() for contender in contenders]
        assert Counter(map(tuple, answers)) == {(code, "won"): 1, (code, "lost"): PROCESSES - 1}


async def test_a_busy_holder_does_not_starve_requests(start: Start, store: Store) -> None:
    """H3."""
    times = 20
    holder = start("hold", "busy")
    begin([holder])
    assert holder.hear() == ["holding"]
    asking = [start("ask", "busy", times) for _ in range(2)]
    begin(asking)
    waited = [int(asker.hear()[0]) for asker in asking for _ in range(times)]
    assert max(waited) <= COMMITS_MAX
    cancelling = start("cancel", "busy")
    begin([cancelling])
    (commits,) = holder.hear()
    log = await log_of(store, "busy")
    check_chain(ORIGIN, log)
    kinds = Counter(record.kind for record in log)
    assert kinds["PauseRequested"] == 2 * times
    assert kinds["StepFinished"] == int(commits) > 0, "the holder must have been at work all the time"


async def test_the_run_of_a_killed_process_is_claimed_by_exactly_one(start: Start, store: Store) -> None:
    holder = start("hold", "orphan")
    begin([holder])
    assert holder.hear() == ["holding"]
    holder.process.kill()
    holder.process.wait()
    contenders = [start("claim", "orphan") for _ in range(PROCESSES)]
    begin(contenders)
    answers = [contender.hear() for contender in contenders]
    assert Counter(answer[1] for answer in answers) == {"won": 1, "lost": PROCESSES - 1}
    log = await log_of(store, "orphan")
    check_chain(ORIGIN, log)
    assert [record.token for record in log if record.kind == "RunClaimed"] == [1, 2]
