"""Everything that can be asked, answered by the engine of this process."""

from __future__ import annotations

from onward.chats.settings import DEFAULT_CHATS, ChatSettings
from onward.clock import Clock
from onward.engine.engine import Engine
from onward.operations.local.chats.chats import LocalChats
from onward.operations.local.chats.messages import LocalMessages
from onward.operations.local.decide import LocalDecide
from onward.operations.local.effects import LocalEffects
from onward.operations.local.lists import LocalLists
from onward.operations.local.look import LocalLook
from onward.operations.local.money.limits import LocalLimits
from onward.operations.local.notifications import LocalNotifications
from onward.operations.local.pipelines import LocalPipelines
from onward.operations.local.start import LocalStart


class LocalOperations:
    """All groups of requests, at one engine and its store."""

    def __init__(self, engine: Engine, clock: Clock, chats: ChatSettings | None = None) -> None:
        self.lists = LocalLists(engine.store)
        self.look = LocalLook(engine.store, clock, lambda: engine.leftovers, lambda: engine.sources)
        self.decide = LocalDecide(engine, clock)
        self.effects = LocalEffects(engine.effects)
        self.notifications = LocalNotifications(engine.store)
        self.limits = LocalLimits(engine.store, clock)
        self.messages = LocalMessages(engine.store, clock)
        self.chats = LocalChats(engine, clock, chats or DEFAULT_CHATS)
        self.pipelines = LocalPipelines(engine.registry, clock)
        self.start = LocalStart(engine)
