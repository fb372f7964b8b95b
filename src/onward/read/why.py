"""The words in which a run says what it does now, why it stopped, and what a person can do about it.

Pages, commands and chats take these sentences as they are, so that all of them say the same, before and
after a restart. Everything is decided from stored state; nothing here reads a store or a clock.

Begin with `now_words`, the one sentence of a list, and `banner_of`, which puts at most one card before a
person.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

from onward.machine import reasons
from onward.machine.decide.requests import ASKED_BY
from onward.machine.fold.calls import answers_again
from onward.machine.ticks import Tick
from onward.model.ids import CALLERS, node_of, place_of
from onward.model.limits import MICRO, VISITS, kind_of
from onward.model.row import RunRow, WaitingFor
from onward.model.run import AttemptState, OpenStep, Run, RunStatus
from onward.model.values import rfc3339

if TYPE_CHECKING:
    from onward.replies.runs import BannerShown, KeptShown, LimitStop

NAMED_MAX = 3
"""How many steps a sentence names; more are counted."""


def count(number: int, thing: str) -> str:
    """A number of things: `1 step`, `8 steps`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def money(cost_micro: int) -> str:
    """A cost for people: `$0.27`; below a cent with two significant digits, `$0.0041`."""
    dollars = Decimal(cost_micro) / MICRO
    if dollars == 0 or dollars >= Decimal("0.01"):
        return f"${dollars:,.2f}"
    return f"${float(dollars):.2g}" if dollars >= Decimal("0.0001") else f"${dollars:f}".rstrip("0")


def sentence(words: str) -> str:
    """The words with a capital at their beginning and a full stop at their end."""
    words = words.strip()
    if not words:
        return ""
    # The name of a model or a scope is written as it is.
    is_name = ":" in words.split(maxsplit=1)[0].rstrip(":")
    return (words if is_name else words[0].upper() + words[1:]) + ("" if words[-1] in ".!?…" else ".")


def listed(names: Sequence[str]) -> str:
    """Names in a sentence: `a, b and c`."""
    if len(names) > NAMED_MAX:
        return f"{len(names)} steps"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def step_name(step: str) -> str:
    """How a sentence calls a step: by its node, with the visit if it is not the first."""
    node, visit = node_of(place_of(step)), step.rpartition("#")[2]
    return node if visit == "1" or not visit.isdigit() else f"{node}#{visit}"


# -- what a run does now -----------------------------------------------------------------------------
def now_words(row: RunRow, ticks: Sequence[Tick], waiting: WaitingFor | None) -> str:
    """What the run does now, or why it stopped: one sentence, from its row as it is known."""
    match row.status:
        case RunStatus.QUEUED:
            return _queued_words(row, waiting)
        case RunStatus.RUNNING:
            return _running_words(ticks)
        case RunStatus.WAITING:
            if row.detail:  # a flow says what its branches wait for
                return sentence(f"Waits: {row.detail}")
            asked = [tick.step for tick in ticks if tick.state == "waiting"]
            return f"Waits for an answer at {listed(asked)}." if asked else "Waits for an answer."
        case RunStatus.COMPLETED:
            return _completed_words(row)
        case RunStatus.CANCELLED:
            return sentence(f"Cancelled: {row.detail}" if row.detail else "Cancelled")
        case _:
            return _stopped_words(row, ticks)


def _queued_words(row: RunRow, waiting: WaitingFor | None) -> str:
    if row.wake_at_us is not None and row.wake_at_us > row.updated_at_us:
        return f"Starts at {rfc3339(row.wake_at_us)[:16].replace('T', ' ')} UTC."
    begun = "Was resumed and waits for a worker" if row.token else "Waits for a worker"
    return sentence(f"{begun}: {waiting.lack}" if waiting is not None else begun)


def _running_words(ticks: Sequence[Tick]) -> str:
    at_work = [tick.step for tick in ticks if tick.state == "open"]
    if not at_work:
        return "Is running."
    return f"{listed(at_work)} {'is' if len(at_work) == 1 else 'are'} running."


