"""`onward effect`: a command that is run at most once for its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from onward.cli.operations import effects_of
from onward.cli.options import COMMON, Common, Out
from onward.cli.output import FINE, UNFINISHED, Output, tell_error
from onward.config import own_environment, step_key
from onward.errors import CannotExecute, InvalidInput, Refused
from onward.operations.here.effect import run_effect
from onward.operations.here.requests import RunEffect
from onward.operations.requests import ForgetEffect, GetEffect, SettleEffect

if TYPE_CHECKING:
    from onward.cli.replies import EffectForgotten
    from onward.operations.here.replies import EffectMade
    from onward.replies.steps import EffectShown

# As shells and `env` have it.
NOT_EXECUTABLE, MISSING = 126, 127
OPEN = ("effect_in_doubt", "effect_under_way")


async def effect(
    key: Annotated[
        str, Parameter(help="The key of the effect; inside a step, the key is local to that step.")
    ],
    /,
    *command: Annotated[str, Parameter(help="The command, after `--`.")],
    retry: Annotated[bool, Parameter(help="The effect is in doubt: run the command again.")] = False,
    forget: Annotated[
        bool,
        Parameter(help="Forget the effect, because it was not done or should be done again. Runs nothing."),
    ] = False,
    done: Annotated[
        str | None,
        Parameter(help="The effect is in doubt and was done: store this as its output. Runs nothing."),
    ] = None,
    only_success: Annotated[
        bool, Parameter(help="Remember only exit code 0; after a failure the command runs again.")
    ] = False,
    no_wait: Annotated[
        bool,
        Parameter(help="If another process is running it, report that instead of waiting for its result."),
    ] = False,
    everywhere: Annotated[
        bool,
        Parameter(
            name="--global", help="Inside a step: use the key globally, instead of as a key of that step."
        ),
    ] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Run a command at most once per key; later calls return the stored output and exit code.

    Without a command: show the state of the effect.
    """
    deciding = [name for name, given in (("--forget", forget), ("--done", done is not None)) if given]
    if len(deciding) > 1 or (deciding and (command or retry)):
        raise InvalidInput(f"{deciding[0]} applies to an earlier execution; give it without a command.")
    if retry and not command:
        raise InvalidInput("--retry runs the command again; give the command after `--`.")
    within = None if everywhere else step_key()
    name = key if within is None else f"{within}/{key}"
    request = RunEffect(key=name, command=command, only_success=only_success, retry=retry, wait=not no_wait)
    async with effects_of(common) as asked:
        try:
            if command:
                return _tell(out, await run_effect(asked.effects, request, own_environment()))
            if forget:
                return _tell_forgotten(out, await asked.forget_effect(ForgetEffect(key=name)))
            if done is not None:
                return _show(out, await asked.settle_effect(SettleEffect(key=name, text=done)))
            return _show(out, await asked.get_effect(GetEffect(key=name)))
        except CannotExecute as error:
            tell_error(out, error)
            state = (await asked.get_effect(GetEffect(key=name)))["state"]
            out.note(_STANDS[state].format(key=name))
            return MISSING if error.is_missing else NOT_EXECUTABLE
        except Refused as refusal:
            if refusal.code not in OPEN:
                raise
            tell_error(out, refusal)
            return UNFINISHED


def _tell(out: Output, made: EffectMade) -> int:
    if out.is_json:
        out.value(made)
    else:
        out.raw(made["stdout"].encode(errors="surrogateescape"))
        if made["stderr"]:
            out.note(made["stderr"].removesuffix("\n"))
    return made["exit_code"] if made["exit_code"] is not None else 128 + (made["signal"] or 0)


def _tell_forgotten(out: Output, effect: EffectShown) -> int:
    out.say(f"effect {effect['key']} is forgotten; the next call runs it")
    if out.is_json:
        forgotten: EffectForgotten = {"key": effect["key"], "state": effect["state"]}
        out.value(forgotten)
    return FINE


def _show(out: Output, effect: EffectShown) -> int:
    key, state = effect["key"], effect["state"]
    if state == "absent":
        out.say(f"effect {key} was never started")
    else:
        out.say(f"effect {key} {_WORDS[state]} ({effect['owner']}, {effect['begun_at']})")
    if out.is_json:
        out.value(effect)
    return UNFINISHED if state in ("begun", "in_doubt") else FINE


_STANDS = {
    "absent": "effect {key} was not started; the next call runs it",
    "in_doubt": "effect {key} is still in doubt",
    "begun": "effect {key} is being run by another process",
    "finished": "effect {key} was run by another process in the meantime",
}
_WORDS = {
    "begun": "is under way",
    "in_doubt": "was started and never finished: it is in doubt",
    "finished": "has finished",
}
