"""Group commit, with a commit that only writes down what it was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from onward.errors import StaleHistory, StoreIO, StoreUnavailable
from onward.store.transactions import GROUP_MAX, GroupCommit

Judge = Callable[[Sequence[int]], Sequence[Exception | None]]


class Commits:
    """Every group that was committed; `judge` answers, and `gate` holds commits up while it is closed."""

    def __init__(self, judge: Judge = lambda group: [None] * len(group)) -> None:
        self.groups: list[list[int]] = []
        self.judge = judge
        self.begun, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()

    async def __call__(self, group: Sequence[int]) -> Sequence[Exception | None]:
        self.groups.append(list(group))
        self.begun.set()
        await self.gate.wait()
        return self.judge(group)


async def added(group: GroupCommit[int], members: Sequence[int]) -> list[BaseException | None]:
    """What each member is told when all are added at once."""
    return await asyncio.gather(*(group.add(member) for member in members), return_exceptions=True)


async def test_members_that_come_at_once_go_together() -> None:
    commits = Commits()
    assert await added(GroupCommit(commits), range(50)) == [None] * 50
    assert commits.groups == [list(range(50))]


async def test_a_group_has_a_greatest_size() -> None:
    commits = Commits()
    assert await added(GroupCommit(commits), range(GROUP_MAX + 3)) == [None] * (GROUP_MAX + 3)
    assert [len(group) for group in commits.groups] == [GROUP_MAX, 3]


async def test_members_that_come_during_a_commit_go_with_the_next() -> None:
    commits = Commits()
    group = GroupCommit(commits)
    commits.gate.clear()
    first = asyncio.ensure_future(group.add(1))
    await commits.begun.wait()
    rest = [asyncio.ensure_future(group.add(member)) for member in (2, 3, 4)]
    await asyncio.sleep(0)
    commits.gate.set()
    await asyncio.gather(first, *rest)
    assert commits.groups == [[1], [2, 3, 4]]


async def test_a_lonely_writer_does_not_wait_for_others_and_finds_them_when_they_come() -> None:
    commits = Commits()
    group = GroupCommit(commits)
    for member in range(100):
        await group.add(member)
    assert commits.groups == [[member] for member in range(100)]
    for round_ in range(100):
        assert await added(group, [round_, 1_000 + round_]) == [None, None]
    assert commits.groups[-1] == [99, 1_099], "two writers must share a commit before long"


async def test_a_refusal_is_for_its_member_alone() -> None:
    """H5."""
    refusal = StaleHistory("run", 3)
    commits = Commits(lambda group: [refusal if member == 7 else None for member in group])
    answers = await added(GroupCommit(commits), range(20))
    assert answers.pop(7) is refusal
    assert answers == [None] * 19
    assert len(commits.groups) == 1


async def test_a_lonely_writer_hears_its_refusal() -> None:
    refusal = StaleHistory("run", 3)
    group = GroupCommit(Commits(lambda group: [refusal if member > 20 else None for member in group]))
    for member in range(21):
        await group.add(member)
    with pytest.raises(StaleHistory) as raised:
        await group.add(21)
    assert raised.value is refusal


async def test_when_a_commit_fails_as_a_whole_each_member_is_tried_on_its_own() -> None:
    def judge(group: Sequence[int]) -> Sequence[Exception | None]:
        if 2 in group:
            raise StoreIO("a constraint failed.")
        return [None] * len(group)

    commits = Commits(judge)
    answers = await added(GroupCommit(commits), range(4))
    assert [type(answer) for answer in answers] == [type(None), type(None), StoreIO, type(None)]
    assert commits.groups == [[0, 1, 2, 3], [0], [1], [2], [3]]


async def test_a_store_that_is_away_is_not_asked_again_for_every_member() -> None:
    def judge(group: Sequence[int]) -> Sequence[Exception | None]:
        raise StoreUnavailable("stayed locked.")

    commits = Commits(judge)
    answers = await added(GroupCommit(commits), range(50))
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 50
    assert len(commits.groups) == 2


async def test_a_failure_of_one_group_does_not_reach_the_next() -> None:
    failing = True

    def judge(group: Sequence[int]) -> Sequence[Exception | None]:
        if failing:
            raise StoreIO("the disk failed.")
        return [None] * len(group)

    group = GroupCommit(Commits(judge))
    for _ in range(20):  # until it commits at once, and beyond
        with pytest.raises(StoreIO):
            await group.add(1)
    failing = False
    assert await added(group, range(3)) == [None] * 3


async def test_a_member_that_gives_up_leaves_its_group_alone() -> None:
    commits = Commits()
    group = GroupCommit(commits)
    waiting = [asyncio.ensure_future(group.add(member)) for member in range(3)]
    waiting[1].cancel()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [type(None), asyncio.CancelledError, type(None)]
