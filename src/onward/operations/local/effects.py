"""Effects, from the rows of a store.

Apart from the other groups because scripts call `onward effect` often, so it must start quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from onward.engine.effects import AtMostOnce
from onward.model.result import CommandResult, EffectResult, FunctionResult, as_command, unpack_effect
from onward.operations.requests import ForgetEffect, GetEffect, SettleEffect
from onward.read.view import instant
from onward.store.owner import owner_label
from onward.store.port.leases import Effect

if TYPE_CHECKING:
    from onward.replies.steps import CommandEnded, EffectShown


class LocalEffects(msgspec.Struct, frozen=True):
    """Looks at the effects of one store, and decides about those in doubt."""

    effects: AtMostOnce

    async def get_effect(self, request: GetEffect) -> EffectShown:
        """How the effect stands; one that was never started is absent."""
        return _view(request.key, await self.effects.find(request.key))

    async def forget_effect(self, request: ForgetEffect) -> EffectShown:
        """Let the next call run it; the reply is what was forgotten."""
        return {**_view(request.key, await self.effects.forget(request.key)), "state": "forgotten"}

    async def settle_effect(self, request: SettleEffect) -> EffectShown:
        """Let what a person found out be the result."""
        await self.effects.settle(request.key, request.text)
        return await self.get_effect(request)


def _view(key: str, effect: Effect | None) -> EffectShown:
    if effect is None:
        return {
            "key": key,
            "state": "absent",
            "owner": None,
            "begun_at": None,
            "finished_at": None,
            "result": None,
        }
    unfinished = "begun" if effect.is_alive else "in_doubt"
    return {
        "key": key,
        "state": unfinished if effect.result is None else "finished",
        "owner": owner_label(effect.owner),
        "begun_at": instant(effect.begun_at_us),
        "finished_at": instant(effect.finished_at_us),
        "result": None if effect.result is None else _result(key, unpack_effect(key, effect.result)),
    }


def _result(key: str, result: EffectResult) -> dict[str, Any]:
    if isinstance(result, FunctionResult):
        return {"value": result.value, "error": result.error}
    return dict(view_command(as_command(key, result)))


def view_command(result: CommandResult) -> CommandEnded:
    """How a command ended."""
    return {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "truncated": result.truncated,
    }
