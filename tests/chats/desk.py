"""A desk for tests of chats: processes that send messages, execute what is queued, and look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onward.chats.dispatch import Dispatcher, NewMessage
from onward.chats.runs import runs_of
from onward.engine.stop import StopSwitch
from onward.model.chat import Intake, Role, text_of
from onward.model.run import Run, RunStatus
from onward.model.settings import DEFAULT_CHATS, ChatSettings
from onward.store.port.messages import MessageQuery
from onward.store.port.retention import NewSource
from tests.world import Process, Script, World

SITE = """digraph site {
  graph [goal="a site", intents="build, question, fix", intent.question.words="?, ^what"]
  graph [scopes="full, frontend, backend, styling", scope.backend.words=login]
  start [shape=Mdiamond]
  exit [shape=Msquare]
  research [prompt="find out", required_for_resume="intent=build"]
  design [prompt="design"]
  check [prompt="check"]
  start -> research -> design -> check -> exit
}"""
PLAIN = """digraph plain {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  work [prompt="do it"]
  finish [prompt="end it"]
  start -> work -> finish -> exit
}"""
STEERED = PLAIN.replace("digraph plain {", "digraph plain {\n  graph [while_running=steer]")
GATED = """digraph gated {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  ask [shape=hexagon, label="Which direction?"]
  work [prompt="do it"]
  start -> ask
  ask -> work [label="[B] Bold"]
  ask -> work [label="[C] Calm"]
  work -> exit
}"""


@dataclass
class Desk:
    """A process with a dispatcher."""

    process: Process
    settings: ChatSettings = DEFAULT_CHATS

    @property
    def dispatcher(self) -> Dispatcher:
        return Dispatcher(self.process.engine, self.process.clock, self.settings)

    async def register(self, source: str, name: str = "site") -> None:
        """Register a pipeline."""
        pipeline = self.process.pipeline(source)
        new = NewSource(name, pipeline.hash, source.encode(), "<test>", "ann")
        await self.process.store.pipelines.add(new, at_us=1)

    async def say(self, text: str, chat: str = "talk", **how: Any) -> Intake:
        """Send a message; what became of it."""
        intake, _ = await self.dispatcher.send(NewMessage(chat=chat, text=text, **how))
        return intake

    async def sweep(self) -> int:
        """What a worker does at every poll."""
        return await self.dispatcher.take_up()

    async def work(self) -> list[Run]:
        """Execute everything that is due, as a worker does; the runs as they ended."""
        ended: list[Run] = []
        while (taken := await self.process.engine.take(StopSwitch(clock=self.process.clock))) is not None:
            ended.append((await taken[1]).run)
            await self.dispatcher.tell_stop(ended[-1])
        return ended

    async def runs(self, chat: str = "talk") -> list[Run]:
        """The runs of a chat, in the order of the messages that started them: clocks differ."""
        store = self.process.store
        listed = await runs_of(self.process.engine, chat, tuple(RunStatus))
        begun = [one.run_id for one in await store.intakes.list(chat, is_open=False, limit=1_000)]
        ids = sorted((one.row.id for one in listed), key=lambda id: begun.index(id) if id in begun else -1)
        return [(await self.process.load(id)).run for id in ids]

    async def statuses(self, chat: str = "talk") -> list[tuple[str, str]]:
        return [(run.status.value, run.reason) for run in await self.runs(chat)]

    async def spoken(self, role: Role = Role.SYSTEM, chat: str = "talk") -> list[str]:
        """What was said in a chat."""
        messages = self.process.store.messages
        found = [one for one in await messages.list(MessageQuery(chat=chat)) if one.role is role]
        return [text_of(await messages.content(one.id) or ()) for one in found]

    async def interrupted(self, text: str = "build me a site") -> Run:
        """A run that a message started, and that was interrupted after its first step."""
        await self.say(text)
        await self.work()
        (*_, run) = await self.runs()
        assert run.status is RunStatus.INTERRUPTED, run.status
        return run


async def desk_of(world: World, script: Script | None = None, source: str = SITE, **how: Any) -> Desk:
    """A desk in a new process, with a registered pipeline."""
    desk = Desk(await world.process(script, **how))
    await desk.register(source)
    return desk