def _completed_words(row: RunRow) -> str:
    if row.restarted_as is not None:
        return f"Continues as run {row.restarted_as}."
    where = f" at {row.detail}, which is not the exit" if row.ended_at_node is not None else ""
    return f"Completed {count(row.steps_finished, 'step')}{where}."


def _stopped_words(row: RunRow, ticks: Sequence[Tick]) -> str:
    kept = f" · {count(row.steps_finished, 'step')} kept"
    if row.doubtful is not None:
        return f"{step_name(row.doubtful)} may or may not have run; it must not be repeated blindly."
    if reasons.is_at_limit(row.reason):
        return sentence(f"A limit is reached: {without_step(row.detail)}")
    if row.status is RunStatus.PAUSED:
        return paused_words(row.reason, row.detail, last_finished(ticks))
    if row.reason == reasons.RATE_LIMIT:
        until = f"; resumes by itself at {rfc3339(row.wake_at_us)[11:19]} UTC" if row.wake_at_us else ""
        return sentence(f"The provider asks to wait{until}")
    cut = [tick.step for tick in ticks if tick.state == "interrupted"]
    where = f" in {listed(cut)}" if cut else ""
    if row.reason in (reasons.CRASH, reasons.RESTART):
        what = row.detail or reasons.reason_of(row.reason).says
        return sentence(f"{what.removesuffix(' while it held the run')}{where}{kept}")
    return sentence(row.detail or reasons.reason_of(row.reason).says)


def last_finished(ticks: Sequence[Tick]) -> str:
    """The step that finished last, of those that are known."""
    return next((tick.step for tick in reversed(ticks) if tick.state == "finished"), "")


def paused_words(reason: str, detail: str, after: str | None = None) -> str:
    """Who paused a run, and after which step: "" is before its first; without `after`, only who."""
    if detail.startswith(ASKED_BY):
        who = detail.removeprefix(ASKED_BY).removeprefix(CALLERS)
    elif reason == reasons.SIGNAL:
        who = "a signal to its process"
    elif reason == reasons.MANAGER:
        who = "the run that manages it"
    else:
        who = ""
    by = f" by {who}" if who else ""
    where = "" if after is None else f" after {after}" if after else " before its first step"
    why = f": {detail}" if detail and not who else ""
    return sentence(f"Paused{by}{where}{why}")


def without_step(detail: str) -> str:
    """A detail without the step at its beginning, which is named elsewhere."""
    head, mark, rest = detail.partition(": ")
    return rest if mark and head.startswith("step ") and " " not in head[5:] else detail


# -- what is kept, and what is done again --------------------------------------------------------------
def kept_of(run: Run) -> KeptShown:
    """What a plain resume keeps, and how many requests to models it sends again."""
    again, forgotten, forgotten_micro = answers_again(run)
    return {
        "steps": run.steps_finished,
        "answers": max(0, run.answers - forgotten),
        "cost": max(0, run.cost_micro - forgotten_micro),
        "again": again,
    }


def kept_words(steps: int, answers: int, cost_micro: int) -> str:
    """What is kept, in words."""
    if not answers:
        return f"Kept: {count(steps, 'step')}."
    spent = f" ({money(cost_micro)})" if cost_micro else ""
    return f"Kept: {count(steps, 'step')} and {count(answers, 'answer')}{spent}."


def again_words(run: Run, kept: KeptShown, verb: str = "Resume") -> str:
    """What a resume does again, in words."""
    if kept["again"]:
        return f"{verb} asks for {count(kept['again'], 'answer')} again."
    states = (AttemptState.OPEN, AttemptState.INTERRUPTED, AttemptState.FAILED)
    cut = [opened.step for opened in run.open_steps.values() if opened.state in states]
    if not cut:
        return "Nothing is done again."
    has_answers = any(one.calls is not None and one.calls.answers for one in run.open_steps.values())
    if has_answers:
        return f"{verb} continues {listed([*map(step_name, cut)])} after its last answer."
    return f"{verb} starts {listed([*map(step_name, cut)])} again."


