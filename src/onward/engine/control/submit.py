"""Submitting: runs are created and left in the queue, one or very many."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from onward.clock import Clock
from onward.engine.control.create import Creating
from onward.engine.control.requests import Start
from onward.engine.control.workdir import check_workdir
from onward.engine.log.journal import Creation, Journal
from onward.engine.log.reader import Folded
from onward.engine.log.write import applied
from onward.errors import InvalidInput, OnwardError, Refused, RefusedInList
from onward.pipeline.build import Pipeline

TOGETHER = 1_024
"""How many creations wait at a time; the store commits as many of them together as it can."""


class Submitting(msgspec.Struct, frozen=True):
    """Creates runs and executes none; whichever worker claims them does. Directories may be elsewhere."""

    creating: Creating
    journal: Journal
    clock: Clock

    async def submit(self, pipeline: Pipeline, start: Start) -> Folded:
        """Create a run and leave it queued."""
        return await self.journal.put(await self._creation(pipeline, start))

    async def submit_many(self, asked: Sequence[tuple[Pipeline, Start]]) -> list[Folded]:
        """Create runs, and answer in the same order. All are checked before the first is created.

        RefusedInList says which one cannot be. If the store fails halfway, some are created and some are not;
        those with a key can be sent again.
        """
        creations: list[Creation] = []
        for number, (pipeline, start) in enumerate(asked):
            try:
                creations.append(await self._creation(pipeline, start))
            except OnwardError as error:
                raise RefusedInList(number, error) from error
        _check_different(creations)
        await self._check_free(creations)
        return await self._put(creations)

    async def _creation(self, pipeline: Pipeline, start: Start) -> Creation:
        check_workdir(start.workdir, is_here=False)
        definition = self.creating.definition(pipeline, start)
        run_id, created = await self.creating.first_event(pipeline, definition, start)
        now_us = self.clock.now_us()
        run, events = applied(None, (created,), run_id=run_id, at_us=now_us)
        return self.creating.creation(run, events, now_us, pipeline, start)

    async def _check_free(self, creations: Sequence[Creation]) -> None:
        """Refuse ids of the caller's own that other runs have; no other process can choose the rest."""
        for number, creation in enumerate(creations):
            if creation.append_id is not None:
                try:
                    await self.journal.check_free(creation)
                except OnwardError as error:
                    raise RefusedInList(number, error) from error

    async def _put(self, creations: Sequence[Creation]) -> list[Folded]:
        """Store them, as many in one transaction as the store allows. If one fails, the others are stored."""
        folded: list[Folded] = []
        for first in range(0, len(creations), TOGETHER):
            some = creations[first : first + TOGETHER]
            answers = await asyncio.gather(*map(self.journal.put, some), return_exceptions=True)
            for number, answer in enumerate(answers, first):
                if isinstance(answer, Refused):  # another process took the id since it was checked
                    raise RefusedInList(number, answer, is_any_created=True) from answer
                if isinstance(answer, BaseException):
                    raise answer
                folded.append(answer)
        return folded


def _check_different(creations: Sequence[Creation]) -> None:
    seen: dict[str, int] = {}
    for number, creation in enumerate(creations):
        first = seen.setdefault(creation.write.run_id, number)
        if first != number:
            what = (
                f"the run id {creation.write.run_id!r}"
                if creation.terms.key is None
                else (f"the key {creation.terms.key!r}")
            )
            raise RefusedInList(number, InvalidInput(f"{what} is that of an earlier run in the list."))
