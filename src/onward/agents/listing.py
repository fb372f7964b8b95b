"""Which providers are set up and which models have a price: what `onward models` shows. No key is read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from onward.agents.listed import ModelList, ModelPriced, ProgramShown, ProviderShown, RatesShown
from onward.agents.others import INSTALL, is_installed
from onward.agents.prices import Price, PriceSource, Rates
from onward.agents.providers import Provider, full_name, split_name
from onward.errors import InvalidInput
from onward.model.values import OTHER_FORMAT


def list_models(
    providers: Mapping[str, Provider],
    prices: Mapping[str, Price],
    *,
    own: Mapping[str, object],
    sources: Mapping[str, PriceSource],
    default: str | None,
    variables: Mapping[str, str],
    directory: str = ".",
    programs: Sequence[ProgramShown] = (),
) -> ModelList:
    """All of it; `own` are the prices of the settings, `variables` those of this process.

    `directory` is where the paths of keys begin.
    """
    named, problem = _default(default, providers)
    shown = [
        _provider(provider, _problem(provider, variables, directory))
        for _, provider in sorted(providers.items())
    ]
    why = {one["name"]: one["problem"] for one in shown}
    if named is not None and problem is None:
        problem = why[split_name(named)[0]]
    models = [_priced(name, price, own, sources) for name, price in sorted(prices.items())]
    return {
        "default": named,
        "problem": problem,
        "providers": shown,
        "programs": [*programs],
        "models": models,
    }


def _default(default: str | None, providers: Mapping[str, Provider]) -> tuple[str | None, str | None]:
    """The default's full name, and what is wrong with it."""
    try:
        return full_name("", default=default, known=providers), None
    except InvalidInput as error:
        return default, str(error)


def _provider(provider: Provider, problem: str | None) -> ProviderShown:
    return {
        "name": provider.name,
        "format": provider.format,
        "base_url": provider.base_url,
        "is_set_up": problem is None,
        "problem": problem,
    }


def _problem(provider: Provider, variables: Mapping[str, str], directory: str) -> str | None:
    """Why a provider cannot be asked, as far as can be told without its key."""
    if provider.format == OTHER_FORMAT and not is_installed():
        return f"pydantic-ai is not installed: {INSTALL}"
    kind, _, rest = (provider.key or "").partition(":")
    if not provider.needs_key or provider.key is None:
        return None
    if kind == "env" and not variables.get(rest):
        return f"the variable {rest}, which should hold its key, is not set"
    if kind == "file" and not os.path.exists(os.path.join(directory, os.path.expanduser(rest))):
        return f"the file {rest} of its key does not exist"
    return None


def _priced(
    name: str, price: Price, own: Mapping[str, object], sources: Mapping[str, PriceSource]
) -> ModelPriced:
    source = None if name in own else sources.get(split_name(name)[0])
    long = price.long
    return {
        "model": name,
        "is_own": name in own,
        "as_of": source.as_of if source is not None else None,
        "long": None if long is None else {**_rates(long), "above": long.above},
        **_rates(price),
    }


def _rates(rates: Rates) -> RatesShown:
    write = rates.input if rates.cache_write is None else rates.cache_write
    return {
        "input_micro": rates.input,
        "output_micro": rates.output,
        "cached_input_micro": rates.input if rates.cached_input is None else rates.cached_input,
        "cache_write_micro": write,
        "cache_write_1h_micro": write if rates.cache_write_1h is None else rates.cache_write_1h,
    }
