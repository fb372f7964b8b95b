"""How fast the page is in a browser: 10,000 runs, a run of 5,000 events, a graph of 500 nodes, and a stream.

Chromium, headless and without a GPU, at a server of its own. Each action is timed inside the page, by
`performance.now`, from the event that a person causes to the end of the frame that shows what it did. Then an
agent writes 200 tokens a second into an open chat: the renderer's processor time, and its memory between the
beginning and the end.

    python -m bench.page MINUTES      only the stream, for so long (in `make bench` it is half a minute)
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.feeds import TOKEN, cpu_s, resident_mb, serving
from bench.figure import Figure
from bench.models import endpoint
from bench.pipelines import engine_on, line, loop, looping_engine
from onward.engine.control.requests import StartRequest
from onward.testing.script import ModelScript, ScriptedReply
from onward.wiring import open_store

CHROMIUM = Path("/usr/bin/chromium")
DIST = Path(__file__).parent.parent / "web/dist/index.html"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
RUNS, EVENTS, NODES = 10_000, 5_000, 500
CLICK_MS_MAX, GRAPH_MS_MAX, OPEN_MS_MAX = 100.0, 200.0, 1_000.0
CPU_MAX, GROWTH_MB_MAX, ROWS_MAX = 0.10, 20.0, 60
TIMES = 60
TOKENS_PER_S, STREAM_S, WARM_S = 200, 30.0, 10.0
CHARACTERS = 4
TALK = """digraph {
  graph [on_message=auto]
  start [shape=Mdiamond]; say [prompt="go on"]; exit [shape=Msquare]
  start -> say -> exit
}"""
WORDS = ("bread ", "is **", "made", "** of ", "flour", ", wa", "ter a", "nd `sa", "lt`.\n\n", "- rye\n")

# The next frame shows what an event changed; what was asked of the server comes some frames later.
TIMED = """async () => {{
  const frame = () => new Promise(requestAnimationFrame)
  const isThere = {is_done}
  await frame()
  const began = performance.now()
  await ({act})()
  for (let tries = 0; tries < 600; tries++) {{
    await frame()
    if (isThere()) return performance.now() - began
  }}
  throw new Error('it never came')
}}"""
SCROLL = """async () => {{ document.querySelector('{box}').scrollTop = {top} }}"""
SCROLLED = """() => {{
  const box = document.querySelector('{box}').getBoundingClientRect()
  const at = share => document.elementFromPoint(box.left + box.width / 3, box.top + box.height * share)
  return [0.3, 0.5, 0.9].every(share => at(share)?.closest('{row}'))
}}"""


def missing() -> str | None:
    """Why nothing can be measured here, or None."""
    if not DIST.is_file():
        return "the page is not built (make web)"
    return None if CHROMIUM.is_file() else "there is no Chromium (make browser)"


def there(what: str) -> str:
    """As JavaScript: whether the document has it."""
    return f"() => !!document.querySelector({what!r})"


def gone(what: str) -> str:
    """As JavaScript: whether the document has no such thing."""
    return f"() => !document.querySelector({what!r})"


class Timer:
    """Times what a person does in an open page."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self._url = page, url

    def open(self, path: str, wanted: str) -> None:
        """Go there, and wait until it is shown."""
        self.page.goto(self._url + path)
        self.page.wait_for_selector(wanted)

    def height(self, box: str) -> float:
        """How far one can scroll there."""
        far: float = self.page.evaluate(f"() => document.querySelector('{box}').scrollHeight")
        return far - 900

    def click(self, what: str, is_done: str) -> float:
        """Milliseconds from a click until this is so."""
        return self.timed(f"async () => document.querySelector({what!r}).click()", is_done)

    def scroll(self, box: str, row: str, top: float) -> float:
        """Milliseconds until there are rows where somebody jumped to."""
        return self.timed(SCROLL.format(box=box, top=top), SCROLLED.format(box=box, row=row))

    def type(self, what: str, text: str, is_done: str) -> float:
        """Milliseconds from a text in a field until this is so."""
        sets = "Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set"
        event = "new Event('input', {bubbles: true})"
        field = f"const field = document.querySelector({what!r})"
        act = f"async () => {{ {field}; {sets}.call(field, {text!r}); field.dispatchEvent({event}) }}"
        return self.timed(act, is_done)

    def timed(self, act: str, is_done: str) -> float:
        took: float = self.page.evaluate(TIMED.format(act=act, is_done=is_done))
        return took


