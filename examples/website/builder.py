"""The steps of the website builder that are no agents: the brief, the problems, the check, the version."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import site_check

from onward import Onward, Result, StepContext, StepStatus

ROUNDS_MAX = 2
app = Onward()


@app.handler("brief")
def brief(step: StepContext) -> dict[str, Any]:
    """What the agents of the scope are told: the user's words, and what was found out and chosen."""
    told = step.get
    lines = [f"The user wrote: {told('user_message')}"]
    if told("research.answer"):
        found = told("research.answer")
        lines += [f"For: {found['audience']}", f"Sections: {', '.join(found['sections'])}", *found["notes"]]
    if told("human.gate.label"):
        chosen = told("human.gate.data") or {}
        lines += [f"Direction: {told('human.gate.label')}", *(f"{key}: {chosen[key]}" for key in chosen)]
    if told("diagnose.answer"):
        lines += [f"Cause: {told('diagnose.cause')}", f"Files: {', '.join(told('diagnose.files'))}"]
    return {"brief": "\n".join(lines), "scope": told("scope") or "full"}


@app.handler("problems")
def problems(step: StepContext) -> dict[str, Any]:
    """Count what the reviewer and the check found, and decide whether to remediate."""
    reviewed = [f"review: {one}" for one in step.get("review.problems") or []]
    found = site_check.problems(tree_of(step)) + reviewed
    before, rounds = step.get("problems.count"), step.get("problems.rounds") or 0
    verdict, said = judged(before, len(found), rounds)
    return {
        "problems.list": found,
        "problems.count": len(found),
        "problems.rounds": rounds + (verdict == "again"),
        "problems.verdict": verdict,
        "problems.said": said,
    }


def judged(before: int | None, now: int, rounds: int) -> tuple[str, str]:
    """Whether another round is worth it, and why: at most two, and each must leave fewer problems."""
    counted = f"{now} problem{'' if now == 1 else 's'}"
    if now == 0:
        return "clean", f"no problem is left after {rounds} round{'' if rounds == 1 else 's'}"
    if before is not None and now >= before:
        return "stuck", f"round {rounds} did not help: {counted} now, {before} before it; they are left"
    if rounds == ROUNDS_MAX:
        return "spent", f"{counted} left after {rounds} rounds, which is all there are"
    return "again", f"{counted} found; round {rounds + 1} begins"


@app.handler("build_check")
def build_check(step: StepContext) -> Result:
    """Parse every file of the site. What is wrong does not stop the run; it is said."""
    found = site_check.problems(tree_of(step))
    said = "; ".join(found) or "everything parses, and every link leads somewhere"
    return Result(
        status=StepStatus.PARTIAL_SUCCESS if found else StepStatus.SUCCESS,
        context_updates={"check.problems": found, "check.said": said},
        notes=said,
    )


@app.handler("version")
def version(step: StepContext) -> dict[str, Any]:
    """Commit the files, and move the site to that commit if nothing else has changed it meanwhile.

    Done twice, it changes nothing more: the second time there is nothing to commit.
    """
    tree = tree_of(step)
    git(tree, "add", "--all")
    if git(tree, "status", "--porcelain"):
        subject = " ".join(str(step.get("user_message")).split())[:72]
        author = ("-c", "user.name=Website builder", "-c", "user.email=builder@localhost")
        git(tree, *author, "commit", "--quiet", "--message", subject)
    commit = git(tree, "rev-parse", "HEAD")
    site = Path(git(tree, "rev-parse", "--path-format=absolute", "--git-common-dir")).parent
    try:
        git(site, "merge", "--ff-only", "--quiet", commit)
    except subprocess.CalledProcessError:
        return {"version.said": f"{commit[:12]}, which the site was not moved to: it has changes of its own"}
    return {"version.said": f"{commit[:12]} is the site now"}


def tree_of(step: StepContext) -> Path:
    """Where the run has its files."""
    assert step.workspace is not None, "website.dot names a workspace"
    return Path(step.workspace)


def git(where: Path, *words: str) -> str:
    """What git prints."""
    return run(["git", "-C", str(where), *words])


def run(command: Sequence[str]) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()
