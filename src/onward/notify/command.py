"""Telling a command: the facts as JSON on its standard input, and the main ones in its environment.

It runs below a supervisor like every command of a step: in a process group of its own, with a time limit,
and nothing that it started is left afterwards. It gets the variables that tools always get, and those that
are named.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onward.errors import OnwardError
from onward.notify.sender import Sent
from onward.process import CommandExit, SystemSpawn
from onward.store.port.runs import Delivery


class CommandSender:
    """Runs a command for each notification; exit code 0 means delivered. A `str` is for the shell."""

    def __init__(
        self,
        command: str | tuple[str, ...],
        spawn: SystemSpawn,
        *,
        environment: Mapping[str, str],
        cwd: str | None,
        timeout_s: float,
    ) -> None:
        self._command, self._environment = command, dict(environment)
        self._cwd, self._timeout_s = cwd, timeout_s
        self._spawn = spawn

    async def send(self, delivery: Delivery) -> Sent:
        env = {**self._environment, **variables(delivery)}
        body = delivery.body.encode()
        try:
            if isinstance(self._command, str):
                finished = await self._spawn.run(
                    self._command, env=env, cwd=self._cwd, timeout_s=self._timeout_s, stdin=body
                )
            else:
                finished = await self._spawn.run_program(
                    self._command, env=env, cwd=self._cwd, timeout_s=self._timeout_s, stdin=body
                )
        except OnwardError as error:  # it did not run
            return Sent(None, str(error))
        return _sent(finished, self._timeout_s)

    def close(self) -> None:
        self._spawn.close()


def _sent(finished: CommandExit, timeout_s: float) -> Sent:
    if finished.timed_out:
        return Sent(finished.exit_code, f"timed out after {timeout_s:g} s")
    if finished.signal is not None:
        return Sent(None, f"ended by signal {finished.signal}")
    if finished.exit_code == 0:
        return Sent(0)
    said = finished.stderr.strip() or finished.stdout.strip().rpartition("\n")[2]
    return Sent(finished.exit_code, f"exit code {finished.exit_code}" + (f": {said}" if said else ""))


def variables(delivery: Delivery) -> dict[str, str]:
    """The main facts, for a command that does not read JSON. Texts that steps wrote are not among them."""
    facts = msgspec.json.decode(delivery.body)  # a newer Onward may have written more of them
    told = {
        "ONWARD_DELIVERY_ID": delivery.id,
        "ONWARD_NOTIFICATION": delivery.kind.value,
        "ONWARD_RUN_ID": delivery.run_id,
        "ONWARD_DISPLAY_ID": facts["display_id"],
        "ONWARD_PIPELINE": facts["pipeline"],
        "ONWARD_STATUS": facts["status"],
        "ONWARD_REASON": facts["reason"],
        **({} if facts["gate"] is None else {"ONWARD_GATE": facts["gate"]["gate"]}),
    }
    return {name: value.replace("\0", "") for name, value in told.items()}
