"""A command that is run on this machine, at most once for its key.

Apart from `execute` because scripts call `onward effect` often: it must start quickly, without an engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from onward.engine.effects import AtMostOnce, NotBegun, Once
from onward.errors import InvalidInput, SpawnFailed
from onward.model.result import CommandResult, EffectResult, as_command
from onward.operations.here.requests import RunEffect
from onward.operations.local.effects import view_command
from onward.process import SystemSpawn
from onward.redact.redactor import cleaner_of

if TYPE_CHECKING:
    from onward.operations.here.replies import EffectMade

STDERR_CHARACTERS = 8_000


async def run_effect(effects: AtMostOnce, request: RunEffect, environment: Mapping[str, str]) -> EffectMade:
    """What came of the command, now or when it was run before; a refusal if that is in doubt."""

    # Here, because the output is cut to its end before it is stored.
    spawn = SystemSpawn(cleaner=cleaner_of(lambda: effects.redactor))

    async def perform() -> EffectResult:
        try:
            ended = await spawn.run_program(request.command, env=environment)
        except (SpawnFailed, InvalidInput) as error:
            raise NotBegun(error) from error
        return CommandResult(
            exit_code=ended.exit_code,
            signal=ended.signal,
            stdout=ended.stdout,
            stderr=ended.stderr[-STDERR_CHARACTERS:],
            truncated=ended.truncated,
        )

    once = Once(request.only_success, request.retry, request.wait)
    made = await effects.make(request.key, perform, once)
    ended = view_command(as_command(request.key, made.result))
    return {"key": request.key, "made": made.is_new, **ended}
