"""The run of a message: read, chosen, created once. Its id derives from the message."""

from __future__ import annotations

import os

import msgspec
from msgspec.structs import replace

from onward.chats.choosing import Choosing
from onward.chats.classifier import read_by_model, reading_run, reading_source
from onward.chats.looking import ChatSeen, runs_of
from onward.chats.rules import read_by_rules
from onward.chats.settings import ChatSettings
from onward.clock import Clock
from onward.engine.control.requests import Start
from onward.engine.engine import Engine
from onward.errors import Refused, RunNotFound
from onward.machine.plan.route import planned_agents
from onward.model.chat import (
    READING_TAG,
    ChatScope,
    Intake,
    Intent,
    MessageReading,
    facts_of,
    inputs_of,
    read_reading,
    run_of_message,
    text_of,
    write_reading,
)
from onward.model.ids import Wanted, read_wanted
from onward.model.limits import CALLS_PER_CHAT_RUN
from onward.model.run import Run, RunStatus
from onward.pipeline.build import Pipeline


class RunStarting(msgspec.Struct, frozen=True):
    """Starts the runs of messages."""

    engine: Engine
    clock: Clock
    settings: ChatSettings

    async def begin(self, intake: Intake, seen: ChatSeen) -> bool:
        """Read the message, choose its pipeline, and take the chat's turn; or let a model read it first.

        False if another process was first.
        """
        reading = await self._read(intake)
        if reading is None:
            return await self._ask(intake)
        wanted = await self._chosen(intake, reading)
        pipeline = await self.engine.registry.find(wanted)
        definition = self.engine.definition(pipeline)
        reading = replace(reading, pipeline=wanted.name, version=wanted.version or 0)
        text = await self.text(intake, reading)
        agents = planned_agents(definition, inputs_of(reading, text))
        return await self.engine.store.intakes.begin(
            intake.message,
            seen=intake.reading,
            turn=seen.turn,
            run_id=run_of_message(intake.message, intake.at_us),
            reading=write_reading(replace(reading, planned_agents=agents)),
        )

    async def check(self, intake: Intake) -> None:
        """Refuse what could not begin, before room is made for it: its pipeline may be missing.

        What a model is to read first cannot be judged yet.
        """
        reading = await self._read(intake)
        if reading is not None:
            await self._chosen(intake, reading)
        elif intake.pipeline:
            await self.engine.registry.version(read_wanted(intake.pipeline))

    async def _chosen(self, intake: Intake, reading: MessageReading) -> Wanted:
        """The pipeline of the new run: what a run is started anew with is what it was started with."""
        if reading.instead_of and not intake.pipeline:
            before = (await self.engine.journal.load(reading.instead_of)).run
            if before.pipeline_version is not None:
                return Wanted(before.pipeline, before.pipeline_version)
        assert reading.intent is not None
        choosing = Choosing(self.engine.registry, self.settings.pipelines)
        return await choosing.choose(intake.pipeline, reading.intent)

    async def create(self, intake: Intake) -> Run:
        """Create the run that a message has begun, if it is not there yet."""
        try:
            return (await self.engine.journal.load(intake.run_id)).run
        except RunNotFound:
            pass
        reading = read_reading(intake.reading)
        pipeline = await self.engine.registry.find(Wanted(reading.pipeline, reading.version))
        start = Start(
            inputs=inputs_of(reading, await self.text(intake, reading)),
            run_id=intake.run_id,
            on_owner_loss=self.settings.on_owner_loss,
            exclusive_key=f"chat/{intake.chat}",
            chat=intake.chat,
            project=await self._project(intake),
            workdir=await self._workdir(intake, reading),
        )
        await self._limit_calls(intake.run_id)
        return await self._create(pipeline, start)

    async def _create(self, pipeline: Pipeline, start: Start) -> Run:
        """Create a run whose id derives from a message; or find it, if another process was first."""
        try:
            return (await self.engine.submit(pipeline, start)).run
        except Refused as refusal:
            if refusal.code != "run_exists" or start.run_id is None:
                raise
            return (await self.engine.journal.load(start.run_id)).run

    async def _workdir(self, intake: Intake, reading: MessageReading) -> str | None:
        """Where the commands work: a run that is started anew changes the files that it changed before."""
        if reading.instead_of:
            before = (await self.engine.journal.load(reading.instead_of)).run
            if before.workdir is not None:
                return before.workdir
        return intake.workdir or None

    async def _project(self, intake: Intake) -> str | None:
        chat = await self.engine.store.intakes.find_chat(intake.chat)
        return intake.project or (chat.project if chat else "") or None

    async def text(self, intake: Intake, reading: MessageReading) -> str:
        """What the run is about: the message, or that of the run which it starts anew."""
        if reading.instead_of:
            before = facts_of((await self.engine.journal.load(reading.instead_of)).run)
            if before.user_message is not None:
                return before.user_message
        return text_of(await self.engine.store.messages.content(intake.message) or ())

    async def _read(self, intake: Intake) -> MessageReading | None:
        """The message as it is read once: as the run that it starts anew was, by a model, or by rules.

        None: a model is to be asked first.
        """
        noted = read_reading(intake.reading)
        text = await self.text(intake, noted)
        reading = read_by_rules(text, has_files=await self._has_files(intake))
        reading = replace(reading, instead_of=noted.instead_of, asked=noted.asked)
        if noted.instead_of:
            before = facts_of((await self.engine.journal.load(noted.instead_of)).run)
            if before.intent is not None and before.scope is not None:
                return replace(reading, intent=Intent(before.intent), scope=ChatScope(before.scope))
        classifier = self.settings.classifier
        if noted.asked:
            return await self._answered(noted.asked, reading)
        return reading if classifier is None else None

    async def _answered(self, run_id: str, by_rules: MessageReading) -> MessageReading:
        """The message as a model has read it, or by rules, if its run did not get there or is gone."""
        try:
            asked = (await self.engine.journal.load(run_id)).run
        except RunNotFound:
            return by_rules
        return read_by_model(asked, str(asked.context.get("classifier")), by_rules)

    async def _ask(self, intake: Intake) -> bool:
        """Let a model read a message, in a run of its own that the message then waits for."""
        classifier, run_id = self.settings.classifier, reading_run(intake.message, intake.at_us)
        assert classifier is not None
        noted = read_reading(intake.reading)
        pipeline = self.engine.sources.prepare(reading_source(classifier), "<reading>")
        start = Start(
            inputs={
                "user_message": await self.text(intake, noted),
                "has_files": await self._has_files(intake),
                "classifier": classifier,
            },
            run_id=run_id,
            on_owner_loss="requeue",
            tags=(READING_TAG,),
            chat=intake.chat,
            project=await self._project(intake),
        )
        await self._limit_calls(run_id)
        await self._create(pipeline, start)
        return await self.engine.store.intakes.note(
            intake.message,
            seen=intake.reading,
            behind=run_id,
            reading=write_reading(replace(noted, asked=run_id)),
        )

    async def _has_files(self, intake: Intake) -> bool:
        """Whether there is work to change: files where the commands work, or a run of the chat that has
        completed."""
        if intake.workdir and _has_visible(intake.workdir):
            return True
        return bool(await runs_of(self.engine, intake.chat, (RunStatus.COMPLETED,)))

    async def _limit_calls(self, run_id: str) -> None:
        """Limit the calls of a run of a chat, unless something is said about runs or about this one."""
        (scope,) = await self.engine.store.limits.read([f"run/{run_id}"])
        if scope.own[2] is None and scope.default[2] is None:
            await self.engine.store.limits.change(scope.id, {"calls": CALLS_PER_CHAT_RUN})


def _has_visible(directory: str) -> bool:
    try:
        return any(not name.startswith(".") for name in os.listdir(directory))
    except OSError:
        return False  # it is another machine's
