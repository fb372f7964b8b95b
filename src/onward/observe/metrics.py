"""What one process counts about itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onward.model.events import AttemptFailed, AttemptInterrupted, Event
from onward.model.run import Run, RunStatus
from onward.observe.calls import CallMetrics
from onward.observe.exposition import Family
from onward.observe.series import Counter, Gauge, Histogram

WAITS_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600)
STEPS_S = (0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
COMMITS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)


class Metrics:
    """Counters of a worker. `observe` is an observer of the engine; other code counts the rest."""

    def __init__(self) -> None:
        self.claims = Counter(
            "onward_claims_total", "Runs that this worker claimed from the queue, by pipeline.", "pipeline"
        )
        self.claim_latency = Histogram(
            "onward_claim_latency_seconds",
            "From the moment a run was due to its claim by this worker.",
            buckets=WAITS_S,
        )
        self.driving = Gauge(
            "onward_runs_driving", "Runs that this worker executes now, or whose files it still writes."
        )
        self.draining = Gauge("onward_draining", "1 when this worker claims no new runs, else 0.")
        self.lease_losses = Counter(
            "onward_lease_losses_total", "Runs that this worker held and lost to another process."
        )
        self.fenced_writes = Counter(
            "onward_fenced_writes_total", "Writes that the database refused because the lease was lost."
        )
        self.commits = Histogram(
            "onward_commit_seconds",
            "Appends for steps, until the database confirmed.",
            buckets=COMMITS_S,
        )
        self.store_errors = Counter(
            "onward_store_errors_total", "Calls that the database failed, by error.", "error"
        )
        self.steps = Histogram(
            "onward_step_seconds",
            "Attempts of steps, by pipeline and kind of node.",
            "pipeline",
            "kind",
            buckets=STEPS_S,
        )
        self.attempts = Counter(
            "onward_attempts_total",
            "Attempts that ended, by pipeline, kind of node and result.",
            "pipeline",
            "kind",
            "result",
        )
        self.retries = Counter(
            "onward_retries_total", "Attempts that failed and are retried, by pipeline.", "pipeline"
        )
        self.interrupted = Counter(
            "onward_attempts_interrupted_total",
            "Attempts that were interrupted from outside before they had a result, by pipeline.",
            "pipeline",
        )
        self.stops = Counter(
            "onward_runs_stopped_total",
            "Runs that stopped in this worker, by status and reason.",
            "status",
            "reason",
        )
        self.sweeps = Counter(
            "onward_sweeps_total", "Sweeps for runs whose holder died, by result: ok or failed.", "result"
        )
        self.swept = Counter(
            "onward_swept_runs_total",
            "Runs found without a living holder, by their status afterwards, or broken.",
            "became",
        )
        self.notifications = Counter(
            "onward_notification_tries_total",
            "Tries to deliver a notification, by result: delivered, again or failed.",
            "result",
        )
        self.calls = CallMetrics()

    def observe(self, run: Run, events: Sequence[Event]) -> None:
        """Count what was committed for a run."""
        for event in events:
            if isinstance(event, AttemptFailed):
                if event.retry_at_us is not None:
                    self.retries.add(run.pipeline)
            elif isinstance(event, AttemptInterrupted):
                self.interrupted.add(run.pipeline)
            else:
                self.calls.observe(event)
        if run.status is not RunStatus.RUNNING:
            self.stops.add(run.status.value, run.reason)

    def families(self) -> Iterator[Family]:
        """All metrics, in the order of the page."""
        for series in vars(self).values():
            yield from series.families() if isinstance(series, CallMetrics) else (series.family(),)
