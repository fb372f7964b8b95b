"""Which registered pipeline a message starts."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onward.engine.registry.pipelines import Registry
from onward.errors import Refused
from onward.model.chat import Intent
from onward.model.ids import Wanted, read_wanted

LISTED_MAX = 10


class Choosing(msgspec.Struct, frozen=True):
    """Chooses among registered pipelines; `pipelines` names one for an intent."""

    registry: Registry
    pipelines: Mapping[str, str]

    async def choose(self, named: str, intent: Intent) -> Wanted:
        """The pipeline, with its version: the one that the message names, or the settings for its intent, or
        that has the intent's name, or the only one."""
        wanted = named or self.pipelines.get(intent.value, "")
        if wanted:
            return await self._version(read_wanted(wanted))
        found = await self.registry.store.pipelines.find(intent.value)
        if found is not None and found.enabled is not None:
            return await self._version(Wanted(intent.value))
        there = await self.registry.store.pipelines.list(limit=LISTED_MAX)
        if len(there) == 1:
            return await self._version(Wanted(there[0].name))
        raise _none_fits(intent, [one.name for one in there])

    async def _version(self, wanted: Wanted) -> Wanted:
        return Wanted(wanted.name, (await self.registry.version(wanted)).version)


def _none_fits(intent: Intent, names: list[str]) -> Refused:
    if not names:
        return Refused(
            "no_pipeline",
            "no pipeline is registered, so a message can start none; add one with "
            f"`onward pipelines add FILE --name {intent.value}`, then say it again.",
        )
    several = ", ".join(names) + (", …" if len(names) == LISTED_MAX else "")
    return Refused(
        "no_pipeline",
        f"this message was read as {intent.value}, and none of the registered pipelines ({several}) is for "
        f"that; name one with --pipeline, or set `{intent.value}` under [chats.pipelines] in onward.toml.",
        details={"intent": intent.value, "pipelines": names},
    )
