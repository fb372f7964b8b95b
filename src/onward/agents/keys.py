"""Keys by reference: read when a request is made, and kept nowhere.

env:NAME       a variable of this process
file:PATH      the first line of a file
command:LINE   the first line that a shell command prints
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

from onward.clock import NO_DEADLINE
from onward.errors import InvalidInput, SpawnFailed
from onward.process import Spawn
from onward.threads import in_thread

KINDS = ("env", "file", "command")
COMMAND_S_MAX = 30.0
KEY_BYTES_MAX = 16 * 1024
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SENDABLE = re.compile(r"[\x21-\x7e]+")


class KeyMissing(Exception):
    """There is no usable key; the message says where it was looked for, and never what was found."""


def check_reference(text: str, where: str) -> str:
    """The reference itself; InvalidInput if it is none, which is how a key in a file is noticed."""
    kind, colon, rest = text.partition(":")
    if not colon or kind not in KINDS or not rest.strip() or (kind == "env" and not _NAME.fullmatch(rest)):
        raise InvalidInput(
            f"{where} is not a reference; write env:NAME, file:PATH or command:LINE, never the key itself."
        )
    return text


def is_reference(text: str) -> bool:
    """Whether a text names a key instead of being one."""
    return text.partition(":")[0] in KINDS and ":" in text


class Keys:
    """Reads keys. `variables` gives those of the process; `directory` is where paths and commands begin."""

    def __init__(
        self,
        *,
        variables: Callable[[], Mapping[str, str]],
        spawn: Spawn,
        directory: str = ".",
        known_as: Callable[[str, str], object] = lambda name, value: None,
    ) -> None:
        """`known_as` gets the name and the value of every key that is read, so that it is stored nowhere."""
        self._variables, self._spawn, self._directory = variables, spawn, directory
        self._known_as = known_as

    async def find(self, reference: str | None, *, is_needed: bool) -> str:
        """The key; empty if there is none and none is needed."""
        if reference is None:
            return ""
        kind, _, rest = reference.partition(":")
        if kind == "env" and not is_needed and not self._variables().get(rest):
            return ""
        return await self.value(reference)

    async def value(self, text: str) -> str:
        """What a reference stands for; any other text stands for itself."""
        kind, _, rest = text.partition(":")
        if not is_reference(text):
            return text
        found = await {"env": self._of_variable, "file": self._of_file, "command": self._of_command}[kind](
            rest
        )
        first = found.strip().partition("\n")[0].strip()
        if not first:
            raise KeyMissing(f"{kind}:{rest} is empty")
        if not _SENDABLE.fullmatch(first):
            raise KeyMissing(f"{kind}:{rest} holds characters that no key has")
        self._known_as("provider key" if kind == "command" else os.path.basename(rest), first)
        return first

    async def _of_variable(self, name: str) -> str:
        found = self._variables().get(name)
        if found is None:
            raise KeyMissing(f"the variable {name}, which should hold its key, is not set")
        return found

    async def _of_file(self, path: str) -> str:
        try:
            return await in_thread(_read, self._directory, path)
        except OSError as error:
            raise KeyMissing(f"the file {path} of its key cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise KeyMissing(f"the file {path} of its key is not text") from None

    async def _of_command(self, line: str) -> str:
        try:
            ended = await self._spawn.run(
                line,
                env=self._variables(),
                cwd=self._directory,
                timeout_s=COMMAND_S_MAX,
                deadline=NO_DEADLINE,
            )
        except (SpawnFailed, InvalidInput):
            raise KeyMissing("the command of its key cannot be started") from None
        if ended.timed_out:
            raise KeyMissing(f"the command of its key took longer than {COMMAND_S_MAX:g} s")
        if ended.exit_code != 0:
            raise KeyMissing(f"the command of its key failed with exit code {ended.exit_code}")
        return ended.stdout


def _read(directory: str, path: str) -> str:
    with open(os.path.join(directory, os.path.expanduser(path)), encoding="utf-8") as file:
        return file.read(KEY_BYTES_MAX)
