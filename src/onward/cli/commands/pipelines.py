"""`onward pipelines`: pipelines that are registered under a name, and their versions."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from onward.cli.operations import pipelines_of
from onward.cli.options import COMMON, Common, Out, number
from onward.cli.output import FINE, Output, count, one_line, table
from onward.cli.print.run import when
from onward.errors import InvalidInput
from onward.model.ids import read_version, read_wanted
from onward.model.values import LIMIT
from onward.operations.here.submission import addition
from onward.operations.requests import AddPipeline, EnablePipeline, GetPipeline, ListPipelines, RemovePipeline

if TYPE_CHECKING:
    from onward.replies.database import InputDeclared, PipelineListed, PipelinePage

HEADINGS = ("NAME", "ENABLED", "NEWEST", "BY", "AT")
VERSION_HEADINGS = ("VERSION", "", "ADDED BY", "AT", "SOURCE", "FILE")
HASH_CHARACTERS = 12


async def pipelines(
    action: Annotated[
        Literal["list", "add", "show", "enable", "remove"], Parameter(help="The action.")
    ] = "list",
    what: Annotated[
        str | None, Parameter(name="FILE|NAME", help="With add: a DOT file. Otherwise: a registered name.")
    ] = None,
    chosen: Annotated[str | None, Parameter(name="VERSION", help="With enable: the version.")] = None,
    /,
    *,
    name: Annotated[
        str | None, Parameter(help="With add: the name. Default: the name of the graph, or else of the file.")
    ] = None,
    version: Annotated[
        str | None, Parameter(help="With show: a version other than the enabled one.", metavar="V")
    ] = None,
    no_enable: Annotated[
        bool, Parameter(help="With add: only store the version; new runs keep using the enabled one.")
    ] = False,
    by: Annotated[
        str | None, Parameter(help="Who makes the change. Default: the user of this machine.")
    ] = None,
    limit: Annotated[int, number(LIMIT, help="How many names or versions to list.")] = 50,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Register pipelines under names, for `onward run NAME` and `onward submit NAME`.

    `add` checks a file as `onward validate --for-workers` does, and stores its source as version 1, 2, …
    of its name; new runs use it from then on. Adding the same source again creates no new version. A stored
    version never changes, and a run keeps the version that it started with.
    """
    given = {"--name": name, "--version": version, "--no-enable": no_enable or None}
    _check_words(action, what, chosen, {flag for flag, value in given.items() if value is not None})
    who = _user() if by is None else by
    match action, what:
        case "list", _:
            return await _list(limit, common, out)
        case "add", str(file):
            return await _add(addition(file, name=name, enable=not no_enable, by=who), common, out)
        case "show", str(word):
            return await _show(_wanted(word, version, limit), common, out)
        case "enable", str(word):
            return await _enable(_choice(word, chosen, who), common, out)
        case _, word:
            return await _remove(RemovePipeline(name=word or "", by=who), common, out)


_TAKES = {
    "list": "`onward pipelines list` takes no name; `onward pipelines show NAME` shows one.",
    "add": "name the file to add, as in `onward pipelines add site.dot`.",
    "show": "name the pipeline to show, as in `onward pipelines show site`.",
    "enable": "name the version to enable, as in `onward pipelines enable site 2`.",
    "remove": "name the pipeline to remove, as in `onward pipelines remove site`.",
}
_FLAGS = {"add": {"--name", "--no-enable"}, "show": {"--version"}}


def _check_words(action: str, what: str | None, chosen: str | None, flags: set[str]) -> None:
    """Refuse words and flags that the action has no use for."""
    if (what is None) is not (action == "list") or (chosen is not None and action != "enable"):
        raise InvalidInput(_TAKES[action])
    for flag in sorted(flags - _FLAGS.get(action, set())):
        raise InvalidInput(f"{flag} has no effect on `onward pipelines {action}`; leave it out.")


