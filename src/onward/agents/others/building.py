"""A model of pydantic-ai for a provider's settings, whose client never retries: retries are ours alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from onward.agents.wire.limits import TimeLimits
from onward.errors import InvalidInput

Options = Mapping[str, str | int | float | bool]
BEDROCK = "bedrock"
WITHOUT_RETRIES = (BEDROCK, "huggingface")
"""Take no number of retries with a request: Bedrock's client is built without any, and the other has none."""
ELSEWHERE: Mapping[str, str] = {"xai": "https://api.x.ai/v1"}
"""Retry whatever they are told, and speak OpenAI's format at these addresses."""


def build(name: str, model: str, *, options: Options, limits: TimeLimits) -> Model:
    """The model; InvalidInput, ImportError or an error of the library if there is none for these settings."""
    if name in ELSEWHERE:
        raise InvalidInput(
            f'its client repeats requests by itself; write base_url = "{ELSEWHERE[name]}" and no format'
        )
    try:
        made = infer_provider_class(name)
    except ValueError:
        raise InvalidInput(f"pydantic-ai knows no provider {name!r}; name one under `provider`") from None
    _check_options(made, name, options)
    provider = _bedrock(made, options, limits) if name == BEDROCK else made(**options)
    found = infer_model(f"{name}:{model}", provider_factory=lambda _: provider)
    if "max_retries" in found.unsupported_settings and name not in WITHOUT_RETRIES:
        raise InvalidInput("its client repeats requests by itself, and cannot be told not to")
    return found


def _check_options(made: type[Provider[Any]], name: str, options: Options) -> None:
    known = {
        one.name
        for one in inspect.signature(made.__init__).parameters.values()
        if one.name != "self" and not one.name.endswith("client")
    }
    unknown = sorted(options.keys() - known)
    if unknown:
        shown = {"api_key": "a key"}
        what = ", ".join(shown.get(one, one) for one in unknown)
        raise InvalidInput(f"the provider {name!r} takes no {what}; it takes {', '.join(sorted(known))}")


def _bedrock(made: Callable[..., Provider[Any]], options: Options, limits: TimeLimits) -> Provider[Any]:
    """Only a client of one's own can be told not to retry."""
    from onward.agents.others.bedrock import bedrock_client

    return made(bedrock_client=bedrock_client(options, limits))
