"""Proof that what is stored, in the database and in directories on this machine, is what the logs say."""

from __future__ import annotations

from collections.abc import AsyncIterator

from onward.operations.local.lists import LocalLists
from onward.operations.local_only.replies import RunVerified
from onward.operations.local_only.requests import VerifyRuns
from onward.operations.requests.lists import ALL, ListRuns
from onward.read.verify import verify_run
from onward.receipts.homes import Homes
from onward.store.port.store import Store


async def verify_runs(store: Store, homes: Homes | None, request: VerifyRuns) -> AsyncIterator[RunVerified]:
    """Read logs whole, one run after another, and compare all that is stored with their fold."""
    for listed in (await LocalLists(store).list_runs(ListRuns(run=request.run, limit=ALL)))["runs"]:
        found = await verify_run(store, listed["id"], homes)
        yield {
            "run": found.run_id,
            "display_id": listed["display_id"],
            "events": found.events,
            "problems": list(found.problems),
        }
