"""The stored results of effects that run at most once."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from onward.errors import EffectFailed, InvalidInput, StoreCorrupt
from onward.model.run import Frozen

KEY_CHARACTERS_MAX = 500


class CommandResult(Frozen, frozen=True, kw_only=True, tag="command"):
    """A command ended, with an exit code or by a signal; `truncated`: only the end of its output was kept."""

    exit_code: int | None
    signal: int | None = None
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False

    @property
    def is_success(self) -> bool:
        return self.exit_code == 0


class FunctionResult(Frozen, frozen=True, kw_only=True, tag="function"):
    """A function returned `value`, or raised what `error` says."""

    value: Any = None
    error: str | None = None

    @property
    def is_success(self) -> bool:
        return self.error is None


class SettledResult(Frozen, frozen=True, kw_only=True, tag="settled"):
    """A person found out that it was done, and its result."""

    text: str

    @property
    def is_success(self) -> bool:
        return True


EffectResult = CommandResult | FunctionResult | SettledResult
_DECODER = msgspec.json.Decoder(EffectResult)


def pack(result: EffectResult) -> bytes:
    """A result as it is stored."""
    return msgspec.json.encode(result)


def unpack(key: str, stored: bytes) -> EffectResult:
    """A stored result."""
    try:
        result: EffectResult = _DECODER.decode(stored)
        return result
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"the result of effect {key!r} is damaged: {error}.") from None


def check_key(key: str) -> str:
    """A key that can be stored and shown."""
    if not key or len(key) > KEY_CHARACTERS_MAX or not key.isprintable():
        raise InvalidInput(
            f"{key[:50]!r} cannot be an effect's key; use 1 to {KEY_CHARACTERS_MAX} printable characters."
        )
    return key


def as_command(key: str, result: EffectResult) -> CommandResult:
    """What a command's caller gets; a function's result is none."""
    match result:
        case CommandResult():
            return result
        case SettledResult(text=text):
            return CommandResult(exit_code=0, stdout=text)
        case FunctionResult():
            raise InvalidInput(
                f"effect {key!r} was run by a Python function, not by a command; use another key."
            )


def as_value(key: str, result: EffectResult) -> Any:
    """What a function's caller gets: its value, or EffectFailed with what it raised."""
    match result:
        case FunctionResult(error=str() as error):
            raise EffectFailed(key, error)
        case FunctionResult():
            return result.value
        case SettledResult(text=text):
            return _json_or_text(text)
        case CommandResult():
            raise InvalidInput(
                f"effect {key!r} was run by a command, not by a Python function; use another key."
            )


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
