"""The page about the server is true: its lines work as they are printed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from onward.server.settings import ServeSettings
from tests.cli.shell import Shell
from tests.server.serving import serving

PAGE = (Path(__file__).parents[2] / "docs/server.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_curl_lines_of_the_page_work_as_printed(shell: Shell) -> None:
    block, others = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    del shell.environment["ONWARD_DB"]
    shell.db = ".onward/onward.db"
    with serving(shell, allow_shell=False) as server:
        first, *lines = (block + others).replace(":8765", f":{server.port}").splitlines()
        assert len(lines) == 7
        told = [
            subprocess.run(
                ["sh", "-c", f"{first}\n{line.replace('curl ', 'curl -sS ', 1)}"],
                cwd=shell.directory,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for line in lines
        ]
        added, made, waited, answered, events, said, status = map(json.loads, told)
    assert added["name"] == "hello"
    assert made["run"]["id"] == "first"
    assert (waited["status"], [one["text"] for one in waited["gates"]]) == ("waiting", ["Ship it?"])
    assert answered["id"] == "first"
    assert [one["kind"] for one in events["events"]][:2] == ["RunCreated", "RunClaimed"]
    assert said["chatId"] == "c1"
    assert status["executions"] == []


def test_every_setting_is_on_the_page() -> None:
    rows = " ".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    assert [name for name in ServeSettings.__struct_fields__ if f"`{name}`" not in rows] == []
