"""Pipelines as a word on this machine names them: a file here, or a registered name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from onward.engine.control.sources import near_file, read_source
from onward.engine.registry.pipelines import Registry
from onward.errors import InvalidInput, NoDatabase, PipelineNotFound
from onward.model.values.registered import can_be_registered
from onward.operations.requests.new_runs import SubmitRun
from onward.operations.requests.pipelines import AddPipeline


def is_registered_name(word: str) -> bool:
    """Whether a word means a registered pipeline, NAME or NAME@VERSION: there is no such file."""
    return can_be_registered(word) and not os.path.isfile(word)


def submission(word: str, **how: Any) -> SubmitRun:
    """A run of the pipeline in a file of this machine, or else of the registered one of this name."""
    if is_registered_name(word):
        return SubmitRun(pipeline=word, **how)
    # The path is kept absolute, so that a resume finds the file from another directory.
    return SubmitRun(source=read_source(word), file=word, path=os.path.abspath(word), **how)


async def shadowed_notice(registry: Registry, request: SubmitRun) -> str:
    """The notice that a file was taken which has the name of a registered pipeline; else empty."""
    if request.pipeline is not None or not can_be_registered(request.file):
        return ""
    found = await registry.store.pipelines.find(request.file.partition("@")[0])
    if found is None or found.enabled is None:
        return ""
    return f"{request.file} is a file here and a registered pipeline; the file is used"


def addition(file: str, **how: Any) -> AddPipeline:
    """The request that registers the pipeline in a file of this machine."""
    return AddPipeline(source=read_source(file), file=file, path=os.path.abspath(file), **how)


@contextmanager
def named(word: str | None) -> Iterator[None]:
    """Say of a name that is not registered that there is no such file either."""
    try:
        yield
    except NoDatabase as error:
        if word is None:
            raise
        meant = "".join(f"; did you mean {near}?" for near in near_file(word)) or "."
        nowhere = f"no database {error.place} that has registered pipelines"
        raise InvalidInput(f"there is no file {word} here, and {nowhere}{meant}") from None
    except PipelineNotFound as error:
        if word is None or error.newest is not None or error.removed_by:
            raise
        files = [file for file in near_file(word) if file != word]  # else it is no file
        raise PipelineNotFound(word, near=(*error.near, *files), is_no_file=True) from None
