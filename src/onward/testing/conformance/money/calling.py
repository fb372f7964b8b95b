"""Calls that reserve and settle, as a holder writes them."""

from __future__ import annotations

from typing import Any

from onward.model.call import CallFinished, CallLost, CallStarted, CallStatus, Reserved, Usage
from onward.model.events import StepStarted
from onward.model.limits import Amounts
from onward.store.port.log import Write
from onward.store.port.store import Store
from onward.testing.drafts import Draft, held

STEP = "start#1"
DAY = "day/2023-11-14"


async def working(store: Store, run_id: str, **fields: Any) -> Draft:
    """A held run with a step under way."""
    run = await held(store, run_id, **fields)
    write, begun = run.then(StepStarted(step=STEP, node="start", attempt=1), with_row=False)
    await store.log.append(write, run.lease)
    return begun


def beginning(
    run: Draft, *scopes: str, call: str = "m1", number: int = 1, **reserved: Any
) -> tuple[Write, Draft]:
    """The write that begins a call, with what it reserves in these scopes."""
    amounts = Reserved(scopes=scopes, **{"tokens": 100, "cost_micro": 1_000, **reserved})
    started = CallStarted(
        step=STEP, attempt=1, call=call, number=number, type="model", model="acme:small", reserved=amounts
    )
    return run.then(started, with_row=False)


def ending(run: Draft, call: str = "m1", number: int = 1, **fields: Any) -> tuple[Write, Draft]:
    """The write that ends a call, by itself with its usage, and without a status as lost."""
    if fields.pop("lost", False):
        return run.then(CallLost(step=STEP, call=call, number=number), with_row=False)
    given: dict[str, Any] = {"status": CallStatus.OK, "type": "model", "model": "acme:small", **fields}
    return run.then(CallFinished(step=STEP, attempt=1, call=call, number=number, **given), with_row=False)


async def begun(store: Store, run: Draft, *scopes: str, **reserved: Any) -> Draft:
    """The run after a call has begun."""
    write, after = beginning(run, *scopes, **reserved)
    await store.log.append(write, run.lease)
    return after


async def ended(store: Store, run: Draft, call: str = "m1", number: int = 1, **fields: Any) -> Draft:
    """The run after a call has ended."""
    write, after = ending(run, call, number, **fields)
    await store.log.append(write, run.lease)
    return after


def used(tokens: int) -> Usage:
    """Usage of so many tokens."""
    return Usage(input=tokens - tokens // 3, output=tokens // 3)


async def figures(store: Store, scope: str) -> tuple[Amounts, Amounts]:
    """What is spent and what is reserved in a scope."""
    (found,) = await store.limits.read([scope])
    return found.spent, found.reserved
