"""Requests about registered pipelines."""

from __future__ import annotations

from onward.model.values.bounds import LISTED
from onward.model.values.registered import VERSION
from onward.operations.requests.request import Request


class ListPipelines(Request, frozen=True, kw_only=True):
    """Registered pipelines, by name."""

    cursor: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        LISTED.check(self.limit, "limit")


class GetPipeline(Request, frozen=True, kw_only=True):
    """A registered pipeline with the source of a version, or of the enabled one.

    `limit` is how many of its versions to list.
    """

    name: str
    version: int | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        LISTED.check(self.limit, "limit")
        if self.version is not None:
            VERSION.check(self.version, "version")


class AddPipeline(Request, frozen=True, kw_only=True):
    """Store a source as the next version of a name, or of the graph's; the same source is the same version.

    New runs get it; without `enable`, only if the name has no other version. `file` is what diagnostics call
    the source; `path` is where it was.
    """

    source: str
    file: str = "<pipeline>"
    path: str | None = None
    name: str | None = None
    enable: bool = True
    by: str = "user"


class EnablePipeline(Request, frozen=True, kw_only=True):
    """Choose the version of a registered pipeline that new runs get."""

    name: str
    version: int
    by: str = "user"

    def __post_init__(self) -> None:
        VERSION.check(self.version, "version")


class RemovePipeline(Request, frozen=True, kw_only=True):
    """Take a name away from new runs. Its versions keep their numbers, and runs their source."""

    name: str
    by: str = "user"
