"""Questions as a person reads them: what is asked, what it is about, and what can be answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onward.cli.print.text import clean, count, local_time, one_line
from onward.model.ids import is_in_step
from onward.model.values import read_rfc3339

ABOUT_LINES = 20
DESCRIPTION_CHARACTERS = 500
COLORS = ("colors", "colours")


def gate_lines(gate: Mapping[str, Any], *, is_whole: bool = False) -> Iterator[str]:
    """A question, what it is about, its possible answers, and its deadline; `gate` is from `view_gate`.

    Unless `is_whole`, a long text that it is about is cut.
    """
    yield f"{gate['gate']}: {clean(gate['text'])}"
    yield from question_lines(gate, is_whole=is_whole)


def question_lines(gate: Mapping[str, Any], *, is_whole: bool = False) -> Iterator[str]:
    """The same without its text."""
    yield from _about(gate["about"], is_whole=is_whole)
    yield from _offers(gate)


def _about(text: str, *, is_whole: bool = False) -> Iterator[str]:
    lines = clean(text).strip().splitlines()
    shown = lines if is_whole else lines[:ABOUT_LINES]
    for line in shown:
        yield f"  | {line}".rstrip()
    if len(shown) < len(lines):
        yield f"  | … {count(len(lines) - len(shown), 'more line')}; `onward answer` shows all"


def _offers(gate: Mapping[str, Any]) -> Iterator[str]:
    if gate["type"] == "freeform":
        yield "  answer in your own words"
    else:
        for choice in gate["choices"]:
            yield f"  {choice['key']:<3} {one_line(choice['label'])}{_leads_to(gate, choice)}"
            yield from (f"      {line}" for line in _data(choice["data"]))
    if gate["deadline"]:
        then = f", then {_rule(gate)}" if "on_timeout" in gate else ""  # a list of gates has no rules
        yield f"  until {local_time(read_rfc3339(gate['deadline']))}{then}"


def _data(data: Mapping[str, Any]) -> Iterator[str]:
    """What a person may want to know of a choice before choosing it; the rest is for later steps."""
    if isinstance(data.get("description"), str):
        yield one_line(data["description"], DESCRIPTION_CHARACTERS)
    for name in COLORS:
        if isinstance(data.get(name), list | dict):
            yield f"{name}: {' '.join(_swatches(data[name]))}"


def _swatches(colors: Sequence[Any] | Mapping[str, Any]) -> Iterator[str]:
    """Each colour as it is written, with its name if it has one."""
    pairs = colors.items() if isinstance(colors, Mapping) else (("", color) for color in colors)
    for name, color in pairs:
        yield one_line(f"{name} {color}" if name else str(color))


def _leads_to(gate: Mapping[str, Any], choice: Mapping[str, Any]) -> str:
    """Where a choice leads; the answer to a question of a step goes to that step."""
    if choice["to"]:
        return f"  → {one_line(choice['to'])}"
    return "" if is_in_step(gate["gate"]) else "  → ends the run as rejected"


def _rule(gate: Mapping[str, Any]) -> str:
    match gate["on_timeout"]:
        case "default":
            default = next(choice for choice in gate["choices"] if choice["key"] == gate["default"])
            return f"it takes {one_line(default['label'])}"
        case "reject":
            return "it is rejected"
        case _:
            return "it stays open"