def p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]


def timing(what: str, times: list[float], most: float = CLICK_MS_MAX) -> Figure:
    """The figure of one action, done many times."""
    value = f"p95 {p95(times):.0f} ms (median {statistics.median(times):.0f}, worst {max(times):.0f})"
    return Figure(f"page: {what}", value, f"< {most:.0f} ms", p95(times) < most)


async def filled(db: str) -> dict[str, str]:
    """Ten thousand runs, one of them with many events and one with a big graph; the ids of these."""
    store = await open_store(db)
    engine = engine_on(store)
    pipeline, free = engine.sources.prepare(line(1), "<one>"), asyncio.Semaphore(200)

    async def one() -> None:
        async with free:
            await engine.start(pipeline, StartRequest())

    await asyncio.gather(*(one() for _ in range(RUNS - 2)))
    big = engine.sources.prepare(wide(NODES), "<wide>")
    graph = await engine.start(big, StartRequest())
    visits = EVENTS // 2
    looping = looping_engine(store, visits, [])
    long = await looping.start(looping.sources.prepare(loop(visits), "<loop>"), StartRequest())
    await store.close()
    return {"graph": graph.run.id, "long": long.run.id}


def wide(nodes: int) -> str:
    """A graph of so many nodes, ten beside each other."""
    rows = [[f"n{row}_{column}" for column in range(10)] for row in range(nodes // 10)]
    edges: list[str] = []
    for above, below in itertools.pairwise(rows):
        edges += [f"{one} -> {other}" for one, other in zip(above, below, strict=True)]
        edges += [f"{above[0]} -> {one}" for one in below[1:]]
    edges += [f"start -> {one}" for one in rows[0]] + [f"{one} -> exit" for one in rows[-1]]
    nodes_of = "; ".join(f"{name} [type=noop]" for row in rows for name in row)
    return f"digraph wide {{ start [shape=Mdiamond]; exit [shape=Msquare]; {nodes_of}; {'; '.join(edges)} }}"


@contextmanager
def browsing(port: int) -> Iterator[Any]:
    """A browser's page, signed in."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(60_000)
        page.goto(f"http://127.0.0.1:{port}/sign-in")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/runs")
        yield page
        browser.close()


CLOSE = "button[aria-label='Close the step']"
RUN_LIST, RUN_ROW = '[aria-label="List of runs"]', "[role=row]"


def runs_times(timer: Timer) -> list[Figure]:
    """Scroll, filter, select and open in a list of ten thousand runs."""
    page, dice = timer.page, random.Random(1)
    timer.open("/runs", RUN_ROW)
    count = f"() => Number(document.querySelector('[role=table]').getAttribute('aria-rowcount')) >= {RUNS}"
    until = time.monotonic() + 240
    while not page.evaluate(count):  # a reader scrolls; rows come in pages
        assert time.monotonic() < until, "not all rows came"
        page.evaluate(f"() => document.querySelector('{RUN_LIST}').scrollTo(0, 1e9)")
        page.wait_for_timeout(15)
    height = timer.height(RUN_LIST)
    scrolls = [timer.scroll(RUN_LIST, RUN_ROW, dice.random() * height) for _ in range(TIMES)]
    rows = page.evaluate(f"() => document.querySelectorAll('{RUN_ROW}').length")
    box, bar = "[role=row] input[type=checkbox]", '[aria-label="Selected runs"]'
    selects = []
    for _ in range(TIMES // 2):
        selects.append(timer.click(f"{box}:not(:checked)", there(bar)))
        selects.append(timer.click(f"{box}:checked", gone(bar)))
    interrupted = "section[aria-label='Needs you'] a:nth-child(2)"
    none = "() => document.body.innerText.includes('No run matches')"
    filters = [timer.click(interrupted, is_done) for _ in range(10) for is_done in (none, there(box))]
    opens = []
    for number in range(20):  # the newest are the big ones
        timer.open("/runs", f"[aria-rowindex='{number + 5}'] a")
        opens.append(timer.click(f"[aria-rowindex='{number + 5}'] a", there(".runtop h1")))
    return [
        timing(f"jump-scroll in {RUNS:,} runs", scrolls),
        Figure("page: rows in the document", f"{rows}", f"<= {ROWS_MAX}", rows <= ROWS_MAX),
        timing("select a run", selects),
        timing(f"filter {RUNS:,} runs", filters),
        timing("open a run, just after a reload", opens, OPEN_MS_MAX),
    ]


def events_times(timer: Timer, run: str) -> list[Figure]:
    """Scroll, filter and open events of a long run, and pick steps of its timeline."""
    page, dice, row = timer.page, random.Random(2), ".body button[aria-expanded]"
    timer.open(f"/runs/{run}?tab=events", row)
    page.wait_for_function(f"() => document.querySelector('.body').scrollHeight > {EVENTS * 30}")
    height = timer.height(".body")
    scrolls = [timer.scroll(".body", row, dice.random() * height) for _ in range(TIMES)]
    page.evaluate("() => document.querySelector('.body').scrollTo(0, 0)")
    filters = []
    for number in range(TIMES // 2):
        text = f"again#{dice.randrange(10, 200)}" if number % 2 == 0 else ""
        rows = f"[...document.querySelectorAll('{row}')]"
        shown = f"() => {rows}.every(one => one.innerText.includes({text!r}))"
        filters.append(timer.type("input[aria-label='Filter events']", text, shown))
    shut, opened = "button[aria-expanded=false]", "button[aria-expanded=true]"
    opens = []
    for _ in range(TIMES // 3):
        opens.append(timer.click(f".body {shut}", there(f".body {opened}")))
        timer.click(f".body {opened}", gone(f".body {opened}"))
    whole = []
    for _ in range(10):
        timer.open("/runs", f"a[href='/runs/{run}']")
        whole.append(timer.click(f"a[href='/runs/{run}']", there(".tl")))
    box, panel = ".work .body", '[aria-label="Step"] h2'
    height = timer.height(box)
    steps = [timer.scroll(box, ".tl", dice.random() * height * 0.9) for _ in range(TIMES // 3)]
    picks = []
    for _ in range(TIMES // 3):
        picks.append(timer.click("button.tl:not(.sel)", there(panel)))
        timer.click(CLOSE, gone(panel))
    return [
        timing(f"jump-scroll in {EVENTS:,} events", scrolls),
        timing(f"filter {EVENTS:,} events", filters),
        timing("open an event", opens),
        timing(f"open the run of {EVENTS:,} events", whole, OPEN_MS_MAX),
        timing(f"jump-scroll in a timeline of {EVENTS // 2:,} steps", steps),
        timing("pick a step", picks),
    ]


def graph_times(timer: Timer, run: str) -> list[Figure]:
    """Draw a big graph, and pick nodes of it."""
    draws, picks = [], []
    for _ in range(10):
        timer.open(f"/runs/{run}", ".graph .none button")
        drawn = f"() => document.querySelectorAll('.draw .label').length >= {NODES}"
        draws.append(timer.click(".graph .none button", drawn))
    nodes = "document.querySelectorAll('.draw g[role=button]')"
    for number in range(20):
        clicks = "dispatchEvent(new MouseEvent('click', {bubbles: true}))"
        act = f"async () => {nodes}[{number} % {nodes}.length].{clicks}"
        picks.append(timer.timed(act, there(".draw .picked")))
        timer.click(CLOSE, gone(".draw .picked"))
    return [
        timing(f"draw a graph of {NODES} nodes", draws, GRAPH_MS_MAX),
        timing("pick a node of it", picks),
    ]


def streaming(directory: str, seconds: float) -> list[Figure]:
    """An agent's answer that grows in an open chat: what the renderer needs for it."""
    length = int(TOKENS_PER_S * (WARM_S + seconds + 60))
    text = "".join(random.Random(3).choices(WORDS, k=length))
    reply = ScriptedReply(text=text, chunk=CHARACTERS, delay_s=1 / TOKENS_PER_S, is_over_ceiling=True)
    with (
        tempfile.TemporaryDirectory(dir=directory) as project,
        endpoint(project, ModelScript(default=reply)) as base_url,
        serving(str(Path(project, "stream.db")), project, base_url) as (_, port),
        browsing(port) as page,
    ):
        ask(port, "PUT", "/api/pipelines/talk", {"source": TALK})
        ask(port, "POST", "/api/messages", {"chat": "talk", "text": "go"})
        page.goto(f"http://127.0.0.1:{port}/chats/talk")
        page.wait_for_selector("[role=log] .prose")
        page.wait_for_timeout(WARM_S * 1_000)
        renderer = Renderer(page)
        before, began_s = renderer.read(), time.perf_counter()
        page.wait_for_timeout(seconds * 1_000)
        after, took_s = renderer.read(), time.perf_counter() - began_s
    share, growth = (after.cpu_s - before.cpu_s) / took_s, after.heap_mb - before.heap_mb
    rate = (after.characters - before.characters) / CHARACTERS / took_s
    what = f"{took_s:.0f} s of {rate:.0f} tokens/s"
    is_calm = share < CPU_MAX and rate > TOKENS_PER_S / 2
    room = f"{before.heap_mb:.1f} to {after.heap_mb:.1f} MB (process {before.mb:.0f} to {after.mb:.0f})"
    most = f"grows < {GROWTH_MB_MAX:g} MB"
    return [
        Figure(f"page: CPU of {what}", f"{share:.1%} of a core", f"< {CPU_MAX:.0%}", is_calm),
        Figure(f"page: heap of {what}", room, most, growth < GROWTH_MB_MAX),
    ]


@dataclass
class Reading:
    """How much a page has used, and what it shows."""

    cpu_s: float
    mb: float
    heap_mb: float
    characters: int


class Renderer:
    """The process of a page."""

    def __init__(self, page: Any) -> None:
        self._page = page
        self._browser = page.context.browser.new_browser_cdp_session()
        self._tab = page.context.new_cdp_session(page)
        self._tab.send("Performance.enable")

    def read(self) -> Reading:
        """What it has used so far, without what is garbage."""
        self._tab.send("HeapProfiler.collectGarbage")
        metrics = {one["name"]: one["value"] for one in self._tab.send("Performance.getMetrics")["metrics"]}
        processes = self._browser.send("SystemInfo.getProcessInfo")["processInfo"]
        renderers = [one["id"] for one in processes if one["type"] == "renderer"]
        shown = self._page.evaluate("() => document.querySelector('[role=log]').textContent.length")
        return Reading(
            cpu_s=sum(cpu_s(pid) for pid in renderers),
            mb=sum(resident_mb(pid) for pid in renderers),
            heap_mb=metrics["JSHeapUsedSize"] / 2**20,
            characters=shown,
        )


def ask(port: int, method: str, path: str, body: Any) -> None:
    """Post something to the server."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body), headers)
        reply = connection.getresponse()
        assert reply.status < 300, reply.read()


def lists(directory: str, db: str, runs: dict[str, str]) -> list[Figure]:
    """Every action at the pages of a full database."""
    with (
        tempfile.TemporaryDirectory(dir=directory) as project,
        serving(db, project, "http://127.0.0.1:9") as (_, port),
        browsing(port) as page,
    ):
        timer = Timer(page, f"http://127.0.0.1:{port}")
        return [
            *runs_times(timer),
            *events_times(timer, runs["long"]),
            *graph_times(timer, runs["graph"]),
        ]


async def page_times(directory: str) -> list[Figure]:
    """All figures; none where there is no page or no browser."""
    if why := missing():
        print(f"      page: not measured: {why}")
        return []
    db = str(Path(directory, "page.db"))
    runs = await filled(db)
    # Playwright needs a thread of its own: there, no event loop runs.
    found = await asyncio.to_thread(lists, directory, db, runs)
    return [*found, *await asyncio.to_thread(streaming, directory, STREAM_S)]


def main() -> int:
    """Only the stream, for so many minutes; exit 0 if every goal was met."""
    with tempfile.TemporaryDirectory(prefix=".bench-") as directory:
        figures = streaming(directory, float(sys.argv[1]) * 60)
    print(*figures, sep="\n")
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
