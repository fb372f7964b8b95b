"""The app: runs pipelines in this process, and decides about runs wherever they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from onward.app.queue import AppWithQueue, checked_key, inputs_of, simulation_of
from onward.clock import SystemClock
from onward.config import tool_variables
from onward.engine.control.requests import ForkRequest, Interviewer, Resume, StartRequest
from onward.engine.log import Folded, RequestTerms
from onward.engine.sources import is_source, read_source
from onward.engine.stop import StopSwitch
from onward.errors import FlowFailed, InvalidInput, Refused
from onward.model.gate import Answer
from onward.model.ids import called, keyed_run_id
from onward.model.run import Run, RunStatus
from onward.model.stored import as_stored
from onward.model.values import checked_tags
from onward.operations.here.submission import directory_of
from onward.pipeline.build import BUILT_IN_TYPES, Pipeline, build
from onward.pipeline.flow_source import RESULT
from onward.pipeline.rules.check import Rule, rules_here
from onward.read.dialect_events import DialectEvent, Translator
from onward.read.lookup import log_pages
from onward.store.codec import unseal

if TYPE_CHECKING:
    from onward.flows.define import Bound

R = TypeVar("R")
WAITING_S = 0.2
"""How often a call looks whether the run that it waits for can continue."""


class Onward(AppWithQueue):
    """An application: a store, and the handlers, transforms and interviewers registered with it.

    `async with Onward("runs.db") as app:` opens the store and closes it at the end.
    """

    async def run(
        self,
        pipeline: str | Pipeline | Bound[Any],
        *,
        inputs: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        simulate: bool | Mapping[str, Any] = False,
        real_tools: bool = False,
        answers: str | Interviewer | None = None,
        stop: StopSwitch | None = None,
        chat: str | None = None,
        project: str | None = None,
        workdir: str | None = None,
        workspace: str | None = None,
        workspace_mode: str | None = None,
        keep_workspace: bool = False,
    ) -> Run:
        """Run a pipeline until it stops; returns its state.

        It is a path, its text (`digraph …`), a registered NAME or NAME@VERSION, one from `pipeline()`, or a
        flow with its arguments: `build.bind(…)`.
        `inputs` are values of its context, `run_id` an id of the caller's own. `answers` names an interviewer
        for its gates; without one the run stops there, waiting. `stop` lets another task stop it.

        `simulate`: execute nothing; a script gives the results of steps. With `real_tools` only agents are
        simulated. `workdir`: the working directory of its commands, also when it is resumed elsewhere;
        default: the current directory. Its models speak in `chat`, else in one of its own; its calls count in
        the limits of the chat and of `project`.
        """
        engine, stop = await self.engine(), stop or StopSwitch()
        interviewer = self._interviewer(answers)
        prepared = await self._prepared(pipeline)
        start = StartRequest(
            inputs=inputs_of(pipeline, inputs),
            run_id=run_id,
            simulation=simulation_of(simulate, real_tools),
            interviewer=interviewer,
            chat=chat,
            project=project,
            workdir=directory_of(workdir),
            workspace=workspace,
            workspace_mode=workspace_mode,
            keep_workspace=keep_workspace,
        )
        return (await self._attended(await engine.start(prepared, start, stop), interviewer, stop)).run

    async def call(
        self,
        flow: Bound[R],
        *,
        key: str | None = None,
        answers: str | Interviewer | None = None,
        chat: str | None = None,
        project: str | None = None,
        tags: Sequence[str] = (),
    ) -> R:
        """What a flow returns: `await app.call(build.bind("durable"), key="order-17")`.

        Its run is executed here; the same call again under its `key` finds that run, continues it if it was
        cut off or failed, and returns the same result. While the run waits, so does this. FlowFailed if it
        stops without a result.
        """
        from onward.flows.define import checked_bound

        flow, key = checked_bound(flow), checked_key(key)
        engine, interviewer = await self.engine(), self._interviewer(answers)
        prepared = await self._prepared(flow)
        asked = {"call": flow.flow.name, "inputs": flow.inputs}
        body = None if key is None else msgspec.json.encode(asked, order="sorted")
        start = StartRequest(
            inputs=flow.inputs,
            run_id=None if key is None else keyed_run_id("call", f"{flow.flow.name}/{key}"),
            terms=RequestTerms(key, body),
            on_owner_loss="requeue",
            chat=chat,
            project=project,
            tags=checked_tags(tags),
            workdir=directory_of(None),
            interviewer=interviewer,
        )
        stop = StopSwitch()
        folded = await self._attended(await engine.start(prepared, start, stop), interviewer, stop)
        if folded.is_repeat:
            folded = await self._continued(folded, interviewer, stop)
        while not folded.run.is_final:
            if folded.run.status in (RunStatus.FAILED, RunStatus.PAUSED, RunStatus.INTERRUPTED):
                run = folded.run
                raise FlowFailed(called(run.id), run.status.value, run.reason, run.detail)
            await SystemClock().wait_s(WAITING_S, asyncio.Event())
            folded = await self._continued(await engine.journal.load(folded.run.id), interviewer, stop)
        run = folded.run
        if run.status is not RunStatus.COMPLETED or RESULT not in run.context:
            raise FlowFailed(called(run.id), run.status.value, run.reason or "skipped", run.detail)
        return flow.flow.returned(run.context[RESULT])

    async def _continued(self, folded: Folded, interviewer: Interviewer | None, stop: StopSwitch) -> Folded:
        """A run of a flow, continued here if no process executes it and it need not wait."""
        engine, run = await self.engine(), folded.run
        if run.is_final:
            return folded
        is_due = run.wake_at_us is not None and run.wake_at_us <= SystemClock().now_us()
        if run.status is RunStatus.WAITING and not is_due:
            return await self._attended(folded, interviewer, stop)
        if run.status is RunStatus.QUEUED and not is_due:
            return folded
        try:
            resumed = await engine.resume(run.id, Resume(interviewer=interviewer), stop)
        except Refused as refused:
            if refused.code != "occupied" and not (refused.code == "wrong_state" and folded.is_repeat):
                raise
            return await engine.journal.load(run.id)
        return await self._attended(resumed, interviewer, stop)

    async def resume(
        self,
        run_id: str,
        *,
        answers: str | Interviewer | None = None,
        call_answers: Mapping[str, Any] | None = None,
        stop: StopSwitch | None = None,
        **how: Any,
    ) -> Run:
        """Continue a stopped run; the keywords are those of `Resume` (from_node, action, workdir, …).

        `answers` is who answers gates. `call_answers`, with `action="continue"`, is what calls in doubt
        answered, by their keys. `run=False` only decides: the run is queued, and a worker executes it.
        """
        engine, stop = await self.engine(), stop or StopSwitch()
        interviewer = self._interviewer(answers)
        stated = {
            call: as_stored(one, f"the answer of {call!r}") for call, one in (call_answers or {}).items()
        }
        return (
            await self._attended(
                await engine.resume(run_id, Resume(interviewer=interviewer, answers=stated, **how), stop),
                interviewer,
                stop,
            )
        ).run

    async def answer(self, run_id: str, answer: str | Answer, *, by: str = "user", **how: Any) -> Run:
        """Answer a run's open gate and continue the run; the keywords are `gate`, `text` and `run`."""
        return (await (await self.engine()).answer(run_id, answer, by=by, **how)).run

    async def approve(self, run_id: str, text: str = "", *, by: str = "user", **how: Any) -> Run:
        """Answer yes at a run's open gate, whatever the labels of its choices."""
        return await self.answer(run_id, Answer.approve(text), by=by, **how)

    async def reject(self, run_id: str, text: str = "", *, by: str = "user", **how: Any) -> Run:
        """Answer no at a run's open gate; without an edge for that, the run fails as rejected."""
        return await self.answer(run_id, Answer.reject(text), by=by, **how)

    async def replay(
        self,
        run_id: str,
        checkpoint: int | None = None,
        *,
        changes: Mapping[str, Any] | None = None,
        **how: Any,
    ) -> Run:
        """Fork a run at one of its checkpoints, or before a step (`from_step`), and run the fork.

        `changes` are set in the fork's context. The other keywords are those of `Fork` (accept_changes,
        original, new_id, …). The run itself is not changed.
        """
        engine = await self.engine()
        forked = await engine.fork(run_id, ForkRequest(checkpoint, changes=changes or {}, **how))
        return (await engine.resume(forked.run.id, Resume(original=True))).run

    async def pause(self, run_id: str, *, after: str = "step") -> Run:
        """Ask a run to stop after its `step`, after the `call`, or `now`; it can be resumed."""
        return (await (await self.engine()).pause(run_id, after=after)).run

    async def cancel(self, run_id: str, *, reason: str = "") -> Run:
        """Cancel a run for good; `reason` is free text."""
        return (await (await self.engine()).cancel(run_id, reason=reason)).run

    async def dismiss(self, run_id: str, *, by: str = "user") -> Run:
        """Stop suggesting a stopped run, and let no message resume it; `resume` still works."""
        return (await (await self.engine()).dismiss(run_id, by=by)).run

    async def steer(self, run_id: str, text: str, *, by: str = "user") -> Run:
        """Give the run's agents an instruction; the next agent step finds it in `step.steering`."""
        return (await (await self.engine()).steer(run_id, text, by=by)).run

    async def effect(self, key: str, function: Callable[[], Any], *, only_success: bool = False) -> Any:
        """What `function` returns; it is called at most once for `key` in this database.

        Inside a step use `step.effect`, whose keys are the step's own.
        """
        return await (await self.engine()).effect(key, function, only_success=only_success)

    async def get(self, run_id: str) -> Run:
        """The current state of a run. Raises RunNotFound if it does not exist."""
        return (await (await self.engine()).journal.load(run_id)).run

    async def dialect_events(self, run_id: str) -> AsyncIterator[DialectEvent]:
        """The log of a run so far, in the event names of the DOT dialect."""
        engine, translator = await self.engine(), Translator(run_id)
        async for page in log_pages(engine.store.log, run_id):
            for record in page:
                for event in translator.translate(unseal(record), record.at_us):
                    yield event

    def read(self, path: str, *, tool_env: tuple[str, ...] | None = None) -> Pipeline:
        """A pipeline from a file, prepared and checked as for `submit`; opens no store.

        With `tool_env`, also checked for variables that its commands would not get here.
        """
        return self._read(path, self.rules, tool_env)

    def validate(self, path: str, *, tool_env: tuple[str, ...] | None = None) -> Pipeline:
        """A pipeline from a file that this app can run. Raises InvalidPipeline if a run would."""
        return self._read(path, rules_here(self.rules, has_agent=self.has_agent), tool_env)

    def _read(self, path: str, rules: Sequence[Rule], tool_env: tuple[str, ...] | None) -> Pipeline:
        variables = None if tool_env is None else tool_variables(tool_env)
        known = {*self.handlers, *BUILT_IN_TYPES}
        return build(
            read_source(path),
            file=path,
            transforms=self.transforms,
            known_types=known,
            rules=rules,
            variables=variables,
        )

    async def pipeline(self, source: str, *, name: str = "pipeline") -> Pipeline:
        """A pipeline from its text or a path, prepared and checked; InvalidPipeline has all that is wrong.

        What has a brace or more than one line is the text, and is called `name`; anything else is a path.
        """
        sources = (await self.engine()).sources
        return sources.prepare(source, f"<{name}>") if is_source(source) else sources.read(source)

    def _interviewer(self, answers: str | Interviewer | None) -> Interviewer | None:
        """The interviewer that answers; an unknown name is refused before anything starts."""
        if answers is None or answers == "wait":
            return None
        found = self.interviewers.get(answers) if isinstance(answers, str) else answers
        if found is None:
            names = ", ".join(sorted(self.interviewers))
            raise InvalidInput(f"there is no interviewer {answers!r}; registered: {names}.")
        return found

    async def _attended(self, folded: Folded, interviewer: Interviewer | None, stop: StopSwitch) -> Folded:
        if interviewer is None:
            return folded
        return await (await self.engine()).attend(folded, interviewer, stop)
