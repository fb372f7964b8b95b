"""`make demo`: talk to the website builder; hit a limit, raise it, kill -9, "continue?", choose, and count.

The agents ask a model on this machine that plays a script and writes down every request. At the end that list
shows what was paid: no answer was given twice. The site, its database and the list stay in build/demo,
or in the directory that is given as an argument, until the next demo.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "build/demo"
PAGE = ROOT / "web/dist/index.html"
ONWARD = [sys.executable, "-m", "onward"]
CHAT = "bakery"
MESSAGE = "Build a website for my bakery"
LOW, HIGH = "2200", "500000"
"""Tokens of the chat: enough for the research, and enough for everything."""
DESIGNER = "You are the designer"
CUT_OFF = 3
"""The request that is cut off: two are the researcher's."""
PATIENCE_S = 120


def main() -> int:
    """Exit 0 if the site was built and no answer was paid for twice."""
    project = Path(sys.argv[1] if len(sys.argv) > 1 else KEPT, CHAT).absolute()
    shutil.rmtree(project, ignore_errors=True)
    begin = [sys.executable, str(ROOT / "examples/website/begin.py"), str(project)]
    subprocess.run(begin, check=True, stdout=subprocess.DEVNULL)
    stall_once(project / "script.json")
    with model(project) as environment:
        demo = Demo(project, environment)
        code = demo.play()
        if sys.stdout.isatty():
            demo.show_page()
        return code


def stall_once(script: Path) -> None:
    """Let the designer's first answer never come to its end, so that there is something to kill."""
    rules = json.loads(script.read_text())["rules"]
    stalls = {"text": "This answer never comes to its end.", "break_after": 2, "break_with": "stall"}
    script.write_text(json.dumps({"rules": [{"contains": DESIGNER, "times": 1, "reply": stalls}, *rules]}))


@contextmanager
def model(project: Path) -> Iterator[dict[str, str]]:
    """The environment in which agents find the model that plays the script."""
    command = [sys.executable, "-m", "onward.testing.model_endpoint", "script.json"]
    command += ["--ledger", "requests.jsonl"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONWARD_")}
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True) as endpoint:
        assert endpoint.stdout is not None
        try:
            address = endpoint.stdout.readline().strip()
            yield kept | {"OPENAI_BASE_URL": address, "ONWARD_MODEL": "openai:scripted"}
        finally:
            endpoint.terminate()


class Demo:
    """The demo, step by step."""

    def __init__(self, project: Path, environment: dict[str, str]) -> None:
        self.project, self.environment = project, environment
        self.stops: list[int] = []
        """At each stop, how many answers there were."""

    def play(self) -> int:
        """What a person would type, and what comes of it."""
        print("The model is a script on this machine: no key is needed, and nothing is paid.", flush=True)
        say("1. Register the builder, and allow the chat only a few tokens.")
        self.show("pipelines", "add", "website.dot")
        self.show("limits", "set", f"chat/{CHAT}", "tokens", LOW)
        say("2. Ask for a website. The message decides the plan; then the limit stops the run.")
        self.chat(MESSAGE).wait()
        self.note_stop()
        say("3. Raise the limit and send any message: the run continues, and no answer is paid for twice.")
        self.show("limits", "set", f"chat/{CHAT}", "tokens", HIGH)
        running = self.chat("continue?")
        self.wait_for_requests(CUT_OFF)
        say(f"4. kill -9 (process {running.pid}) in the middle of the designer's answer.")
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        self.note_stop()
        self.show("status")
        say('5. "continue?" once more: the same run is resumed, and asks which direction to take.')
        self.chat("continue?").wait()
        say("6. Choose one. The run continues to its end.")
        self.chat("calm").wait()
        say("7. The proof: the log is intact, and these are the model's own counts of its requests.")
        self.show("verify")
        return self.judge()

    def judge(self) -> int:
        """Count the answers that were given to the end, by the request that they are for."""
        entries = self.requests()
        paid = Counter(entry["idempotency_key"] for entry in entries.values() if entry["is_whole"])
        twice = sum(times - 1 for times in paid.values())
        page = self.project / "site/index.html"
        print("   $ git -C site log --oneline", flush=True)
        subprocess.run(
            ["git", "--no-pager", "-C", str(self.project / "site"), "log", "--oneline"], check=True
        )
        cut_off = len(entries) - paid.total()
        print(f"\n   requests: {len(entries)}, answered to the end: {paid.total()}, cut off: {cut_off}")
        print(f"   paid twice: {twice}")
        again, tokens = self.naive()
        print(f"   starting over at each stop would have paid {again} answers twice ({tokens:,} tokens)")
        print(f"\n   The site is {page}.", flush=True)
        return 0 if twice == 0 and page.is_file() else 1

    def show_page(self) -> None:
        """Serve the run to a browser until Ctrl-C; the page is built first if it is not there."""
        say("8. Look at it: open the sign-in link in a browser; Ctrl-C ends.")
        if not PAGE.is_file() and not build_page():
            print("   The page is not built; `make web` says what is missing. The API is there.", flush=True)
        server = self.start("serve", "--port", "0")
        try:
            server.wait()
        except KeyboardInterrupt:  # which the server got, too
            server.wait()

    def note_stop(self) -> None:
        """Remember how much was answered when the run stopped."""
        self.stops.append(sum(entry["is_whole"] for entry in self.requests().values()))

    def naive(self) -> tuple[int, int]:
        """The answers, and their tokens, that would have been paid again by starting over at each stop."""
        (run,) = self.ask("status")
        calls = [call for call in self.ask("calls", run["id"]) if call["usage"] and call["ended_at"]]
        calls.sort(key=lambda call: call["ended_at"])
        tokens = [call["usage"]["input"] + call["usage"]["output"] for call in calls]
        return sum(self.stops), sum(sum(tokens[:answered]) for answered in self.stops)

    def ask(self, *words: str) -> Any:
        """What a command says as JSON."""
        command = [*ONWARD, *words, "--json"]
        return json.loads(subprocess.check_output(command, cwd=self.project, env=self.environment))

    def chat(self, text: str) -> subprocess.Popen[bytes]:
        """Say something in the chat, and execute what follows."""
        return self.start("chat", CHAT, text, "--watch", "--answers", "wait")

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        print("   $ onward", *(f'"{word}"' if set(word) & {" ", "?"} else word for word in words), flush=True)
        return subprocess.Popen([*ONWARD, *words], cwd=self.project, env=self.environment)

    def show(self, *words: str) -> None:
        """Run a command that prints for people."""
        code = self.start(*words).wait()
        if code != 0:
            sys.exit(f"onward {' '.join(words)} failed with exit code {code}.")

    def requests(self) -> dict[int, dict[str, Any]]:
        """Every request that the model received, as it last stood."""
        file = self.project / "requests.jsonl"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return {entry["number"]: entry for entry in map(json.loads, lines)}

    def wait_for_requests(self, count: int) -> None:
        began = time.monotonic()
        while len(self.requests()) < count:
            if time.monotonic() - began > PATIENCE_S:
                sys.exit(f"the model was asked fewer than {count} times in {PATIENCE_S} s.")
            time.sleep(0.02)


def build_page() -> bool:
    """Whether the page could be built here."""
    if os.environ.get("ONWARD_NO_WEB"):
        return False
    print("   building the page, once …", flush=True)
    return subprocess.run(["make", "--silent", "web"], cwd=ROOT, capture_output=True).returncode == 0


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
