"""Which programs may work as agents, and where they are: what `onward models` and `onward doctor` show."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping

from onward.agents.listed import ProgramShown
from onward.agents.programs.program import Program


def list_programs(programs: Mapping[str, Program], *, own: Collection[str], path: str) -> list[ProgramShown]:
    """All of them; `own` are those that the settings describe, `path` is where commands are looked for.

    Nothing is started: a program that is there may still be logged out.
    """
    return [_shown(program, program.name in own, path) for _, program in sorted(programs.items())]


def _shown(program: Program, is_own: bool, path: str) -> ProgramShown:
    command = program.command[0]
    found = shutil.which(command, path=path)
    install = f"; install it: {program.install}" if program.install else ""
    return {
        "name": program.name,
        "format": program.format,
        "command": command,
        "is_own": is_own,
        "found": found and os.path.abspath(found),
        "problem": None if found else f"{command!r} is not there, or cannot be executed{install}",
    }
