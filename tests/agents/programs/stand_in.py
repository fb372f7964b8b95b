"""A stand-in for programs that work as agents: it prints what its script says, and keeps a ledger.

    python stand_in.py DIRECTORY ARGUMENTS…

`DIRECTORY/script.json` is a list of plays, one for each start; the last is played again. A play has `print`
(a list: objects are printed as JSON lines, texts as they are), `stderr`, `exit`, `write` (files to leave in
the working directory), `hangs` (never end by itself), `dies` (end by SIGKILL), and `child` (leave a process
behind, whose id is written to this file). `DIRECTORY/ledger.jsonl` has one line for each start.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def play(directory: Path, argv: list[str]) -> int:
    ledger = directory / "ledger.jsonl"
    begun = len(ledger.read_text().splitlines()) if ledger.exists() else 0
    entry = {"argv": argv, "stdin": sys.stdin.read(), "env": dict(os.environ), "cwd": os.getcwd()}
    with ledger.open("a") as file:
        file.write(json.dumps(entry) + "\n")
    plays: list[dict[str, Any]] = json.loads((directory / "script.json").read_text())
    one = plays[min(begun, len(plays) - 1)]
    for name, content in one.get("write", {}).items():
        Path(name).write_text(content)
    if "child" in one:
        subprocess.Popen(
            ["/bin/sh", "-c", f"echo $$ > {one['child']}; exec sleep 1000"], start_new_session=True
        )
    for line in one.get("print", []):
        sys.stdout.write(line if isinstance(line, str) else json.dumps(line) + "\n")
        sys.stdout.flush()
    sys.stderr.write(one.get("stderr", ""))
    sys.stderr.flush()
    if one.get("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    while one.get("hangs"):
        time.sleep(0.05)
    return int(one.get("exit", 0))


if __name__ == "__main__":
    sys.exit(play(Path(sys.argv[1]), sys.argv[2:]))
