"""A flow that builds a site, asks before it ships, and is paid once: kill it anywhere, and resume it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onward import ask, each, flow, gather, sleep, step

DONE = Path("ledger.txt")


@dataclass
class Notes:
    """What is known about a topic."""

    topic: str
    facts: list[str]


@dataclass
class Page:
    """A page of the site."""

    name: str
    html: str


def note(what: str) -> None:
    """Write down outside of Onward that something was done."""
    with DONE.open("a", encoding="utf-8") as ledger:
        ledger.write(f"{what}\n")


@step(retries=3, timeout="10m")
async def research(topic: str) -> Notes:
    """Ask whoever knows."""
    note("research")
    return Notes(topic, [f"{topic} is durable", f"{topic} is tested"])


@step
def page(notes: Notes, name: str) -> Page:
    """Write a page. A plain function runs in a thread."""
    note(f"page {name}")
    return Page(name, f"<h1>{notes.topic}</h1>")


@step
async def picture(fact: str) -> str:
    """Draw a picture."""
    note(f"picture {fact}")
    return f"{fact}.svg"


@step(once=True)
async def pay(cents: int) -> str:
    """Pay for the domain: this must not happen twice, so after a crash in the middle a person decides."""
    note("pay")
    return f"paid {cents}"


@flow
async def build(topic: str, nap: float = 0.2) -> list[str]:
    """Research a topic, write two pages and some pictures, and ship them if somebody says so."""
    notes = await research(topic)
    front, back = await gather(page(notes, "front"), page(notes, "back"))
    pictures = await each(picture, notes.facts, limit=5)
    await sleep(nap)
    if (await ask("Ship it?", about=front.html)).choice != "yes":
        return []
    return [front.name, back.name, *pictures, await pay(1_200)]
