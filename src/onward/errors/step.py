"""What goes wrong while a step is executed: its commands, effects, calls and work tree."""

from __future__ import annotations

from onward.errors.root import OnwardError


class SpawnFailed(OnwardError):
    """The machine could not start a command; it did not run."""


class CannotExecute(SpawnFailed):
    """A program could not be executed and did not run; `is_missing` if there is none of that name."""

    def __init__(self, program: str, why: str, *, is_missing: bool) -> None:
        self.program, self.is_missing = program, is_missing
        super().__init__(f"{program!r} cannot be started: {why}; it did not run.")


class EffectFailed(OnwardError):
    """An effect that runs at most once failed; the failure is its result."""

    def __init__(self, key: str, why: str, call: str = "") -> None:
        """`call` is the call of a step that the effect is; without one it belongs to no step."""
        self.key, self.why = key, why
        how = f"`onward retry RUN --repeat {call}`" if call else f"`onward effect {key} --forget`"
        super().__init__(f"effect {key!r} failed and will not run again: {why}. To run it again: {how}.")


class CallFailed(OnwardError):
    """The service that a call asked failed; `may_have_cost` if it may charge for the call all the same."""

    may_have_cost = False


class CallTimedOut(OnwardError):
    """A call inside a step took longer than its time limit.

    `is_running`: it could not be ended, and may still be at work.
    """

    def __init__(self, key: str, limit_s: float, *, is_running: bool = False) -> None:
        self.key, self.limit_s, self.is_running = key, limit_s, is_running
        super().__init__(f"call {key!r} took longer than its time limit of {limit_s:g} s.")


class LimitReached(OnwardError):
    """A limit does not allow a call; nothing was written. If `fits_spent`, it may be allowed soon.

    `measure` is tokens, cost or calls. It fits what is spent when only what others have reserved is in its
    way.
    """

    def __init__(
        self,
        scope: str,
        measure: str,
        *,
        limit: int,
        spent: int,
        reserved: int,
        wanted: int,
        fits_spent: bool,
        says: str,
    ) -> None:
        self.scope, self.measure = scope, measure
        self.limit, self.spent, self.reserved, self.wanted = limit, spent, reserved, wanted
        self.fits_spent = fits_spent
        super().__init__(says)


class WorkdirGone(OnwardError):
    """The directory that a run's commands work in is not on this machine, so it is not executed here."""

    def __init__(self, run_id: str, workdir: str) -> None:
        self.run_id, self.workdir = run_id, workdir
        super().__init__(
            f"run {run_id} works in {workdir}, which is not there; create it, or name another with "
            f"`onward resume {run_id} --cwd DIR`."
        )


class WorkspaceFailed(OnwardError):
    """A work tree could not be created, recorded, restored or merged; none of it was deleted."""

    may_pass = False
    """Whether another try may succeed, with nothing changed."""


class GitKilled(WorkspaceFailed):
    """Git was killed: by a signal to our whole process group, or for lack of memory."""

    may_pass = True
