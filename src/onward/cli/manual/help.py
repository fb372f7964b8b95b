"""The help of a command, made from its page and its signature."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from inspect import Parameter, cleandoc, signature
from textwrap import fill

from onward.cli.manual.deciding import DECIDING
from onward.cli.manual.looking import LOOKING
from onward.cli.manual.operating import OPERATING
from onward.cli.manual.page import Manual
from onward.cli.manual.running import RUNNING

WIDTH = 78
MANUAL: Mapping[str, Manual] = {**RUNNING, **LOOKING, **DECIDING, **OPERATING}
_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)


def description(place: str) -> str:
    """The docstring of a command, given as `module:function`, with its paragraphs on one line each."""
    module, _, function = place.partition(":")
    said = cleandoc(getattr(import_module(module), function).__doc__ or "")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in said.split("\n\n"))


def usage(name: str, place: str) -> str:
    """The line that says what a command takes, with a name for every argument; options go last, as typed."""
    module, _, function = place.partition(":")
    found = signature(getattr(import_module(module), function)).parameters.values()
    taken = MANUAL[name].takes or " ".join(_taken(one) for one in found if one.kind in _BY_PLACE)
    return " ".join(filter(None, ("Usage: onward", name, taken, "[OPTIONS]")))


def _taken(parameter: Parameter) -> str:
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return f"[{parameter.name.upper()}...]"
    return parameter.name.upper() if parameter.default is Parameter.empty else f"[{parameter.name.upper()}]"


def epilogue(name: str) -> str:
    """What stands below the flags in the help of a command."""
    manual = MANUAL.get(name)
    if manual is None:
        return ""
    examples = "\n".join(f"  {line}\n      {says}" for line, says in manual.examples.items())
    codes = "\n".join(
        fill(says, WIDTH, initial_indent=f"  {code:<6}", subsequent_indent=" " * 8)
        for code, says in manual.exits.items()
    )
    return f"Examples:\n{examples}\n\nExit codes:\n{codes}"
