"""An app registers pipelines, and starts runs by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward import Onward
from onward.errors import InvalidInput, InvalidPipeline, PipelineNotFound
from onward.handlers.port import StepContext
from onward.operations.local.operations import LocalOperations
from onward.operations.requests import AddPipeline, GetPipeline, SubmitRun
from tests.world import World, chain, line

SOURCE = f"digraph p {{ start [shape=Mdiamond]; exit [shape=Msquare]; a [type=double]; {chain('a')} }}"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Onward:
    monkeypatch.chdir(tmp_path)
    app = Onward(":memory:")

    @app.handler("double")
    async def double(step: StepContext) -> dict[str, int]:
        return {"doubled": 2 * step.get("n")}

    return app


async def test_an_app_registers_a_text_and_runs_it_by_its_name(app: Onward) -> None:
    async with app:
        added = await app.add_pipeline(await app.pipeline(SOURCE), name="doubling", by="ann")
        assert (added["name"], added["version"], added["is_new"]) == ("doubling", 1, True)
        run = await app.run("doubling", inputs={"n": 4})
        assert (run.pipeline, run.pipeline_version, run.context["doubled"]) == ("doubling", 1, 8)
        assert (await app.run("doubling@1", inputs={"n": 1})).context["doubled"] == 2
        assert [one["name"] for one in (await app.list_pipelines())["pipelines"]] == ["doubling"]


async def test_an_app_registers_a_file_under_the_name_of_its_graph(app: Onward, tmp_path: Path) -> None:
    (tmp_path / "file.dot").write_text(SOURCE)
    async with app:
        await app.add_pipeline("file.dot")
        page = await app.show_pipeline("p")
        assert (page["source"], page["versions"][0]["file"]) == (SOURCE, str(tmp_path / "file.dot"))
        (tmp_path / "file.dot").write_text("digraph p { a -> b }")
        with pytest.raises(InvalidPipeline):
            await app.add_pipeline("file.dot")


async def test_an_app_submits_by_name_and_a_key_stays_one_run_whatever_is_enabled(app: Onward) -> None:
    async with app:
        await app.add_pipeline(await app.pipeline(SOURCE), name="doubling")
        first = await app.submit("doubling", inputs={"n": 1}, key="once")
        await app.add_pipeline(await app.pipeline(SOURCE + "\n"), name="doubling")
        assert (await app.submit("doubling", inputs={"n": 1}, key="once")).id == first.id
        assert first.pipeline_version == 1
        many = await app.submit_many("doubling", [{"n": 2}, {"n": 3}])
        assert [run.pipeline_version for run in many] == [2, 2]
        assert (await app.enable_pipeline("doubling", 1))["enabled"] == 1
        assert (await app.submit("doubling", inputs={"n": 1})).pipeline_version == 1


async def test_an_app_refuses_a_name_that_is_neither_registered_nor_a_file(app: Onward) -> None:
    async with app:
        await app.add_pipeline(await app.pipeline(SOURCE), name="doubling")
        with pytest.raises(
            PipelineNotFound, match=r"there is no file doublin here, .* did you mean doubling\?"
        ):
            await app.run("doublin")
        await app.remove_pipeline("doubling", by="ann")
        with pytest.raises(PipelineNotFound, match="the pipeline doubling was removed by ann"):
            await app.submit("doubling")


async def test_the_inputs_of_a_pipeline_are_checked_before_a_run_exists_and_shown(world: World) -> None:
    source = line("a").replace(
        "{", '{ graph [inputs="topic, pages", input.pages.type=int, input.pages.default=3]', 1
    )
    process = await world.process()
    operations = LocalOperations(process.engine, process.clock)
    await operations.pipelines.add_pipeline(AddPipeline(source=source, name="site"))
    (topic, pages) = (await operations.pipelines.show_pipeline(GetPipeline(name="site")))["inputs"]
    assert (topic["name"], topic["required"]) == ("topic", True)
    assert (pages["type"], pages["default"]) == ("int", 3)
    with pytest.raises(InvalidInput, match="needs the input 'topic'"):
        await operations.start.submit_run(SubmitRun(pipeline="site", run_id="one"))
    made = await operations.start.submit_run(
        SubmitRun(pipeline="site", run_id="one", inputs={"topic": "tea", "pages": "7"})
    )
    assert made["run"]["context"]["pages"] == 7
