"""A flow that answers a customer: an agent looks the order up and decides, and money is sent back once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onward import agent, ask, flow, gather, step

DONE = Path("ledger.txt")


@dataclass
class Verdict:
    """What is to be done about a mail."""

    refund_cents: int
    letter: str


def note(what: str) -> None:
    """Write down outside of Onward that something was done."""
    with DONE.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{what}\n")


def find_order(number: str) -> str:
    """Find an order by its number: what was bought, and for how many cents."""
    note(f"find_order {number}")
    return f"order {number}: a lamp, 1900 cents"


@step(once=True)
async def refund(cents: int) -> str:
    """Send the money back: this must not happen twice, so after a crash in the middle a person decides."""
    note(f"refund {cents}")
    return f"{cents} cents were sent back"


@flow
async def answer(mail: str) -> str:
    """Read a mail, decide what to do about it, and let a person allow a large refund."""
    verdict, mood = await gather(
        agent(f"Decide about this mail:\n{mail}", returns=Verdict, tools=[find_order]),
        agent(f"In one word, what is the mood of this mail?\n{mail}", name="mood"),
    )
    if verdict.refund_cents > 5_000 and (await ask("So much?", about=verdict.letter)).choice != "yes":
        return "declined"
    sent = await refund(verdict.refund_cents) if verdict.refund_cents else "nothing was sent back"
    return f"{verdict.letter} ({mood}; {sent})"
