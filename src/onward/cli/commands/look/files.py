"""`onward files` and `onward artifacts`: what a run left, out of its log."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.opening import app_of
from onward.cli.options import COMMON, Common, Out, OutDirectory, RunName
from onward.cli.print.output import Output
from onward.cli.print.text import age, count, one_line, table
from onward.clock import SystemClock
from onward.config import load_settings
from onward.engine.control.sources import Sources
from onward.engine.files.rebuild import rebuild
from onward.engine.log.journal import Journal
from onward.errors import ArtifactNotFound, InvalidInput, NoDatabase, StoreCorrupt
from onward.model.artifact import Artifact
from onward.model.ids import display_id
from onward.model.run import Run
from onward.pipeline.graph import BUILT_IN_TYPES
from onward.read.lookup import find_run
from onward.read.view import instant
from onward.receipts.folder import Folder
from onward.receipts.homes import Homes
from onward.receipts.names import Path
from onward.store.port.store import Store
from onward.wiring import is_there, open_store


@dataclass(frozen=True, slots=True)
class Looking:
    """A run that is looked at, the store it is in, and what its pipeline is prepared with."""

    store: Store
    run: Run
    sources: Sources
    runs: str | None
    is_held: bool
    """Whether somebody who is alive works on the run."""


@asynccontextmanager
async def looking_at(wanted: str, common: Common) -> AsyncIterator[Looking]:
    """Open the store that the person means, and find the run in it."""
    app = app_of(load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files))
    if isinstance(app.store, str) and not is_there(app.store):
        raise NoDatabase(app.store)
    store = await open_store(app.store) if isinstance(app.store, str) else app.store
    try:
        run_id = (await find_run(store.runs, wanted)).row.id
        folded = await Journal(store.log, SystemClock()).load(run_id)
        sources = Sources(store.blobs, app.transforms, {*app.handlers, *BUILT_IN_TYPES}, app.rules)
        is_held = folded.holder is not None and folded.holder.is_alive
        yield Looking(store, folded.run, sources, app.runs_directory, is_held)
    finally:
        await store.close()


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
    async with looking_at(run, common) as looking:
        folder, at = target(looking, out_dir)
        try:
            written = await rebuild(looking.store, looking.sources, looking.run, folder, at)
        except OSError as error:
            raise InvalidInput(f"{folder.path(*at)} cannot be written: {error.strerror or error}.") from None
    name = display_id(looking.run.id)
    if out.is_json:
        out.value({"run": looking.run.id, "directory": folder.path(*at), "written": written})
    else:
        out.say(f"run {name}: {count(written, 'file')} written to {folder.path(*at)}")
    return FINE


def target(looking: Looking, out_dir: str | None) -> tuple[Folder, Path]:
    """Where a run's files go: the directory that was named, or the run's own."""
    if out_dir is not None:
        return Folder(os.path.abspath(out_dir)), ()
    if looking.runs is None:
        raise InvalidInput("this database has no directory for runs; name one with --out.")
    return Homes(os.path.abspath(looking.runs), looking.store.identity), (looking.run.id,)


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
    async with looking_at(run, common) as looking:
        kept = looking.run.artifacts
        if id is None:
            if out_file is not None:
                raise InvalidInput("--out wants an artifact: `onward artifacts RUN ID --out FILE`.")
            _tell_all(looking.run, out)
            return FINE
        if id not in kept:
            raise ArtifactNotFound(id, list(kept))
        content = await looking.store.blobs.find(kept[id].hash)
    if content is None:
        raise StoreCorrupt(f"the content of artifact {id!r} ({kept[id].hash}) is missing or damaged.")
    if out_file is not None:
        _write(out_file, content)
        out.say(f"{id}: {len(content):,} bytes written to {out_file}")
    if out.is_json:
        out.value({**_view(id, kept[id]), **(_shown(kept[id], content) if out_file is None else {})})
    elif out_file is None:
        _print(id, content, out)
    return FINE


def _tell_all(run: Run, out: Output) -> None:
    if out.is_json:
        out.value([_view(id, artifact) for id, artifact in sorted(run.artifacts.items())])
        return
    if not run.artifacts:
        out.say(f"run {display_id(run.id)} has no artifacts")
        return
    now_us = SystemClock().now_us()
    rows = [
        (
            one_line(id),
            one_line(artifact.name),
            f"{artifact.size:,}",
            artifact.step,
            age(artifact.stored_at_us, now_us),
        )
        for id, artifact in sorted(run.artifacts.items())
    ]
    for line in table(("ID", "NAME", "BYTES", "STEP", "STORED"), rows):
        out.say(line)


def _view(id: str, artifact: Artifact) -> dict[str, Any]:
    return {
        "id": id,
        "name": artifact.name,
        "size_bytes": artifact.size,
        "stored_at": instant(artifact.stored_at_us),
        "form": artifact.form,
        "step": artifact.step,
        "hash": artifact.hash,
    }


def _shown(artifact: Artifact, content: bytes) -> dict[str, str]:
    if artifact.form != "bytes":
        return {"content": content.decode()}
    return {"content_base64": base64.b64encode(content).decode()}


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