# -- the one banner of a run -------------------------------------------------------------------------
_MEASURES = {"tokens": "Token", "cost": "Cost", "calls": "Call", VISITS: "Visit"}
_OURS = {"chat": "This chat", "run": "This run", "day": "Today", "project": "This project"}


def banner_of(
    row: RunRow, run: Run, ticks: Sequence[Tick], limit: LimitStop | None, now_us: int
) -> BannerShown | None:
    """The one card that a stopped run shows, by what comes first; `row` is as it is known.

    None for a run that is not stopped, or that a person dismissed.
    """
    if row.is_dismissed:
        return None
    kept = kept_of(run)
    line = f"{kept_words(kept['steps'], kept['answers'], kept['cost'])} {again_words(run, kept)}"
    shown: BannerShown = {
        "kind": "",
        "title": "",
        "line": line,
        "colour": "amber",
        "actions": [],
        "step": _stopped_step(run),
        "until": None,
        "limit": None,
    }
    match row.status:
        case RunStatus.PAUSED | RunStatus.INTERRUPTED | RunStatus.FAILED if row.doubtful is not None:
            return _in_doubt(shown, row.doubtful, run)
        case RunStatus.INTERRUPTED if reasons.is_at_limit(row.reason):
            return _at_limit(shown, limit)
        case RunStatus.INTERRUPTED if row.reason == reasons.RATE_LIMIT:
            return _rate_limited(shown, row, now_us)
        case RunStatus.INTERRUPTED if row.reason == reasons.CHILD:
            return _awaiting(shown, row)
        case RunStatus.INTERRUPTED:
            return _interrupted(shown, row)
        case RunStatus.FAILED if row.reason == reasons.CRASH_LOOP:
            return _crash_loop(shown, row, run)
        case RunStatus.FAILED if row.recoverable:
            return _failed(shown, row, run)
        case RunStatus.FAILED:
            words = sentence(row.detail or reasons.reason_of(row.reason).says)
            return {**shown, "kind": "final", "title": words, "colour": "red", "actions": ["fork"]}
        case RunStatus.PAUSED:
            title = paused_words(row.reason, row.detail, last_finished(ticks))
            actions = ["resume", "dismiss"]
            return {**shown, "kind": "paused", "title": title, "colour": "slate", "actions": actions}
        case _:
            return None


def _stopped_step(run: Run) -> str | None:
    """The step in which the run stopped: the one that stopped it, else the first open one."""
    return run.stopped_step or next(iter(run.open_steps), None)


def _in_doubt(shown: BannerShown, step: str, run: Run) -> BannerShown:
    title = f"{step_name(step)} may or may not have run."
    left = _lost_calls(run, step)
    died = "Its process died in it, and it must not be repeated blindly."
    line = " ".join(filter(None, (died, left, shown["line"].partition(". ")[0] + ".")))
    actions = ["retry", "skip", "continue", "abort"]
    return {**shown, "kind": "in_doubt", "title": title, "line": line, "actions": actions, "step": step}


def _lost_calls(run: Run, step: str) -> str:
    """What is known of the calls of a step that were begun and never answered."""
    opened = run.open_steps.get(step)
    if opened is None or opened.calls is None:
        return ""
    told = {**opened.calls.told, **{name: call.about for name, call in opened.calls.open.items()}}
    named = [f"{name} ({told[name]})" if told.get(name) else name for name in opened.calls.lost or told]
    return f"Cut off in {', '.join(named)}." if named else ""


def _at_limit(shown: BannerShown, limit: LimitStop | None) -> BannerShown:
    measure = _MEASURES.get(limit["measure"], "A") if limit is not None else "A"
    title = f"{measure} limit reached. Pipeline paused."
    has_room = limit is None or limit["raise_to"] is None
    actions = ["raise_limit", "resume", "dismiss"] if has_room else ["raise_limit", "dismiss"]
    line = f"{limit_words(limit, shown['step'])} {shown['line']}" if limit is not None else shown["line"]
    return {**shown, "kind": "limit", "title": title, "line": line, "actions": actions, "limit": limit}


