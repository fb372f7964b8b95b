"""Agents as the settings describe them: models, programs and their handler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from onward.config.environment import own_environment, tool_environment
from onward.config.settings import Settings

if TYPE_CHECKING:
    from onward.agents.keys import Keys
    from onward.agents.listed import ProgramShown
    from onward.agents.models import Models
    from onward.agents.prices import Prices
    from onward.agents.programs.program import Program
    from onward.agents.tools.toolbox import Toolbox
    from onward.handlers.port import Handler
    from onward.redact.redactor import Redactor


def open_models(settings: Settings, redactor: Redactor) -> Models:
    """The models that settings describe; InvalidInput if they do so badly. Nothing is connected yet.

    Every key is known to the `redactor` from the moment it is read.
    """
    from onward.agents.models import Models
    from onward.agents.providers import read_providers
    from onward.clock import SystemClock

    providers = read_providers(settings.providers, base_urls=settings.base_urls)
    keys = open_keys(settings, redactor)
    return Models(providers, keys=keys, clock=SystemClock(), default=settings.model)


def open_keys(settings: Settings, redactor: Redactor) -> Keys:
    """The keys of providers and servers. Each is known to the `redactor` from the moment it is read."""
    from onward.agents.keys import Keys
    from onward.process import SystemSpawn

    directory = settings.project.path(".")
    return Keys(variables=own_environment, spawn=SystemSpawn(), directory=directory, known_as=redactor.add)


def make_agent(models: Models | None, settings: Settings, toolbox: Toolbox, redactor: Redactor) -> Handler:
    """The handler of agent steps: it asks these models, which may use these tools, or lets programs work."""
    from onward.agents.programs.choosing import AgentSteps
    from onward.agents.programs.handler import ProgramHandler
    from onward.agents.step.handler import AgentHandler
    from onward.clock import SystemClock, SystemDice
    from onward.process import SystemSpawn
    from onward.redact.stream import cleaner_of

    prices, clock, dice = open_prices(settings), SystemClock(), SystemDice()
    spawn = SystemSpawn(cleaner=cleaner_of(lambda: redactor))
    programs = ProgramHandler(open_programs(settings), spawn, prices, clock, dice, tool_environment)
    return AgentSteps(
        None
        if models is None
        else AgentHandler(models, prices, clock, dice, toolbox, summary_model=settings.summary_model),
        programs,
    )


def open_programs(settings: Settings) -> Mapping[str, Program]:
    """The programs that may work as agents, by name; InvalidInput if settings describe one badly."""
    from onward.agents.programs.program import read_programs

    return read_programs(settings.programs, settings.project.path)


def programs_here(settings: Settings) -> list[ProgramShown]:
    """The programs that may work as agents, and where they are on this machine."""
    from onward.agents.programs.listing import list_programs

    path = tool_environment().get("PATH", "")
    return list_programs(open_programs(settings), own=settings.programs, path=path)


def has_programs(settings: Settings) -> bool:
    """Whether a program that works as an agent is described, or found on this machine."""
    return bool(settings.programs) or any(one["found"] for one in programs_here(settings))


def open_prices(settings: Settings) -> Prices:
    """The prices of this version, with those of the settings in their place."""
    from onward.agents.prices import read_prices

    return read_prices(settings.prices)
