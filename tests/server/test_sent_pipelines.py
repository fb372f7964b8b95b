"""What a pipeline that is sent over HTTP may name: nothing that the machine of the server has."""

from __future__ import annotations

import pytest

from onward.operations.requests import AddPipeline
from tests.server.door import a_door
from tests.world import line

ENDS = "start [shape=Mdiamond]; exit [shape=Msquare]"
CHILD = 'shape=house, stack.child_dotfile="{}"'
SOURCES = {
    "tool_command": 'a [shape=parallelogram, tool_command="id"]; start -> a -> exit',
    "tool_hooks.pre": 'graph [tool_hooks.pre="id"]; a [prompt=x]; start -> a -> exit',
    "tool_hooks.post": 'a [prompt=x, tool_hooks.post="id"]; start -> a -> exit',
    "workspace": 'workspace="/etc"; a [prompt=x]; start -> a -> exit',
    "stack.child_workdir": f'a [{CHILD.format("other")}, stack.child_workdir="/etc"]; start -> a -> exit',
    "agent_program": 'a [prompt=x, agent_program="command:id"]; start -> a -> exit',
}
DEFAULTS = {
    "tool_command": 'node [tool_command="id"]; a [shape=parallelogram]; start -> a -> exit',
    "tool_hooks.pre": 'subgraph s { node [tool_hooks.pre="id"]; a [prompt=x] } start -> a -> exit',
    "agent_program": 'model_stylesheet="* { agent_program: \\"command:id\\" }"; a; start -> a -> exit',
}


def source(body: str) -> str:
    return f"digraph sent {{ {ENDS}; {body} }}"


@pytest.mark.parametrize(
    ("key", "body"), [*SOURCES.items(), *DEFAULTS.items()], ids=lambda it: it if len(it) < 30 else ""
)
async def test_a_pipeline_that_is_sent_names_no_commands_and_no_places(key: str, body: str) -> None:
    """S9, S10: nobody may, whatever their role; nothing is stored. Who allows it is the operator."""
    async with a_door() as door:
        reply = await door.ask("PUT", "/api/pipelines/sent", {"source": source(body)})
        assert (reply.status, reply.code) == (403, "not_over_http"), reply.body
        assert key in {one["key"] for one in reply.json["details"]["found"]}
        assert "`" not in reply.json["detail"]
        assert "onward pipelines add" in reply.json["advice"]
        assert (await door.get("/api/pipelines")).json["pipelines"] == []
    async with a_door(shell=True) as door:
        reply = await door.ask("PUT", "/api/pipelines/sent", {"source": source(body)})
        assert reply.code != "not_over_http"


async def test_a_source_of_a_run_is_judged_alike() -> None:
    """S9: `inline` allows to send a source with a run, and not what is in it."""
    async with a_door(inline=True) as door:
        text = source(SOURCES["tool_command"])
        reply = await door.post("/api/runs", {"source": text}, role="operator")
        assert (reply.status, reply.code) == (403, "not_over_http")
        reply = await door.post("/pipelines", {"dot": text}, role="operator")
        assert (reply.status, reply.code) == (403, "not_over_http")
        child = source(f"a [{CHILD.format('./other.dot')}]; start -> a -> exit")
        reply = await door.post("/api/runs", {"source": child}, role="operator")
        assert reply.code in ("not_over_http", "invalid_pipeline")
        assert (await door.post("/api/runs", {"source": line("a")}, role="operator")).status == 201
        assert [run["pipeline"] for run in (await door.get("/api/runs")).json["runs"]] == ["line"]


async def test_who_asks_cannot_allow_it() -> None:
    """S8: it is no field of a body."""
    async with a_door() as door:
        body = {"source": source(SOURCES["tool_command"]), "may_run_commands": True}
        assert (await door.ask("PUT", "/api/pipelines/sent", body)).code == "invalid_input"


async def test_what_was_registered_on_the_machine_may_be_started() -> None:
    async with a_door() as door:
        text = source(SOURCES["tool_command"])
        await door.context.operations.pipelines.add_pipeline(AddPipeline(source=text, name="here"))
        assert (await door.post("/api/runs", {"pipeline": "here"}, role="operator")).status == 201
