"""`onward files` and `onward artifacts`: what a run left, out of its log."""

from __future__ import annotations

import base64
from typing import Annotated

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.opening.looking import files_of, look_of
from onward.cli.options import COMMON, Common, Out, OutDirectory, RunName
from onward.cli.print.output import Output
from onward.cli.print.render import instant_us
from onward.cli.print.text import age, count, one_line, table
from onward.clock import SystemClock
from onward.errors import InvalidInput
from onward.model.ids import called
from onward.operations.here.replies import FilesWritten
from onward.operations.here.requests import WriteFiles
from onward.operations.replies.steps import ArtifactContent, ArtifactList
from onward.operations.requests import GetArtifact, ListArtifacts

FILES_SHOWN = 50
CONTENT = ("content", "content_base64")


async def files(
    run: RunName,
    /,
    *,
    out_dir: OutDirectory = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Write the files of a run from its log: manifest, checkpoint, prompts, responses, statuses, receipts.

    What a step left itself stays as it is; what is missing is written.
    """
    async with files_of(common) as directories:
        done = await directories.write_files(WriteFiles(run=run, directory=out_dir))
    if out.is_json:
        out.value(done)
    else:
        name, where = called(done["run"]), done["directory"]
        tell_written(done, out)
        out.say(f"run {name}: {count(done['written'], 'file')} written to {where}")
    return FINE


def tell_written(done: FilesWritten, out: Output) -> None:
    """Name the files that were written; of very many, the first."""
    for name in done["files"][:FILES_SHOWN]:
        out.say(f"wrote {one_line(name, 1_000)}")
    if done["written"] > FILES_SHOWN:
        out.say(f"and {count(done['written'] - FILES_SHOWN, 'more file')}; --json names all")


async def artifacts(
    run: RunName,
    id: Annotated[str | None, Parameter(help="The artifact to fetch.")] = None,
    /,
    *,
    out_file: Annotated[
        str | None, Parameter(name="--out", help="Write the artifact to this file.", metavar="FILE")
    ] = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """List a run's artifacts, or print one or write it to a file."""
    if id is None:
        if out_file is not None:
            raise InvalidInput("--out wants an artifact: `onward artifacts RUN ID --out FILE`.")
        async with look_of(common) as look:
            _tell_all(await look.list_artifacts(ListArtifacts(run=run)), out)
        return FINE
    async with look_of(common) as look:
        found = await look.get_artifact(GetArtifact(run=run, id=id))
    content = _content(found)
    if out_file is not None:
        _write(out_file, content)
        out.say(f"{id}: {len(content):,} bytes written to {out_file}")
    if out.is_json:
        out.value({key: shown for key, shown in found.items() if out_file is None or key not in CONTENT})
    elif out_file is None:
        _print(id, content, out)
    return FINE


def _content(found: ArtifactContent) -> bytes:
    if "content" in found:
        return found["content"].encode()
    return base64.b64decode(found["content_base64"])


def _tell_all(found: ArtifactList, out: Output) -> None:
    if out.is_json:
        out.value(found["artifacts"])
        return
    if not found["artifacts"]:
        out.say(f"run {called(found['run'])} has no artifacts")
        return
    now_us = SystemClock().now_us()
    rows = [
        (
            one_line(artifact["id"]),
            one_line(artifact["name"]),
            f"{artifact['size_bytes']:,}",
            artifact["step"],
            age(instant_us(artifact["stored_at"]), now_us),
        )
        for artifact in found["artifacts"]
    ]
    for line in table(("ID", "NAME", "BYTES", "STEP", "STORED"), rows):
        out.say(line)


def _print(id: str, content: bytes, out: Output) -> None:
    """As it is for a program; for a person, only what a terminal can show."""
    if not out.is_live:
        out.raw(content)
        return
    try:
        out.say(content.decode())
    except UnicodeDecodeError:
        raise InvalidInput(f"artifact {id!r} is not text; write it to a file with --out FILE.") from None


def _write(path: str, content: bytes) -> None:
    try:
        with open(path, "wb") as file:
            file.write(content)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}.") from None