def _wanted(word: str, version: str | None, limit: int) -> GetPipeline:
    wanted = read_wanted(word)
    if wanted.version is not None and version is not None:
        raise InvalidInput(f"{word} already names a version; leave --version out.")
    number = wanted.version if version is None else read_version(version)
    return GetPipeline(name=wanted.name, version=number, limit=limit)


def _choice(word: str, version: str | None, by: str) -> EnablePipeline:
    wanted = read_wanted(word)
    if (wanted.version is None) is (version is None):
        raise InvalidInput(_TAKES["enable"])
    number = read_version(version) if version is not None else wanted.version
    assert number is not None
    return EnablePipeline(name=wanted.name, version=number, by=by)


def _user() -> str:
    """Whoever the machine says that this is."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


async def _list(limit: int, common: Common, out: Output) -> int:
    async with pipelines_of(common) as asked:
        found = await asked.list_pipelines(ListPipelines(limit=limit))
    if out.is_json:
        out.value(found)
        return FINE
    if not found["pipelines"]:
        out.say("no pipeline is registered; add one with `onward pipelines add FILE`")
        return FINE
    for line in table(HEADINGS, [_row(one) for one in found["pipelines"]]):
        out.say(line)
    if found["cursor"] is not None:
        out.note(f"there may be more; list more with --limit {2 * limit}")
    return FINE


def _row(one: PipelineListed) -> tuple[str, ...]:
    return one["name"], str(one["enabled"]), str(one["newest"]), one["changed_by"], when(one["changed_at"])


async def _add(request: AddPipeline, common: Common, out: Output) -> int:
    async with pipelines_of(common, makes=True) as asked:
        added = await asked.add_pipeline(request)
    for warning in added["warnings"]:
        out.note(warning)
    told = f"{added['name']}@{added['version']}"
    out.say(f"{told} is {'added' if added['is_new'] else 'already stored'}; {_gets(added)}")
    if out.is_json:
        out.value(added)
    return FINE


def _gets(one: PipelineListed) -> str:
    return f"new runs of {one['name']} get version {one['enabled']}"


async def _show(request: GetPipeline, common: Common, out: Output) -> int:
    async with pipelines_of(common) as asked:
        page = await asked.show_pipeline(request)
    if out.is_json:
        out.value(page)
        return FINE
    for line in _lines(page):
        out.say(line)
    return FINE


def _lines(page: PipelinePage) -> Iterator[str]:
    yield f"pipeline {page['name']}: {count(page['newest'], 'version')}; {_gets(page)}"
    rows = [
        (
            str(one["version"]),
            "enabled" if one["version"] == page["enabled"] else "",
            one["added_by"],
            when(one["added_at"]),
            one["pipeline_hash"][:HASH_CHARACTERS],
            one["file"],
        )
        for one in page["versions"]
    ]
    for line in table(VERSION_HEADINGS, rows):
        yield f"  {line}"
    if len(rows) < page["newest"]:
        yield f"  … and {count(page['newest'] - len(rows), 'older version')}; list them with --limit"
    if page["inputs"]:
        yield ""
        yield from table(("INPUT", "TYPE", "DEFAULT", "WHAT"), [_input_row(one) for one in page["inputs"]])
    yield ""
    yield f"// {one_line(page['name'])}@{page['version']}"
    yield page["source"].rstrip("\n")


def _input_row(one: InputDeclared) -> tuple[str, ...]:
    kind = " | ".join(one["choices"]) or one["type"]
    default = "required" if one["required"] else one_line(json.dumps(one["default"], ensure_ascii=False), 40)
    return one["name"], one_line(kind, 40), default, one_line(one["about"])


async def _enable(request: EnablePipeline, common: Common, out: Output) -> int:
    async with pipelines_of(common) as asked:
        changed = await asked.enable_pipeline(request)
    out.say(_gets(changed))
    if out.is_json:
        out.value(changed)
    return FINE


async def _remove(request: RemovePipeline, common: Common, out: Output) -> int:
    async with pipelines_of(common) as asked:
        removed = await asked.remove_pipeline(request)
    out.say(f"{removed['name']} was removed; its runs keep their source")
    if out.is_json:
        out.value(removed)
    return FINE
