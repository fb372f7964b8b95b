"""A new run of a pipeline in a file of this machine."""

from __future__ import annotations

import os
from typing import Any

from onward.engine.control.sources import read_source
from onward.operations.requests import SubmitRun


def submission(file: str, **how: Any) -> SubmitRun:
    """A run of the pipeline in a file of this machine."""
    # The path is kept absolute, so that a resume finds the file from another directory.
    return SubmitRun(source=read_source(file), file=file, path=os.path.abspath(file), **how)
