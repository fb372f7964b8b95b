"""`onward models`: the providers that are set up, the models that have a price, and the default."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from onward.agents.lists import ModelList, ModelPriced, RatesShown
from onward.agents.models import list_models
from onward.agents.prices import read_prices, shipped_prices
from onward.agents.providers import read_providers, split_name
from onward.cli.exits import FINE
from onward.cli.opening.operating import programs_of
from onward.cli.options import COMMON, Common, Out
from onward.cli.print.text import count, table
from onward.config import load_settings, own_environment
from onward.model.limits import shown_amount

NO_DEFAULT = "no default model: set ONWARD_MODEL, or `model` under [agents] in onward.toml"


def models(
    *,
    all: Annotated[bool, Parameter(help="Prices of providers that are not set up, too.")] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Show which providers of models and which programs are set up, what models cost, and the default model.

    No provider is asked, no key is read and no program started: a key that is there may still be refused.
    """
    settings = load_settings(db=common.db, app=common.app)
    found = list_models(
        read_providers(settings.providers, base_urls=settings.base_urls),
        read_prices(settings.prices).models,
        own=settings.prices,
        sources=shipped_prices().sources,
        default=settings.model,
        variables=own_environment(),
        directory=settings.project.path("."),
        programs=programs_of(settings),
    )
    if out.is_json:
        out.value(found)
        return FINE
    for line in _lines(found, shows_all=all):
        out.say(line)
    return FINE


def _lines(found: ModelList, *, shows_all: bool) -> Iterator[str]:
    providers = found["providers"]
    rows = [
        (one["name"], one["format"], one["base_url"], f"no: {one['problem']}" if one["problem"] else "yes")
        for one in providers
    ]
    yield from table(("PROVIDER", "FORMAT", "ADDRESS", "SET UP"), rows)
    yield ""
    programs = [
        (one["name"], one["format"], one["found"] or f"no: {one['problem']}") for one in found["programs"]
    ]
    yield from table(("PROGRAM", "FORMAT", "FOUND"), programs)
    yield ""
    yield _default(found)
    yield ""
    set_up = {one["name"] for one in providers if one["is_set_up"]}
    shown = [one for one in found["models"] if shows_all or split_name(one["model"])[0] in set_up]
    if shown:
        yield from table(("MODEL", "INPUT", "CACHED", "CACHE WRITE", "OUTPUT", "AS OF"), list(_prices(shown)))
        yield "in dollars per million model tokens; a model that is not listed has no price"
    left = len(found["models"]) - len(shown)
    if left:
        yield f"{count(left, 'price')} of providers that are not set up: onward models --all"


def _default(found: ModelList) -> str:
    if found["default"] is None:
        return NO_DEFAULT
    problem = f", which cannot be asked: {found['problem']}" if found["problem"] else ""
    return f"default model: {found['default']}{problem}"


def _prices(models: list[ModelPriced]) -> Iterator[tuple[str, ...]]:
    for one in models:
        as_of = "onward.toml" if one["is_own"] else one["as_of"] or "–"
        yield (one["model"], *_amounts(one), as_of)
        if (long := one["long"]) is not None:
            yield (f"… above {long['above']:,} tokens of input", *_amounts(long), as_of)


def _amounts(rates: RatesShown) -> Iterator[str]:
    for name in ("input_micro", "cached_input_micro", "cache_write_micro", "output_micro"):
        yield shown_amount("cost", rates[name])
