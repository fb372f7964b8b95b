"""Effects of a step: calls that must not be repeated, and whose exception is their answer, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from onward.engine.calls.functions import execute
from onward.engine.calls.told import told
from onward.engine.step.effects import AtMostOnce, in_doubt
from onward.errors import EffectFailed
from onward.handlers.calls import CallOptions, Recorder
from onward.handlers.user_functions import Functions
from onward.model.call import CallKind
from onward.model.context import check_value
from onward.model.result import as_value, check_effect_key, unpack_effect

EFFECT = "effect:"
"""What the calls that are effects are named by, so that no other call has the same key."""


async def effect(
    recorder: Recorder,
    functions: Functions,
    earlier: AtMostOnce | None,
    key: str,
    function: Callable[[], Any],
    *,
    only_success: bool,
) -> Any:
    """What the effect answered. `earlier`: where older versions stored the effects of steps."""
    check_effect_key(key)
    if earlier is not None:
        found = await earlier.find(recorder.key_of(key))
        if found is not None and found.result is None:
            raise in_doubt(found)
        if found is not None and found.result is not None:
            return as_value(key, unpack_effect(key, found.result))
    raised: list[Exception] = []
    options = CallOptions(repeatable=False, type=CallKind.EFFECT.value, name=key)
    answer = partial(_answer, functions, function, raised, only_success)
    answered = await recorder.call(f"{EFFECT}{key}", answer, (), options)
    if raised:
        raise raised[0]
    if "error" in answered:
        raise EffectFailed(key, answered["error"], f"{EFFECT}{key}")
    return answered["value"]


async def _answer(
    functions: Functions, function: Callable[[], Any], raised: list[Exception], only_success: bool
) -> dict[str, Any]:
    try:
        value = await execute(functions, function)
        check_value(value, "the result of an effect")
    except Exception as error:
        if only_success:
            raise
        raised.append(error)
        return {"error": told(error)}
    return {"value": value}
