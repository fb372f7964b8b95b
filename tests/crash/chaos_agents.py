"""The agents of a storm: an endpoint that misbehaves, and what must be true of what they asked and said."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from onward.model.call import CallFinished, CallStatus, call_key
from onward.model.limits import NO_AMOUNTS
from onward.model.row import MessageState
from onward.store.codec import unseal
from onward.store.port.messages import MessageQuery
from onward.store.port.store import Store
from onward.testing.model_endpoint import LedgerEntry, read_ledger
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.crash.agents.judging import ALL, charged
from tests.crash.chaos_tools import STEP
from tests.crash.reading import Reader

CHATS = 3
PROJECT = "storm"
TEXT = "".join(f"word {number}, " for number in range(40))
NODE = 'talk [type=codergen, prompt="Say it.", max_retries=4]'
_WHOLE = ScriptedReply(text=TEXT, chunk=9, delay_s=0.001)
_FAULTS = (
    ScriptedReply(status=503),
    ScriptedReply(text=TEXT, chunk=9, break_after=30),
    ScriptedReply(status=429, retry_after="1"),
    ScriptedReply(text=TEXT, chunk=9, break_after=10, break_with="malformed"),
)


@contextmanager
def endpoint(
    directory: Path, requests: int, answers: Sequence[ScriptRule] = ()
) -> Iterator[Mapping[str, str]]:
    """An endpoint in a process of its own; gives the variables that make agents ask it.

    Every fifth of the first `requests` meets a fault. `answers` are what it says besides TEXT.
    """
    rules = [ScriptRule(nth=nth, reply=_FAULTS[nth % len(_FAULTS)]) for nth in range(3, requests, 5)]
    rules += answers
    script, ledger = directory / "script.json", directory / "requests"
    script.write_bytes(msgspec.json.encode(ModelScript(rules=tuple(rules), default=_WHOLE)))
    command = (sys.executable, "-m", "onward.testing.model_endpoint", str(script), "--ledger", str(ledger))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield {"OPENAI_BASE_URL": process.stdout.readline().strip(), "ONWARD_MODEL": "small"}
        finally:
            process.terminate()


def requests(directory: Path) -> list[LedgerEntry]:
    """Every request that came."""
    return read_ledger(str(directory / "requests"))


def chat_of(number: int) -> str:
    """The chat of a run: a few for all, so that their writers meet."""
    return f"storm-{number % CHATS}"


async def judge_requests(store: Store, run_id: str, made: Sequence[LedgerEntry], skew_us: int) -> list[str]:
    """Requests of a run that were made after their answer was stored."""
    mine = [entry for entry in made if entry.idempotency_key.startswith(f"{run_id}/")]
    problems = []
    for record in await store.log.read(run_id, after=0, limit=ALL):
        event = unseal(record)
        if isinstance(event, CallFinished) and event.status is CallStatus.OK:
            key = call_key(run_id, event.step, event.call, 0)
            late = [one for one in mine if one.idempotency_key == key and one.at_us > record.at_us + skew_us]
            problems += [f"{run_id}: {key} was asked again after its answer was stored"] if late else []
    return problems


async def judge_chats(store: Store) -> list[str]:
    """What was said: no gap, nothing after an end, and no text that is not a beginning of the answer.

    A message without text asks for tools.
    """
    problems = []
    for chat in map(chat_of, range(CHATS)):
        reader = Reader(store, chat, is_late=True)
        await reader.read()
        said = {one.id: one for one in await store.messages.list(MessageQuery(chat=chat))}
        for message, text in reader.texts.items():
            if not said[message].run_id:
                continue  # what Onward says in the chat, such as that a run has stopped
            whole = (TEXT, "") if said[message].step == STEP else (TEXT,)
            is_whole = reader.ended.get(message) != MessageState.COMPLETE or text in whole
            if not TEXT.startswith(text) or not is_whole or message not in reader.ended:
                problems.append(f"{said[message].run_id}: its message in {chat} is wrong: {text[-50:]!r}")
    return problems


async def judge_spending(store: Store, run_ids: Sequence[str]) -> list[str]:
    """What was spent in the project of all runs is what their logs add up to."""
    total = NO_AMOUNTS
    for run_id in run_ids:
        events = [unseal(record) for record in await store.log.read(run_id, after=0, limit=ALL)]
        total = total.plus(charged(events))
    (scope,) = await store.limits.read([f"project/{PROJECT}"])
    if (scope.spent, scope.reserved) == (total, NO_AMOUNTS):
        return []
    return [f"spent {scope.spent} and reserved {scope.reserved}, but the logs say {total}"]
