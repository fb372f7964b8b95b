"""Deletes runs that have ended, with their directories and work trees on this machine."""

from __future__ import annotations

from onward.engine.control.retention import Collector, Policy
from onward.model.run import RunStatus
from onward.operations.local_only.replies import RunsCollected
from onward.operations.local_only.requests import CollectRuns

OLDER_THAN_S = 30 * 86_400.0


async def collect_runs(collector: Collector, request: CollectRuns) -> RunsCollected:
    """Delete what the request allows and no other run needs; with `dry_run`, only say what that is."""
    older_than_s = request.older_than_s
    if older_than_s is None:
        older_than_s = OLDER_THAN_S if request.keep is None else 0.0
    statuses = tuple(dict.fromkeys(map(RunStatus, request.statuses)))
    policy = Policy(statuses, older_than_s, request.keep or 0)
    done = await (collector.preview(policy) if request.dry_run else collector.collect(policy))
    return {
        "dry_run": request.dry_run,
        "runs": done.runs,
        "events": done.events,
        "needed": done.needed,
        "unmerged": [{"run": one.run, "directory": one.directory, "why": one.why} for one in done.unmerged],
        "blobs": done.swept.blobs,
        "blob_bytes": done.swept.bytes,
        "directories": done.directories,
    }
