"""Commands that check pipelines, histories and the installation, and list the models and tools it has.

`onward validate` checks a pipeline, and `simulate-script` prints a simulation script to try it with.
`verify` checks histories, `doctor` the installation. `models` lists the providers that are set up, the
models that have a price, and the default; `tools` the tools of agents, their rules, and where they come
from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from onward.agents.lists import ModelList, ModelPriced, RatesShown, ToolList
from onward.agents.models import list_models
from onward.agents.prices import read_prices, shipped_prices
from onward.agents.providers import read_providers, split_name
from onward.agents.tools.toolbox import list_tools
from onward.cli.operations import app_of, common_app, opened, programs_of, store_with_homes, toolbox_of
from onward.cli.options import COMMON, Common, Out, RealTools, RunName
from onward.cli.output import FAILED, FINE, USAGE, count, table
from onward.config import load_settings, own_environment
from onward.errors import InvalidPipeline
from onward.model.ids import called
from onward.model.limits import shown_amount
from onward.operations.here.database import check_installation
from onward.operations.here.directories import verify_runs
from onward.operations.here.requests import VerifyRuns
from onward.operations.here.submission import script_template
from onward.pipeline.source import Diagnostic, Severity

if TYPE_CHECKING:
    from onward.cli.replies import VerificationShown
    from onward.operations.here.replies import RunVerified


async def validate(
    file: Annotated[str, Parameter(help="The pipeline: a DOT file.")],
    /,
    *,
    for_workers: Annotated[
        bool,
        Parameter(help="Check for workers elsewhere: a handler that is missing here is only a warning."),
    ] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Check a pipeline and list its problems, each with line and column. Nothing is executed.

    If the file has syntax errors, nothing else is checked. Anything that `onward run` would reject on this
    machine is an error, such as a handler that is not registered.
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
    """Read whole logs, check their hash chains, and compare all other stored data with them.

    The directory of a run lists its acknowledged steps, so steps that the log has lost are reported too.
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
        verified: VerificationShown = {"runs": checked, "events": events, "problems": problems}
        out.value(verified)
    return FAILED if problems else FINE


async def doctor(*, common: Common = COMMON, out: Out) -> int:
    """Check whether the installation and the database can execute runs."""
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


async def simulate_script(
    file: Annotated[str, Parameter(help="The pipeline: a DOT file.")],
    /,
    *,
    real_tools: RealTools = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Print a simulation script for a pipeline, for `onward run FILE --simulate SCRIPT.json`.

    The script has an entry for every agent, tool and handler of your app, and each one succeeds. It is JSON
    and works unchanged. With --real-tools it has only agents.
    """
    app = common_app(common)
    template = script_template(app.read(file), app.read, real_tools=real_tools)
    if out.is_json:
        out.value(template)
    else:
        out.say(json.dumps(template, indent=2, ensure_ascii=False))
    return FINE


NO_DEFAULT_MODEL = "no default model: set ONWARD_MODEL, or `model` under [agents] in onward.toml"


def models(
    *,
    all: Annotated[bool, Parameter(help="Include the prices of providers that are not set up.")] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Show which model providers and agent programs are set up, the prices of models, and the default model.

    No provider is contacted, no key is read and no program is started: a provider may still reject its key.
    """
    settings = load_settings(db=common.db, app=common.app)
    found = list_models(
        read_providers(settings.providers, base_urls=settings.base_urls),
        read_prices(settings.prices).models,
        own=settings.prices,
        sources=shipped_prices().sources,
        default=settings.model,
        variables=own_environment(),
        directory=settings.project.path("."),
        programs=programs_of(settings),
    )
    if out.is_json:
        out.value(found)
        return FINE
    for line in _model_lines(found, shows_all=all):
        out.say(line)
    return FINE


def _model_lines(found: ModelList, *, shows_all: bool) -> Iterator[str]:
    providers = found["providers"]
    rows = [
        (one["name"], one["format"], one["base_url"], f"no: {one['problem']}" if one["problem"] else "yes")
        for one in providers
    ]
    yield from table(("PROVIDER", "FORMAT", "ADDRESS", "SET UP"), rows)
    yield ""
    programs = [
        (one["name"], one["format"], one["found"] or f"no: {one['problem']}") for one in found["programs"]
    ]
    yield from table(("PROGRAM", "FORMAT", "FOUND"), programs)
    yield ""
    yield _default(found)
    yield ""
    set_up = {one["name"] for one in providers if one["is_set_up"]}
    shown = [one for one in found["models"] if shows_all or split_name(one["model"])[0] in set_up]
    if shown:
        yield from table(("MODEL", "INPUT", "CACHED", "CACHE WRITE", "OUTPUT", "AS OF"), list(_prices(shown)))
        yield "in dollars per million model tokens; a model that is not listed has no known price"
    left = len(found["models"]) - len(shown)
    if left:
        yield f"{count(left, 'price')} of providers that are not set up: onward models --all"


def _default(found: ModelList) -> str:
    if found["default"] is None:
        return NO_DEFAULT_MODEL
    problem = f", which cannot be used: {found['problem']}" if found["problem"] else ""
    return f"default model: {found['default']}{problem}"


def _prices(models: list[ModelPriced]) -> Iterator[tuple[str, ...]]:
    for one in models:
        as_of = "onward.toml" if one["is_own"] else one["as_of"] or "–"
        yield (one["model"], *_amounts(one), as_of)
        if (long := one["long"]) is not None:
            yield (f"… above {long['above']:,} tokens of input", *_amounts(long), as_of)


def _amounts(rates: RatesShown) -> Iterator[str]:
    for name in ("input_micro", "cached_input_micro", "cache_write_micro", "output_micro"):
        yield shown_amount("cost", rates[name])


NO_DEFAULT_TOOLS = "a node gets the tools that it names in allowed_tools; without it, none"


async def tools(*, common: Common = COMMON, out: Out) -> int:
    """Show the tools that agents can be given, and the rules of each.

    Each tool has rules of its own, which [tools.NAME] in onward.toml can change (docs/configuration.md).
    """
    async with toolbox_of(common, out) as toolbox:
        found = await list_tools(toolbox)
    if out.is_json:
        out.value(found)
        return FINE
    for line in _tool_lines(found):
        out.say(line)
    return FINE


def _tool_lines(found: ToolList) -> Iterator[str]:
    rows = [
        (
            one["name"],
            one["origin"],
            "asks first" if one["approval"] else "no",
            "yes" if one["repeatable"] else "no",
            f"{one['time_limit_s']:g} s",
            f"{one['output_characters']:,}",
        )
        for one in found["tools"]
    ]
    yield from table(("TOOL", "FROM", "APPROVAL", "REPEATABLE", "TIME LIMIT", "CHARACTERS SHOWN"), rows)
    yield ""
    default = ", ".join(found["default"])
    yield f"nodes without allowed_tools get: {default}" if default else NO_DEFAULT_TOOLS
    if found["unknown"]:
        yield f"onward.toml names unknown tools: {', '.join(found['unknown'])}"
    yield from found["failed"]
