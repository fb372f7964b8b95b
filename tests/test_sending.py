"""Chats from Python: send a message, and let a worker beside the program do what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onward import Onward
from onward.errors import Refused
from onward.handlers.port import StepContext
from onward.model.settings import ChatSettings

pytestmark = pytest.mark.anyio
SITE = """digraph site {
  start [shape=Mdiamond]; exit [shape=Msquare]
  work [type=work]
  start -> work -> exit
}"""


@pytest.fixture
def app(tmp_path: Path) -> Onward:
    app = Onward(str(tmp_path / "onward.db"))

    @app.handler("work")
    def work(step: StepContext) -> dict[str, Any]:
        return {"said": step.get("user_message")}

    return app


async def test_a_message_starts_a_run_that_an_embedded_worker_executes(app: Onward, tmp_path: Path) -> None:
    (tmp_path / "site.dot").write_text(SITE)
    async with app:
        await app.add_pipeline(str(tmp_path / "site.dot"), name="site")
        sent = await app.send("talk", "build me a page", key="k1", project="shop")
        again = await app.send("talk", "build me a page", key="k1", project="shop")
        assert (sent["outcome"], again["is_repeat"]) == ("started", True)
        assert sent["run"] is not None
        async with app.worker():
            run = await app.wait(sent["run"]["id"], timeout=60)
        assert (run.context["said"], run.project) == ("build me a page", "shop")
        with pytest.raises(Refused, match="was used for another message"):
            await app.send("talk", "something else", key="k1")


async def test_what_a_dead_sender_left_is_taken_up_by_an_embedded_worker(app: Onward, tmp_path: Path) -> None:
    (tmp_path / "site.dot").write_text(SITE)
    async with app:
        await app.add_pipeline(str(tmp_path / "site.dot"), name="site")
        first, second = await app.send("talk", "build a page"), await app.send("talk", "and another")
        assert (second["outcome"], second["behind"]) == ("queued", first["run"] and first["run"]["id"])
        shift = await app.worker(until_idle=True).run()
        assert shift.executed == 2


async def test_an_app_may_say_itself_what_messages_do(app: Onward, tmp_path: Path) -> None:
    (tmp_path / "site.dot").write_text(SITE)
    app.chats = ChatSettings(on_message="ask")
    async with app:
        await app.add_pipeline(str(tmp_path / "site.dot"), name="site")
        sent = await app.send("talk", "build a page")
        assert sent["run"] is not None
        await app.pause(sent["run"]["id"])
        assert (await app.send("talk", "hello"))["outcome"] == "asked"
        assert (await app.dismiss(sent["run"]["id"])).is_dismissed
        assert (await app.send("talk", "hello"))["outcome"] == "started"
