"""`python examples/run.py review`: run an example, kill it with kill -9 halfway, resume it, and count.

The agents ask a model on this machine that plays `script.json` of the example. If ONWARD_MODEL names a model,
they ask that one instead, with your key; nothing else changes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ONWARD = [sys.executable, "-m", "onward"]
ENDPOINT = [
    sys.executable,
    "-m",
    "onward.testing.model_endpoint",
    "script.json",
    "--ledger",
    "requests.jsonl",
]
EXAMPLES = {"review": 8, "research": 17}
"""After how many answers, of the model and of tools, the process is killed: the next one never ends."""
REAL_ANSWERS = 4
"""The same for a real model, which may need fewer."""
UNFINISHED = 75
PATIENCE_S = 120


def main() -> int:
    """Exit 0 if the example completed and nothing that was answered was asked or done again."""
    parser = argparse.ArgumentParser(description="Run an example, kill it halfway, resume it, and count.")
    parser.add_argument("example", choices=EXAMPLES)
    parser.add_argument("--keep", metavar="DIR", help="work in this new directory, and leave it there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        project = Path(given.keep or Path(directory, given.example))
        if project.exists():
            parser.error(f"{project} exists; name a new directory.")
        shutil.copytree(
            HERE / given.example, project, ignore=shutil.ignore_patterns(".onward", "__pycache__")
        )
        with model(project) as environment:
            return Playing(given.example, project, environment).play()


@contextmanager
def model(project: Path) -> Iterator[dict[str, str]]:
    """The environment in which agents find their model."""
    environment = {name: value for name, value in os.environ.items() if name != "ONWARD_DB"}
    if "ONWARD_MODEL" in environment:
        yield environment
        return
    with subprocess.Popen(ENDPOINT, cwd=project, stdout=subprocess.PIPE, text=True) as endpoint:
        assert endpoint.stdout is not None
        try:
            address = endpoint.stdout.readline().strip()
            yield environment | {"OPENAI_BASE_URL": address, "ONWARD_MODEL": "openai:scripted"}
        finally:
            endpoint.terminate()


class Playing:
    """An example, step by step."""

    def __init__(self, name: str, project: Path, environment: dict[str, str]) -> None:
        self.name, self.project, self.environment = name, project, environment

    def play(self) -> int:
        say(f"1. Start {self.name}.dot.")
        run = self.start("run", f"{self.name}.dot", "--run-id", self.name, "--answers", "wait")
        is_real = "ONWARD_MODEL" in os.environ
        self.wait_for_answers(run, REAL_ANSWERS if is_real else EXAMPLES[self.name])
        say(f"2. kill -9 (process {run.pid}) in the middle of a request.")
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
        before = self.calls()
        self.show("status")
        say("3. Resume. What was answered is read from the log.")
        code = self.show("resume", self.name, "--answers", "wait")
        is_asked = code == UNFINISHED
        if is_asked:
            say("4. A tool asks first: this is what it would do. Allow it.")
            self.show("answer")
            code = self.show("answer", self.name, "--approve")
        say(f"{5 if is_asked else 4}. What every call took. A call that the kill cut off was tried twice.")
        self.show("calls", self.name)
        return max(code, self.judge(before))

    def judge(self, before: list[dict[str, Any]]) -> int:
        """Compare the log of the run with what was answered before the kill."""
        after = {(call["step"], call["call"]): call for call in self.calls()}
        answered = [call for call in before if call["state"] == "ok"]
        again = sum(after[call["step"], call["call"]] != call for call in answered)
        verified = self.show("verify", self.name)
        kinds = Counter(call["type"] for call in after.values())
        print(f"\n   requests: {kinds['model']}, uses of tools: {kinds['tool']}")
        print(f"   answered before the kill: {len(answered)}, of these asked or done again: {again}")
        return 1 if again or verified else 0

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        print("   $ onward", *words, flush=True)
        return subprocess.Popen([*ONWARD, *words], cwd=self.project, env=self.environment)

    def show(self, *words: str) -> int:
        """Run a command that prints for people; its exit code."""
        code = self.start(*words).wait()
        if code not in (0, UNFINISHED):
            sys.exit(f"onward {' '.join(words)} failed with exit code {code}.")
        return code

    def calls(self) -> list[dict[str, Any]]:
        command = [*ONWARD, "calls", self.name, "--json"]
        done = subprocess.run(command, cwd=self.project, env=self.environment, capture_output=True)
        return json.loads(done.stdout) if done.returncode == 0 else []

    def wait_for_answers(self, run: subprocess.Popen[bytes], count: int) -> None:
        began = time.monotonic()
        while sum(call["state"] == "ok" for call in self.calls()) < count:
            if run.poll() is not None:
                sys.exit(f"the run stopped before it had {count} answers; it had nothing to be killed in.")
            if time.monotonic() - began > PATIENCE_S:
                sys.exit(f"the run had fewer than {count} answers after {PATIENCE_S} s.")
            time.sleep(0.05)


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
