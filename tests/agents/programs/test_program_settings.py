"""Which programs there are, and what the settings may say of them."""

from __future__ import annotations

from typing import Any

import pytest

from onward.agents.programs.program import KNOWN_PROGRAMS, read_programs
from onward.errors import InvalidInput


def found(table: dict[str, Any]) -> Any:
    return read_programs(table, lambda path: f"/project/{path}")


def test_three_programs_need_no_settings_and_each_has_its_own_key() -> None:
    keys = {name: program.keys for name, program in found({}).items()}
    assert keys == {
        "claude-code": ("ANTHROPIC_API_KEY",),
        "codex": ("OPENAI_API_KEY", "CODEX_API_KEY"),
        "gemini": ("GEMINI_API_KEY",),
    }


def test_settings_add_arguments_and_variables_to_a_known_program() -> None:
    program = found({"codex": {"arguments": ["--sandbox", "workspace-write"], "env": ["NPM_*"]}})["codex"]
    assert program.command == KNOWN_PROGRAMS["codex"].command
    assert program.arguments == ("--sandbox", "workspace-write")
    assert program.variables == ("OPENAI_API_KEY", "CODEX_API_KEY", "NPM_*")


def test_a_command_of_the_projects_own_speaks_our_lines_and_is_found_from_the_project() -> None:
    program = found({"mine": {"command": ["./agent", "./x"]}})["mine"]
    assert (program.format, program.command) == ("lines", ("/project/./agent", "./x"))
    assert found({"mine": {"command": ["agent"]}})["mine"].command == ("agent",)
    careful = found({"careful": {"format": "claude-code", "arguments": ["--permission-mode", "plan"]}})
    assert careful["careful"].command == ("claude",)
    assert careful["careful"].name == "careful"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"mine": {}}, "has no command"),
        ({"mine": {"command": "./agent"}}, "write a list of strings"),
        ({"mine": {"command": ["./agent"], "format": "xml"}}, "write one of claude-code, codex"),
        ({"mine": {"command": ["./agent"], "flags": []}}, "sets flags; known settings are"),
        ({"mine": {"command": ["./agent"], "env": ["A=B"]}}, "is not a variable name"),
        ({"mine": {"command": ["./agent"], "reports_cost": 1}}, "write true or false"),
        ({"mine": "./agent"}, r"write a table \[programs.mine\]"),
        ({"-x": {"command": ["./agent"]}}, "an invalid name"),
    ],
)
def test_a_program_that_is_described_badly_is_refused(table: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        found(table)
