"""Commands that check: validate a pipeline, verify histories, look after the installation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from onward.cli.exits import FAILED, FINE, USAGE
from onward.cli.opening.app import app_of, common_app
from onward.cli.opening.database import opened
from onward.cli.opening.looking import store_with_homes
from onward.cli.opening.operating import programs_of
from onward.cli.options import COMMON, Common, Out, RunName
from onward.cli.print.text import count
from onward.cli.replies import Verified
from onward.config import load_settings
from onward.errors import InvalidPipeline
from onward.model.ids import called
from onward.operations.here.database import check_installation
from onward.operations.here.directories import verify_runs
from onward.operations.here.replies import RunVerified
from onward.operations.here.requests import VerifyRuns
from onward.pipeline.source import Diagnostic, Severity


async def validate(
    file: Annotated[str, Parameter(help="The pipeline: a DOT file.")],
    /,
    *,
    for_workers: Annotated[
        bool, Parameter(help="Workers elsewhere run it: a handler that is missing here is only a warning.")
    ] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Read and check a pipeline: all problems at once, with line and column. Nothing is executed.

    What `onward run` would refuse here is an error, such as a handler that is not registered.
    """
    app = common_app(common)
    try:
        # Workers elsewhere may pass other variables.
        pipeline = app.read(file) if for_workers else app.validate(file, tool_env=load_settings().tool_env)
    except InvalidPipeline as error:
        findings, code = error.diagnostics, USAGE
        verdict = f"{file} cannot run: {_counted(findings, Severity.ERROR)}"
    else:
        findings, code = pipeline.warnings, FINE
        verdict = f"{file} is valid: {count(len(pipeline.graph.nodes), 'node')}"
    if out.is_json:
        out.value(findings)
    else:
        for finding in findings:
            out.say(str(finding))
    (out.say if code == FINE else out.note)(f"{verdict}, {_counted(findings, Severity.WARNING)}")
    return code


def _counted(findings: Sequence[Diagnostic], severity: Severity) -> str:
    return count(sum(finding.severity is severity for finding in findings), severity.value)


async def verify(run: RunName | None = None, /, *, common: Common = COMMON, out: Out) -> int:
    """Read logs whole, check their hash chains, and compare all that is stored with their fold.

    A run's directory tells of steps that were acknowledged: a log that has lost them is a problem, too.
    """
    checked: list[RunVerified] = []
    async with store_with_homes(common) as (store, homes):
        async for one in verify_runs(store, homes, VerifyRuns(run=run)):
            checked.append(one)
            for problem in one["problems"]:
                out.say(f"run {called(one['run'])}: {problem}")
    events, problems = sum(one["events"] for one in checked), sum(len(one["problems"]) for one in checked)
    out.say(f"{count(len(checked), 'run')}, {count(events, 'event')} checked, {count(problems, 'problem')}")
    if out.is_json:
        verified: Verified = {"runs": checked, "events": events, "problems": problems}
        out.value(verified)
    return FAILED if problems else FINE


async def doctor(*, common: Common = COMMON, out: Out) -> int:
    """Say whether the installation and the database can be trusted with runs."""
    settings = load_settings(db=common.db, app=common.app)
    app = app_of(settings)
    programs = {
        one["name"]: (one["found"] is not None, one["found"] or one["problem"] or "")
        for one in programs_of(settings)
        if one["is_own"]
    }
    # A database that is named must be there, so that a typo makes none; the default may be made.
    async with opened(app.store, makes=not settings.is_db_given or app.store == ":memory:") as store:
        found = await check_installation(store, app.runs_directory, programs)
    for one in found:
        out.say(f"{'ok ' if one['ok'] else 'BAD'}  {one['subject']:<12}  {one['says']}")
    if out.is_json:
        out.value(found)
    return FINE if all(one["ok"] for one in found) else FAILED
