"""The project that a command is typed in: the nearest directory, upwards, with `.onward` or `onward.toml`.

Its settings name code to run, and its runs have commands, so a directory above the current one counts only
if it belongs to the user or to root, as git has it: others may write into a directory for temporary files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

DIRECTORY = ".onward"
CONFIG_FILE = "onward.toml"


class Project(msgspec.Struct, frozen=True):
    """A directory, absolute if it is not the current one, and what above was not trusted on the way."""

    directory: str = ""
    strangers: tuple[str, ...] = ()

    def path(self, name: str) -> str:
        """A path as the project means it."""
        return os.path.join(self.directory, name)


HERE = Project()


def find_project(home: str) -> Project:
    """The nearest project, up to the home directory or the root; the current directory if there is none."""
    strangers: list[str] = []
    try:
        here = os.getcwd()
    except FileNotFoundError:
        return HERE
    for directory in _upwards(here, os.path.realpath(home)):
        for name in (DIRECTORY, CONFIG_FILE):
            marker = os.path.join(directory, name)
            if not os.path.exists(marker):
                continue
            if directory == here:
                return HERE
            if _is_trusted(directory) and _is_trusted(marker):
                return Project(directory, tuple(strangers))
            strangers.append(marker)
    return Project(strangers=tuple(strangers))


def _upwards(here: str, home: str) -> Iterator[str]:
    directory = here
    while True:
        yield directory
        above = os.path.dirname(directory)
        if above == directory or os.path.realpath(directory) == home:
            return
        directory = above


def _is_trusted(path: str) -> bool:
    try:
        return os.stat(path).st_uid in (os.getuid(), 0)
    except OSError:
        return False
