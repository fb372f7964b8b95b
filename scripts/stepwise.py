"""What `make stepwise-resume` and `make stepwise-retry` do: check the words, then `onward resume`.

The words come as make hands them on, in the environment: RUN_ID, FLOW, and START_STEP or STEP.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

ONWARD = (sys.executable, "-m", "onward")
USAGE = 2


def words(action: str) -> list[str]:
    """The command line that a target stands for; ValueError says what is missing."""
    given = {name: os.environ.get(name, "") for name in ("RUN_ID", "FLOW", "START_STEP", "STEP")}
    needed = ("RUN_ID", "FLOW", "STEP") if action == "retry" else ("RUN_ID", "FLOW")
    missing = [name for name in needed if not given[name]]
    if missing:
        asked = " ".join(f"{name}=..." for name in needed)
        raise ValueError(f"{', '.join(missing)} must be given: make stepwise-{action} {asked}")
    if action == "retry":
        return ["resume", given["RUN_ID"], "--retry", "--step", given["STEP"]]
    start = ["--from", given["START_STEP"]] if given["START_STEP"] else []
    return ["resume", given["RUN_ID"], *start]


def check_flow(run_id: str, flow: str) -> None:
    """ValueError unless the run is one of this flow."""
    shown = subprocess.run([*ONWARD, "show", run_id, "--json"], stdout=subprocess.PIPE, text=True)
    found = json.loads(shown.stdout)
    if "error" in found:
        raise ValueError(found["error"]["message"])
    if found["pipeline"] != flow:
        raise ValueError(f"run {run_id} is of the flow {found['pipeline']!r}, not {flow!r}.")


def main() -> int:
    try:
        command = words(sys.argv[1])
        check_flow(os.environ["RUN_ID"], os.environ["FLOW"])
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE
    return subprocess.run([*ONWARD, *command]).returncode


if __name__ == "__main__":
    sys.exit(main())
