"""What Onward says in a chat: to the sender of a message, and as messages of its own."""

from __future__ import annotations

from collections.abc import Sequence

from onward.machine.decide.calls import doubtful_step
from onward.machine.lifecycle import resume_flags
from onward.model.chat import BY_RULES, MessageReading
from onward.model.ids import called
from onward.model.run import Run, RunStatus


def plan_words(reading: MessageReading) -> str:
    """The plan of a new run."""
    agents = ", ".join(reading.planned_agents) or "no agents"
    read_by = "" if reading.by in ("", BY_RULES) else f", read by {reading.by}"
    what = f"{reading.intent}, {reading.scope}{read_by}" if reading.intent else "as before"
    return f"Plan ({what}): {reading.pipeline}@{reading.version} with {agents}."


def anew_words(run_id: str, missing: Sequence[str]) -> str:
    """Why a run is started anew, and not resumed."""
    steps = ", ".join(missing)
    return (
        f"Run {called(run_id)} stopped before {steps} had finished, so it is not worth a resume: "
        "its work starts anew, with its first message."
    )


def ask_words(run_id: str, status: RunStatus) -> str:
    """The question whether to continue a stopped run."""
    return (
        f"run {called(run_id)} of this chat is {status.value}; say it again with --resume to continue that "
        "run, or with --fresh to start a new one."
    )


def doubt_words(run_id: str, why: str) -> str:
    """That a person must decide about a step before its run continues, and how."""
    name = called(run_id)
    how = f"Decide with `onward resume {name} --retry`, for instance."
    return f"run {name} cannot continue by itself: {why} {how}"


def queued_words(run_id: str, *, is_read: bool) -> str:
    """That a message waits."""
    if is_read:
        return f"a model reads the message first, in run {called(run_id)}; then its run starts."
    return f"run {called(run_id)} of this chat comes first; the message waits until it has ended."


def stop_words(run: Run) -> str | None:
    """What is said in the chat when a run has stopped before its end; None if there is nothing to say."""
    if run.status not in (RunStatus.PAUSED, RunStatus.INTERRUPTED, RunStatus.FAILED):
        return None
    finished = [node for node, status in run.outcomes.items() if status == "success"]
    done = f" Finished: {', '.join(sorted(finished))}." if finished else ""
    name, detail = called(run.id), run.detail.removesuffix(".")
    if run.reason == "limit":
        return (
            f"Run {name} is paused at a limit: {detail}.{done} Raise the limit (`onward limits`), then "
            "say anything here to continue."
        )
    why = f" ({run.reason}: {detail})" if detail else f" ({run.reason})"
    is_failed = run.status is RunStatus.FAILED
    said = f"Run {name} {'failed' if is_failed else f'is {run.status.value}'}{why}.{done}"
    if flags := resume_flags(run.reason, doubtful_step(run)):
        return f"{said} Decide how it continues: `onward resume {name} {flags}`."
    return (
        f"{said} `onward resume {name}` tries again."
        if is_failed
        else f"{said} Say anything here to continue."
    )
