"""The database's numbers, for the page of metrics and for `onward stats`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from onward.model.run import RunStatus
from onward.model.values import rfc3339
from onward.observe.exposition import Family, Sample, gauge
from onward.store.owner import owner_label
from onward.store.port.runs import EndedRuns, HeldRuns, Measured, Undelivered

ENDINGS = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)
NONE = EndedRuns(0, 0)


def families_of(found: Measured) -> Iterator[Family]:
    """The metrics of a database. Every worker at it reports the same, so do not sum them over workers."""
    runs = {(status.value, ""): 0 for status, number in found.statuses.items() if not number}
    for stand, number in sorted(found.runs.items()):
        key = stand.status.value, stand.reason
        runs[key] = runs.get(key, 0) + number
    samples = [Sample(number, {"status": status, "reason": why}) for (status, why), number in runs.items()]
    yield Family("onward_runs", "gauge", "Runs in the database, by status and reason.", samples)
    yield gauge("onward_runs_recoverable", "Stopped runs that a person may resume.", found.recoverable)
    yield gauge("onward_runs_held", "Runs that a process holds.", found.held)
    yield gauge(
        "onward_runs_stalled", "Held runs whose holder is dead or whose lease has expired.", found.stalled
    )
    yield gauge("onward_workers_holding", "Processes that hold runs.", len(found.holdings))
    yield gauge("onward_queue_due", "Runs that wait for a worker now.", found.due)
    yield gauge("onward_queue_later", "Runs that wait for their time.", found.later)
    yield gauge("onward_runs_stuck", "Due runs that could not be claimed.", len(found.stuck))
    yield gauge(
        "onward_queue_unserved",
        "Due runs that no live worker can serve, of the first 10,000 in the queue.",
        sum(found.unserved.values()),
    )
    yield gauge("onward_workers", "Live workers.", sum(worker.is_alive for worker in found.workers))
    yield gauge("onward_queue_age_seconds", "How long the oldest due run has waited.", found.queue_age_s)
    undelivered = found.undelivered
    yield Family(
        "onward_notifications",
        "gauge",
        "Notifications that wait to be delivered, and that were given up.",
        [
            Sample(undelivered.waiting, {"state": "waiting"}),
            Sample(undelivered.failed, {"state": "failed"}),
        ],
    )
    for window, ended in ended_of(found).items():
        samples = [Sample(number, {"status": status}) for status, number in ended.items()]
        help = f"Runs that ended within the last {window}, by status."
        yield Family(f"onward_runs_ended_last_{window}", "gauge", help, samples)
    yield gauge("onward_database_bytes", "Size of the database.", found.size)


def ended_of(found: Measured) -> Mapping[str, Mapping[str, int]]:
    """How many runs ended within the last hour and day, by status; zeros are included."""
    lately = [(status.value, found.ended.get(status, NONE)) for status in ENDINGS]
    return {
        "hour": {status: ended.hour for status, ended in lately},
        "day": {status: ended.day for status, ended in lately},
    }


def _idle(found: Measured) -> Iterator[HeldRuns]:
    """The live workers that hold no run."""
    holding = {one.owner for one in found.holdings}
    for worker in found.workers:
        if worker.is_alive and worker.owner not in holding:
            yield HeldRuns(worker.owner, 0, 0)


def view_measured(found: Measured) -> Mapping[str, Any]:
    """As JSON with stable names."""
    return {
        "at": rfc3339(found.at_us),
        "runs": _view_runs(found),
        "queue": _view_queue(found),
        "ended": ended_of(found),
        "workers": [
            {"worker": owner_label(holding.owner), "runs": holding.runs, "stalled": holding.stalled}
            for holding in (*found.holdings, *_idle(found))
        ],
        "notifications": _view_undelivered(found.undelivered),
        "database_bytes": found.size,
    }


def _view_runs(found: Measured) -> Mapping[str, Any]:
    return {
        "total": sum(found.runs.values()),
        "by_status": {status.value: number for status, number in found.statuses.items()},
        "by_reason": [
            {
                "status": stand.status.value,
                "reason": stand.reason,
                "recoverable": stand.recoverable,
                "runs": number,
            }
            for stand, number in sorted(found.runs.items())
        ],
        "recoverable": found.recoverable,
        "held": found.held,
        "stalled": found.stalled,
        "waiting": found.statuses[RunStatus.WAITING],
    }


def _view_queue(found: Measured) -> Mapping[str, Any]:
    return {
        "due": found.due,
        "later": found.later,
        "oldest_due": None if found.oldest_due_us is None else rfc3339(found.oldest_due_us),
        "age_s": found.queue_age_s,
        "stuck": [
            {
                "run": stuck.run,
                "failures": stuck.failures,
                "failed_at": rfc3339(stuck.failed_at_us),
                "why": stuck.why,
            }
            for stuck in found.stuck
        ],
        "unserved": [
            {
                "runs": number,
                "workers": waiting.workers,
                "handlers": list(waiting.handlers),
                "directory": waiting.directory,
                "says": waiting.says,
            }
            for waiting, number in found.unserved.items()
        ],
    }


def _view_undelivered(found: Undelivered) -> Mapping[str, Any]:
    oldest = None if found.oldest_us is None else rfc3339(found.oldest_us)
    return {"waiting": found.waiting, "failed": found.failed, "oldest_waiting": oldest}
