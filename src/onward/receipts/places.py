"""Where receipts and handoffs lie: one file of each per step, named after the step and who performed it.

`<flow>/receipts/<step>-<agent>.json` below the run's directory, and `<flow>/handoffs/` beside it. A step is
`node`, from its second visit on `node.2`; in a branch the branch comes before it: `fan-1.lint+node.2`. No two
steps share a name, and no name leads elsewhere.
"""

from __future__ import annotations

import re
from functools import lru_cache

from blake3 import blake3

from onward.model.ids import branch_of
from onward.receipts.names import ARTIFACTS, CHECKPOINT, MANIFEST, artifact_name, step_name

RECEIPTS, HANDOFFS = "receipts", "handoffs"
ENDING, DRAFT_ENDING = ".json", ".draft.json"
CHARACTERS_MAX = 200
_LIKE_A_VISIT = re.compile(r"\.(?=[0-9]+\Z)")
_TAKEN = (ARTIFACTS, CHECKPOINT, MANIFEST)


@lru_cache(maxsize=256)
def flow_name(pipeline: str) -> str:
    """A pipeline's name as a directory in the run's own."""
    name = step_name(pipeline)
    return f"{name}-" if name in _TAKEN else name


@lru_cache(maxsize=1024)  # a step has a receipt and a handoff, and many runs have the same steps
def step_file(step: str, agent: str) -> str:
    """The name of a step's receipt, and of its handoff."""
    node, _, visit = step.rpartition("/")[2].rpartition("#")
    last = _LIKE_A_VISIT.sub("%2E", step_name(node)) + ("" if visit == "1" else f".{step_name(visit)}")
    branch = branch_of(step)
    parts = [*map(step_name, branch.split("/")), last] if branch else [last]
    who = artifact_name(agent)
    if who.endswith(".draft"):
        who = f"{who.removesuffix('.draft')}%2Edraft"
    name = f"{'+'.join(parts)}-{who}"
    if len(name) > CHARACTERS_MAX:
        mark = blake3(f"{step}\0{agent}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        name = f"{name[: CHARACTERS_MAX - 33]}~{mark}"
    return f"{name}{ENDING}"


def is_finished_file(name: str) -> bool:
    """Whether a file can be a receipt or handoff: drafts and files on their way there are none."""
    return name.endswith(ENDING) and not name.endswith(DRAFT_ENDING) and not name.startswith(".")
