"""Commands that check: validate a pipeline, verify histories, look after the installation."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

from cyclopts import Parameter

from onward.cli.exits import FAILED, FINE, USAGE
from onward.cli.opening import app_of, store_with_homes
from onward.cli.options import COMMON, Common, Out, RunName
from onward.cli.print.text import count, one_line
from onward.config import load_settings
from onward.errors import InvalidPipeline, NoDatabase
from onward.model.ids import display_id
from onward.operations.local.lists import LocalLists
from onward.operations.requests import ALL, ListRuns
from onward.read.verify import Verified, verify_run
from onward.store.port.measures import Measured
from onward.store.privacy import exposed
from onward.version import VERSION
from onward.wiring import is_there, open_store


async def validate(
    file: Annotated[str, Parameter(help="The pipeline: a DOT file.")], /, *, common: Common = COMMON, out: Out
) -> int:
    """Read and check a pipeline: all problems at once, with line and column. Nothing is executed."""
    app = app_of(load_settings(db=common.db, app=common.app))
    try:
        pipeline = app.read(file)
    except InvalidPipeline as error:
        findings, code = error.diagnostics, USAGE
        verdict = f"{file} cannot run: {count(len(findings), 'error')}"
    else:
        findings, code, graph = pipeline.warnings, FINE, pipeline.graph
        verdict = f"{file} is valid: {count(len(graph.nodes), 'node')}, {count(len(findings), 'warning')}"
    if out.is_json:
        out.value(findings)
    else:
        for finding in findings:
            out.say(str(finding))
    (out.say if code == FINE else out.note)(verdict)
    return code


async def verify(run: RunName | None = None, /, *, common: Common = COMMON, out: Out) -> int:
    """Read logs whole, check their hash chains, and compare all that is stored with their fold.

    A run's directory tells of steps that were acknowledged: a log that has lost them is a problem, too.
    """
    checked: list[Verified] = []
    async with store_with_homes(common) as (store, homes):
        for listed in (await LocalLists(store).list_runs(ListRuns(run=run, limit=ALL)))["runs"]:
            verified = await verify_run(store, listed["id"], homes)
            checked.append(verified)
            for problem in verified.problems:
                out.say(f"run {listed['display_id']}: {problem}")
    events, problems = sum(one.events for one in checked), sum(len(one.problems) for one in checked)
    out.say(f"{count(len(checked), 'run')}, {count(events, 'event')} checked, {count(problems, 'problem')}")
    if out.is_json:
        runs = [
            {
                "run": one.run_id,
                "display_id": display_id(one.run_id),
                "events": one.events,
                "problems": one.problems,
            }
            for one in checked
        ]
        out.value({"runs": runs, "events": events, "problems": problems})
    return FAILED if problems else FINE


async def doctor(*, common: Common = COMMON, out: Out) -> int:
    """Say whether the installation and the database can be trusted with runs."""
    settings = load_settings(db=common.db, app=common.app)
    app = app_of(settings)
    found: list[tuple[str, bool, str]] = [
        ("onward", True, VERSION),
        ("python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        *((name, True, _version(name)) for name in ("apsw", "psycopg", "msgspec")),
    ]
    named = app.store if isinstance(app.store, str) and settings.is_db_given else ":memory:"
    if named != ":memory:" and not is_there(named):
        raise NoDatabase(named)  # a typo must not make one
    store = await open_store(app.store) if isinstance(app.store, str) else app.store
    try:
        found += await store.check()
        found.append(_queue(await store.measures.measure()))
    finally:
        await store.close()
    found += _files(app.runs_directory)
    for subject, is_well, says in found:
        out.say(f"{'ok ' if is_well else 'BAD'}  {subject:<12}  {says}")
    if out.is_json:
        fields = ("subject", "ok", "says")
        out.value([dict(zip(fields, one, strict=True)) for one in found])
    return FINE if all(is_well for _, is_well, _ in found) else FAILED


def _queue(found: Measured) -> tuple[str, bool, str]:
    """Whether every due run can be claimed; if not, the first that cannot."""
    if not found.stuck:
        return "queue", True, f"{count(found.due, 'run')} due"
    first = found.stuck[0]
    said = f"{count(len(found.stuck), 'due run')} could not be claimed; see `onward stats`"
    return "queue", False, f"{said}. Run {display_id(first.run)}: {one_line(first.why)}"


def _files(runs: str | None) -> list[tuple[str, bool, str]]:
    """Whether others can read what steps leave; also through the directory around it, if that is ours."""
    if runs is None or not os.path.isdir(runs):
        return []
    above = os.path.dirname(os.path.abspath(runs))
    told = exposed([runs, above] if os.path.basename(above) == ".onward" else [runs])
    return [("files", not told, told or f"{runs} is for this user alone")]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
