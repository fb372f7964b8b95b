"""`onward tools`: the tools of agents that are set up, their rules, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator

from onward.agents.lists import ToolList
from onward.agents.tools.toolbox import list_tools
from onward.cli.exits import FINE
from onward.cli.opening.operating import toolbox_of
from onward.cli.options import COMMON, Common, Out
from onward.cli.print.text import table

NO_DEFAULT = "a node gets the tools that it names in allowed_tools; without it, none"


async def tools(*, common: Common = COMMON, out: Out) -> int:
    """Show which tools agents may be allowed to use, and under which rules.

    The rules are those of the tools, with what [tools.NAME] in onward.toml changes (docs/configuration.md).
    """
    async with toolbox_of(common, out) as toolbox:
        found = await list_tools(toolbox)
    if out.is_json:
        out.value(found)
        return FINE
    for line in _lines(found):
        out.say(line)
    return FINE


def _lines(found: ToolList) -> Iterator[str]:
    rows = [
        (
            one["name"],
            one["origin"],
            "asks first" if one["approval"] else "no",
            "yes" if one["repeatable"] else "no",
            f"{one['time_limit_s']:g} s",
            f"{one['output_characters']:,}",
        )
        for one in found["tools"]
    ]
    yield from table(("TOOL", "FROM", "APPROVAL", "REPEATABLE", "TIME LIMIT", "CHARACTERS SHOWN"), rows)
    yield ""
    default = ", ".join(found["default"])
    yield f"nodes without allowed_tools get: {default}" if default else NO_DEFAULT
    if found["unknown"]:
        yield f"onward.toml names tools that are not known now: {', '.join(found['unknown'])}"
    yield from found["failed"]
