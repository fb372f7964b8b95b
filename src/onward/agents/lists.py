"""What `onward models` and `onward tools` show, as values.

They are apart from the code that fills them, so that the commands that print replies import no more than
this.
"""

from __future__ import annotations

from typing import TypedDict


class ProviderShown(TypedDict):
    """A provider of models, and why its models cannot be asked, if they cannot."""

    name: str
    format: str
    base_url: str
    is_set_up: bool
    problem: str | None


class ProgramShown(TypedDict):
    """A program that may work as an agent: `found` is where its command is, null if it is nowhere.

    `is_own`: the settings describe it.
    """

    name: str
    format: str
    command: str
    is_own: bool
    found: str | None
    problem: str | None


class RatesShown(TypedDict):
    """Prices in millionths of a dollar per million model tokens."""

    input_micro: int
    output_micro: int
    cached_input_micro: int
    cache_write_micro: int
    cache_write_1h_micro: int


class LongRatesShown(RatesShown):
    """The prices of a request with much input."""

    above: int


class ModelPriced(RatesShown):
    """A model with its prices."""

    model: str
    is_own: bool
    as_of: str | None
    long: LongRatesShown | None


class ModelList(TypedDict):
    """The providers and programs, the models that have a price, and the model of agents that name none."""

    default: str | None
    problem: str | None
    providers: list[ProviderShown]
    programs: list[ProgramShown]
    models: list[ModelPriced]


class ToolShown(TypedDict):
    """A tool that agents may be allowed to use, and the rules that hold for it here."""

    name: str
    description: str
    origin: str
    approval: bool
    repeatable: bool
    time_limit_s: float
    output_characters: int


class ToolList(TypedDict):
    """The tools that are set up, the default of `allowed_tools`, names in settings that mean no tool, and
    what could not be asked for.
    """

    tools: list[ToolShown]
    default: list[str]
    unknown: list[str]
    failed: list[str]