def limit_words(limit: LimitStop, step: str | None) -> str:
    """What is spent of a limit, and what was wanted."""
    measure, whose = limit["measure"], _OURS.get(kind_of(limit["scope"]), limit["scope"])
    if measure == VISITS:
        return f"{step_name(limit['scope'])} was visited {limit['used']:,} of {limit['limit']:,} times."
    shown = money if measure == "cost" else "{:,}".format
    unit = "" if measure == "cost" else f" {measure}"
    used = f"{whose} used {shown(limit['used'])} of {shown(limit['limit'])}{unit}"
    held = f", {shown(limit['reserved'])} more are reserved" if limit["reserved"] else ""
    needs = f"; {step_name(step) if step else 'the next call'} needs up to {shown(limit['wanted'])} more"
    return f"{used}{held}{needs}."


def _rate_limited(shown: BannerShown, row: RunRow, now_us: int) -> BannerShown:
    title = "The provider asks to wait."
    if row.wake_at_us is not None:
        left_s = max(0, -(-(row.wake_at_us - now_us) // 1_000_000))
        title = f"{title} Resumes by itself in {left_s // 60}:{left_s % 60:02}."
    line = " ".join(filter(None, (sentence(row.detail), shown["line"])))
    until = None if row.wake_at_us is None else rfc3339(row.wake_at_us)
    return {
        **shown,
        "kind": "rate_limit",
        "title": title,
        "line": line,
        "actions": ["try_now"],
        "until": until,
    }


def _awaiting(shown: BannerShown, row: RunRow) -> BannerShown:
    title = "A run that this one waits for has stopped."
    line = f"{sentence(row.detail)} {shown['line']}"
    return {**shown, "kind": "child", "title": title, "line": line, "actions": ["resume", "dismiss"]}


def _interrupted(shown: BannerShown, row: RunRow) -> BannerShown:
    is_restart = row.reason == reasons.RESTART
    what = "Server restarted" if is_restart else "Process died"
    died = row.detail.removesuffix(" while it held the run") if not is_restart else ""
    where = f" in {step_name(shown['step'])}" if shown["step"] else ""
    line = " ".join(filter(None, (sentence(died and died + where), shown["line"])))
    actions = ["resume", "fresh", "dismiss"]
    kind = reasons.RESTART if is_restart else reasons.CRASH
    return {
        **shown,
        "kind": kind,
        "title": f"{what}. Pipeline interrupted.",
        "line": line,
        "actions": actions,
    }


def _crash_loop(shown: BannerShown, row: RunRow, run: Run) -> BannerShown:
    title = f"Stopped: its process died {count(run.losses, 'time')} at the same step."
    last = row.detail.partition("; the last time: ")[2]
    where = f"{step_name(shown['step'])}. " if shown["step"] else ""
    line = f"{where}{sentence(f'The last time: {last}')} {shown['line']}" if last else where + shown["line"]
    return {
        **shown,
        "kind": "crash_loop",
        "title": title,
        "line": line,
        "colour": "red",
        "actions": ["open_log", "resume"],
    }


def _failed(shown: BannerShown, row: RunRow, run: Run) -> BannerShown:
    failed = _failed_step(run)
    reason = without_step(row.detail) or reasons.reason_of(row.reason).says
    if failed is None:
        title, line = sentence(reason), shown["line"]
    else:
        title = f"{step_name(failed.step)} failed after {count(failed.attempt, 'attempt')}."
        line = f"{sentence(reason)} {shown['line']}"
    shown = {**shown, "kind": "failed", "title": title, "line": line, "colour": "red"}
    step = failed.step if failed is not None else shown["step"]
    return {**shown, "actions": ["resume", "dismiss"], "step": step}


def _failed_step(run: Run) -> OpenStep | None:
    found = run.open_steps.get(run.stopped_step)
    if found is not None:
        return found
    failed = (one for one in run.open_steps.values() if one.state is AttemptState.FAILED)
    return next(failed, None)
