"""The branches of a flow, each with what its history has: which call comes next, and what it is called.

A scope is one sequence of calls: the flow itself (its path is empty), a branch of `gather` or `each`
(`gather.0`, `each#2.17`), or a flow that another one awaits (`audit`). A key is the path of its scope and a
name, with a number from the second of that name on. So it stays the same when other branches move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onward.handlers.calls import PastCall

if TYPE_CHECKING:
    from onward.flows.running import FlowRun


class Group:
    """The branches of one `gather` or `each`, or the scope of one awaited flow, as the history has them.

    `first` is the call that began first in it, `latest` the last event of all, and `calls` those of each
    branch until it begins: there may be a hundred thousand of them, and what has ended is not kept.
    """

    __slots__ = ("calls", "first", "latest")

    def __init__(self, first: PastCall) -> None:
        self.first, self.latest = first, 0
        self.calls: dict[str, list[PastCall]] = {}

    def add(self, segment: str, past: PastCall) -> None:
        """One more call, of the branch with this segment or of what is inside it."""
        self.latest = max(self.latest, past.seq)
        calls = self.calls.get(segment)
        if calls is None:
            self.calls[segment] = [past]
        else:
            calls.append(past)


class Scope:
    """One sequence of calls. `past` are its own calls, `inside` the groups that began between them.

    `history` are the calls of both, in the order in which they began.
    """

    __slots__ = (
        *("above", "at", "begun", "counts", "drawn", "entered", "flow", "group", "inside", "last_us"),
        *("_groups", "past", "patches", "path", "task"),
    )

    def __init__(
        self, history: Sequence[PastCall], path: str = "", above: Scope | None = None, group: str = ""
    ) -> None:
        self.path, self.above, self.group = path, above, group
        self.past, self.inside = _divided(history, len(path) + 1 if path else 0)
        self._groups: list[Group] | None = None
        self.at = self.begun = self.entered = self.drawn = 0
        self.counts: dict[str, int] | None = None
        self.last_us = 0
        self.patches: tuple[str, ...] = ()
        """Those that ride on the next call."""
        self.task: asyncio.Task[object] | None = None
        self.flow: FlowRun | None = None

    def named(self, name: str) -> str:
        """The next of this name here: `page`, then `page#2`."""
        if self.counts is None:
            self.counts = {}
        count = self.counts[name] = self.counts.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def key(self, named: str) -> str:
        """The whole key of what is called so here."""
        return f"{self.path}/{named}" if self.path else named

    def ahead(self) -> PastCall | None:
        """What the history has next in this scope, or in a group of it that was not entered yet."""
        own = self.past[self.at] if self.at < len(self.past) else None
        if self.entered < len(self.inside):
            first = self._next_group().first
            if own is None or first.began < own.began:
                return first
        return own

    def _next_group(self) -> Group:
        if self._groups is None:
            self._groups = list(self.inside.values())
        return self._groups[self.entered]

    def inherited(self) -> tuple[str, ...]:
        """The patches of this scope as they ride on the first call of a scope inside it."""
        return tuple(one if "|" in one else f"{self.path}|{one}" for one in self.patches)

    def enter(self, named: str) -> Group | None:
        """The group of this name, if it is the next one that the history has here; else None."""
        found = self.inside.get(named)
        if found is None or self.entered == len(self.inside) or self._next_group() is not found:
            return None
        self.entered += 1
        return found

    def has_gone_on_after(self, past: PastCall) -> bool:
        """Whether anything was recorded after a call of this scope, here or in a scope around it.

        What branches beside this one recorded meanwhile does not count.
        """
        scope: Scope | None = self
        beside = ""
        while scope is not None:
            around = scope.above
            if scope.past and scope.past[-1].seq > past.seq:
                return True
            for name, group in scope.inside.items():
                if name != beside and group.latest > past.seq:
                    return True
            beside, scope = scope.group, around
        return False


def _divided(history: Sequence[PastCall], start: int) -> tuple[Sequence[PastCall], dict[str, Group]]:
    """The own calls of a scope and the groups in it, whose keys go on at character `start`."""
    own: list[PastCall] = []
    inside: dict[str, Group] = {}
    for past in history:
        end = past.key.find("/", start)
        if end < 0:
            own.append(past)
            continue
        segment = past.key[start:end]
        name = segment.partition(".")[0]
        group = inside.get(name)
        if group is None:
            group = inside[name] = Group(past)
        group.add(segment, past)
    return own, inside
