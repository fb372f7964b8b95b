"""Where a run's files lie: a path for every try of every attempt, and none of them twice.

`<node>/<visit>/` is the first attempt's, `<node>/<visit>/attempt-2/` the second's. An attempt that was cut
off and begun again is another try: `try-2`. In a branch all that is below a directory of the branch's name.
No name can lead elsewhere: whatever is not a plain character in it is written as `%` and its code.
"""

from __future__ import annotations

import re
from functools import lru_cache

from blake3 import blake3

from onward.model.ids import branch_of

ARTIFACTS, WORKSPACE, MANIFEST, CHECKPOINT = "artifacts", "workspace", "manifest.json", "checkpoint.json"
PROMPT, RESPONSE, STATUS = "prompt.md", "response.md", "status.json"
OUTPUT_ENDING = ".log"
"""Of the files `stdout.log` and `stderr.log`."""

NAME_CHARACTERS_MAX = 150
_NOT_IN_STEPS = re.compile(r"[^A-Za-z0-9_.]")
_NOT_IN_ARTIFACTS = re.compile(r"[^A-Za-z0-9_.\-]")

Path = tuple[str, ...]


@lru_cache(maxsize=1024)  # many runs have the same steps
def attempt_path(step: str, attempt: int, tries: int = 1) -> Path:
    """The directories below the run's own that lead to one try of one attempt."""
    node, _, visit = step.rpartition("/")[2].rpartition("#")
    branch = branch_of(step)
    parts = [step_name(part) for part in branch.split("/")] if branch else []
    parts += [step_name(node or visit), step_name(visit)]
    if not branch and parts[0] in (ARTIFACTS, WORKSPACE):
        parts[0] += "-"  # a node of this name must not meet what is the run's
    if attempt > 1:
        parts.append(f"attempt-{attempt}")
    if tries > 1:
        parts.append(f"try-{tries}")
    return tuple(parts)


def step_name(text: str) -> str:
    """A part of a step's id as a file name: `fan#1.lint` becomes `fan-1.lint`, and no two become the same."""
    return _shortened(_NOT_IN_STEPS.sub(_escaped, text), text)


def artifact_name(id: str) -> str:
    """An artifact's id as a file name."""
    return _shortened(_NOT_IN_ARTIFACTS.sub(_escaped, id), id)


def _escaped(match: re.Match[str]) -> str:
    if match[0] == "#":
        return "-" if match.re is _NOT_IN_STEPS else "%23"
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def _shortened(name: str, text: str) -> str:
    """Never empty, hidden, `.` or `..`, and short enough for every file system."""
    if not name or name[0] == ".":
        name = f"%2E{name[1:]}" if name else "%"
    if len(name) <= NAME_CHARACTERS_MAX:
        return name
    mark = blake3(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{name[: NAME_CHARACTERS_MAX - 33]}~{mark}"
