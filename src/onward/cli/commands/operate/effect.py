"""`onward effect`: a command that is run at most once for its key."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from cyclopts import Parameter

from onward.cli.exits import FINE, UNFINISHED
from onward.cli.failure import tell_error
from onward.cli.opening import app_of
from onward.cli.options import COMMON, Common, Out
from onward.cli.print.output import Output
from onward.clock import SystemClock, SystemIds
from onward.config import load_settings, own_environment, step_key
from onward.engine.step.effects import AtMostOnce, NotBegun, Once
from onward.errors import CannotExecute, InvalidInput, Refused, SpawnFailed
from onward.model.effect import CommandResult, EffectResult, FunctionResult, as_command, unpack
from onward.process import SystemSpawn
from onward.read.view import instant
from onward.store.owner import owner_label
from onward.store.port.effects import Effect
from onward.wiring import open_store

STDERR_CHARACTERS = 8_000
# As shells and `env` have it.
NOT_EXECUTABLE, MISSING = 126, 127
OPEN = ("effect_in_doubt", "effect_under_way")


async def effect(
    key: Annotated[str, Parameter(help="What names the effect; inside a step it is the step's own.")],
    /,
    *command: Annotated[str, Parameter(help="The command, after `--`.")],
    retry: Annotated[bool, Parameter(help="It is in doubt: run the command again.")] = False,
    forget: Annotated[
        bool, Parameter(help="Forget it: it was not done, or is to be done again. Runs nothing.")
    ] = False,
    done: Annotated[
        str | None,
        Parameter(help="It is in doubt and was done: this is its output from now on. Runs nothing."),
    ] = None,
    only_success: Annotated[
        bool, Parameter(help="Remember only exit code 0; after a failure the command runs again.")
    ] = False,
    no_wait: Annotated[
        bool, Parameter(help="If it is being run elsewhere, say so instead of waiting for its result.")
    ] = False,
    everywhere: Annotated[
        bool, Parameter(name="--global", help="Inside a step: the key is not the step's own.")
    ] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Run a command at most once for a key; afterwards give its output and exit code again.

    Without a command: show the effect.
    """
    deciding = [name for name, given in (("--forget", forget), ("--done", done is not None)) if given]
    if len(deciding) > 1 or (deciding and (command or retry)):
        raise InvalidInput(f"{deciding[0]} decides about what was run before; give it alone.")
    if retry and not command:
        raise InvalidInput("--retry runs the command again; give the command after `--`.")
    within = None if everywhere else step_key()
    name = key if within is None else f"{within}/{key}"
    async with _effects(common) as effects:
        try:
            if forget:
                return _tell_forgotten(out, await effects.forget(name))
            if done is not None:
                await effects.settle(name, done)
            elif command:
                return await _run(effects, name, command, Once(only_success, retry, not no_wait), out)
            return _show(out, name, await effects.find(name))
        except CannotExecute as error:
            tell_error(out, error)
            out.note(_STANDS[_state(await effects.find(name))].format(key=name))
            return MISSING if error.is_missing else NOT_EXECUTABLE
        except Refused as refusal:
            if refusal.code not in OPEN:
                raise
            tell_error(out, refusal)
            return UNFINISHED


@asynccontextmanager
async def _effects(common: Common) -> AsyncIterator[AtMostOnce]:
    settings = load_settings(db=common.db, app=common.app)
    if step_key() is not None and not settings.is_db_given and settings.app is None:
        raise InvalidInput(
            "this step's commands are not told which database its run is in; "
            'put "ONWARD_DB" into tool_env in onward.toml, or say --db.'
        )
    place = app_of(settings).store
    store = await open_store(place) if isinstance(place, str) else place
    try:
        yield AtMostOnce(store.effects, SystemClock(), SystemIds(), store.leases.lease_s)
    finally:
        await store.close()


async def _run(effects: AtMostOnce, key: str, command: Sequence[str], once: Once, out: Output) -> int:
    async def perform() -> EffectResult:
        try:
            ended = await SystemSpawn().run_program(command, env=own_environment())
        except (SpawnFailed, InvalidInput) as error:
            raise NotBegun(error) from error
        return CommandResult(
            exit_code=ended.exit_code,
            signal=ended.signal,
            stdout=ended.stdout,
            stderr=ended.stderr[-STDERR_CHARACTERS:],
            truncated=ended.truncated,
        )

    made = await effects.make(key, perform, once)
    result = as_command(key, made.result)
    if out.is_json:
        out.value({"key": key, "made": made.is_new, **_fields(result)})
    else:
        out.raw(result.stdout.encode(errors="surrogateescape"))
        if result.stderr:
            out.note(result.stderr.removesuffix("\n"))
    return result.exit_code if result.exit_code is not None else 128 + (result.signal or 0)


def _fields(result: CommandResult) -> dict[str, Any]:
    return {
        "exit_code": result.exit_code,
        "signal": result.signal,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "truncated": result.truncated,
    }


def _tell_forgotten(out: Output, effect: Effect) -> int:
    out.say(f"effect {effect.key} is forgotten; the next call runs it")
    if out.is_json:
        out.value({"key": effect.key, "state": "forgotten"})
    return FINE


def _show(out: Output, key: str, effect: Effect | None) -> int:
    state = _state(effect)
    if effect is None:
        out.say(f"effect {key} was never begun")
    else:
        out.say(f"effect {key} {_WORDS[state]} ({owner_label(effect.owner)}, {instant(effect.begun_at_us)})")
    if out.is_json:
        result = unpack(key, effect.result) if effect is not None and effect.result is not None else None
        out.value(
            {
                "key": key,
                "state": state,
                "owner": None if effect is None else owner_label(effect.owner),
                "begun_at": instant(effect.begun_at_us) if effect is not None else None,
                "finished_at": instant(effect.finished_at_us) if effect is not None else None,
                "result": _result(key, result),
            }
        )
    return UNFINISHED if state in ("begun", "in_doubt") else FINE


_STANDS = {
    "absent": "effect {key} was not started by this; the next call runs it",
    "in_doubt": "effect {key} is in doubt as before",
    "begun": "effect {key} is being run by another process",
    "finished": "effect {key} was run by another process meanwhile",
}
_WORDS = {
    "begun": "is under way",
    "in_doubt": "was begun and never finished: it is in doubt",
    "finished": "has finished",
}


def _state(effect: Effect | None) -> str:
    if effect is None:
        return "absent"
    if effect.result is not None:
        return "finished"
    return "begun" if effect.is_alive else "in_doubt"


def _result(key: str, result: EffectResult | None) -> dict[str, Any] | None:
    match result:
        case None:
            return None
        case FunctionResult():
            return {"value": result.value, "error": result.error}
        case _:
            return _fields(as_command(key, result))
