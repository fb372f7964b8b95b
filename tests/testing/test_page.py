"""docs/testing.md says what is true: its programs run, its scripts are scripts, and it names every field."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from onward.agents.model import TokenUsage, ToolCall
from onward.testing.model_endpoint import LedgerEntry
from onward.testing.script import ModelScript, ScriptedReply, ScriptPrompt, ScriptRule, read_script

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
FLOWS, _, AGENT, MODEL, CLOCK, POSTGRES, STORE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
KEY = "poem/write#1/m1"


def printed(program: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory,
        env={"PATH": os.defpath, "PYTHONPATH": os.pathsep.join(sys.path), "HOME": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "output"),
    [
        pytest.param(AGENT, "completed Pack a hat. True\n2 requests\n", id="agent"),
        pytest.param(
            MODEL,
            f"completed Roses are red.\n['{KEY}', '{KEY}']\nTrue and no time was spent on it\n",
            id="model",
        ),
        pytest.param(CLOCK, "3600.0\n1\n0\n", id="clock"),
        pytest.param(POSTGRES, "completed\n", id="postgres", marks=pytest.mark.postgres),
    ],
)
def test_a_program_on_the_page_prints_what_the_page_says(tmp_path: Path, program: str, output: str) -> None:
    assert printed(program, tmp_path) == output


def passed(directory: Path, *options: str, path: str = "") -> str:
    """What pytest prints about the tests in a directory, all of which pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    environment = {"PATH": os.defpath, "PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_the_tests_of_a_flow_on_the_page_pass_for_what_init_writes(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "onward", "init", "shop"], cwd=tmp_path, check=True, capture_output=True
    )
    (tmp_path / "shop/test_on_the_page.py").write_text(FLOWS)
    assert "3 passed" in passed(tmp_path / "shop", "test_on_the_page.py")


@pytest.mark.slow
def test_the_suite_hears_a_store_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "test_my_store.py").write_text(STORE)
    assert re.search(r"^\d+ passed", passed(tmp_path, "-k", "lease", path=str(ROOT)), re.MULTILINE)


def test_the_scripts_on_the_page_are_scripts() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert len(read_script(example, where="the page").rules) == 3
    (inside,) = re.findall(r'SCRIPT = r"""\n(.*?)"""', AGENT, re.DOTALL)
    assert len(read_script(inside, where="the page").rules) == 2


@pytest.mark.parametrize(
    "kind", [ModelScript, ScriptRule, ScriptedReply, ScriptPrompt, ToolCall, TokenUsage, LedgerEntry]
)
def test_every_field_is_on_the_page(kind: type[msgspec.Struct]) -> None:
    ours = {"is_estimated"}  # set by the client where the provider does not count
    assert [name for name in kind.__struct_fields__ if f"`{name}`" not in PAGE and name not in ours] == []


def test_the_defaults_on_the_page_are_the_defaults() -> None:
    said = dict(re.findall(r"^\| `(\w+)` \| .* \| (\S+) \|$", PAGE, re.MULTILINE))
    checked = {
        field.name: said[field.name].strip("`")
        for field in msgspec.structs.fields(ScriptedReply)
        if field.name in said and isinstance(field.default, bool | int | float)
    }
    assert len(checked) == 9
    reply = ScriptedReply()
    assert checked == {name: msgspec.json.encode(getattr(reply, name)).decode() for name in checked}
