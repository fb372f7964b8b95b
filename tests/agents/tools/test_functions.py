"""Functions of a program as tools: their types are the schema, and a mistake is named where it was made."""

from __future__ import annotations

import asyncio
import enum
import threading
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pytest

from onward import Onward, StepContext, ToolUse
from onward.agents.tools.functions import FunctionTool, FunctionTools, function_tool
from onward.agents.tools.port import ToolAnswer, ToolRefused, ToolRules
from onward.agents.tools.schema import check_schema, problems
from onward.agents.tools.toolbox import Toolbox
from onward.errors import CallTimedOut, InvalidInput, Refused
from onward.handlers.user_functions import PATIENCE_S
from onward.testing.clock import ManualClock
from tests.agents.tools.using import a_step, used


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Place:
    city: str
    tags: list[str] = field(default_factory=list)


class Box(msgspec.Struct):
    width: int
    height: int = 1


class Options(TypedDict):
    deep: bool
    note: NotRequired[str]


class Tree(msgspec.Struct):
    name: str
    below: list[Tree] = []


def tool_of(function: Any, **more: Any) -> FunctionTool:
    """The function as a tool, described if it is not."""
    function.__doc__ = function.__doc__ or "Do it."
    return function_tool(function, rules=more.pop("rules", ToolRules()), where="here", **more)


def text(a: str) -> None: ...
def whole(a: int) -> None: ...
def number(a: float) -> None: ...
def switch(a: bool) -> None: ...
def nothing(a: None) -> None: ...
def literal(a: Literal["x", 3]) -> None: ...
def colour(a: Colour) -> None: ...
def texts(a: list[str]) -> None: ...
def pair(a: tuple[int, str]) -> None: ...
def table(a: dict[str, int]) -> None: ...
def maybe(a: int | None) -> None: ...
def place(a: Place) -> None: ...
def box(a: Box) -> None: ...
def options(a: Options) -> None: ...
def described(a: Annotated[str, "where it is"]) -> None: ...
def bounded(a: Annotated[int, msgspec.Meta(ge=1), "how many"]) -> None: ...
def described_colour(a: Annotated[Colour, "which one"]) -> None: ...
def anything(a: Any) -> None: ...
def day(a: date) -> None: ...


PLACE = {
    "title": "Place",
    "type": "object",
    "properties": {"city": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["city"],
}
SCHEMAS: list[tuple[Any, dict[str, Any]]] = [
    (text, {"type": "string"}),
    (whole, {"type": "integer"}),
    (number, {"type": "number"}),
    (switch, {"type": "boolean"}),
    (nothing, {"type": "null"}),
    (literal, {"enum": [3, "x"]}),
    (colour, {"title": "Colour", "enum": ["blue", "red"]}),
    (texts, {"type": "array", "items": {"type": "string"}}),
    (table, {"type": "object", "additionalProperties": {"type": "integer"}}),
    (maybe, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
    (place, PLACE),
    (described, {"type": "string", "description": "where it is"}),
    (bounded, {"type": "integer", "minimum": 1, "description": "how many"}),
    (described_colour, {"title": "Colour", "enum": ["blue", "red"], "description": "which one"}),
    (anything, {}),
    (day, {"type": "string", "format": "date"}),
]


@pytest.mark.parametrize(("function", "schema"), SCHEMAS)
def test_the_type_of_a_parameter_is_its_schema(function: Any, schema: dict[str, Any]) -> None:
    parameters = tool_of(function).described.parameters
    assert parameters == {
        "type": "object",
        "properties": {"a": schema},
        "required": ["a"],
        "additionalProperties": False,
    }
    check_schema(parameters, "it")


CONVERSIONS: list[tuple[Any, Any, Any]] = [
    (text, "x", "x"),
    (number, 3, 3.0),
    (colour, "red", Colour.RED),
    (pair, [1, "x"], (1, "x")),
    (table, {"x": 1}, {"x": 1}),
    (maybe, None, None),
    (place, {"city": "Ulm"}, Place("Ulm")),
    (box, {"width": 2}, Box(2)),
    (options, {"deep": True}, {"deep": True}),
    (day, "2026-02-01", date(2026, 2, 1)),
]


@pytest.mark.parametrize(("described_by", "given", "expected"), CONVERSIONS)
async def test_an_argument_is_converted_to_the_type_of_its_parameter(
    described_by: Any, given: Any, expected: Any
) -> None:
    got: list[Any] = []

    async def noting(a: Any) -> None:
        """Note it."""
        got.append(a)

    noting.__annotations__ = {"a": described_by.__annotations__["a"]}
    noting.__globals__.update(globals())
    tool = tool_of(noting)
    assert problems(tool.described.parameters, {"a": given}) == []
    await used(tool, {"a": given})
    assert got == [expected]
    assert type(got[0]) is type(expected)


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (whole, "3"),
        (whole, 1.5),
        (switch, 1),
        (colour, "green"),
        (literal, "y"),
        (place, {"tags": []}),
        (box, {"width": "2"}),
        (maybe, "x"),
        (pair, [1]),
    ],
)
async def test_an_argument_of_another_type_is_refused_by_schema_and_function(
    function: Any, given: Any
) -> None:
    tool = tool_of(function)
    assert problems(tool.described.parameters, {"a": given})
    with pytest.raises(ToolRefused, match="do not fit"):
        await used(tool, {"a": given})


async def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(ToolRefused, match="`b`"):
        await used(tool_of(text), {"a": "x", "b": 1})


async def test_what_is_not_given_has_the_functions_own_default() -> None:
    def find(word: str, most: int = 10, where: Place | None = None, tags: list[str] = ["a"]) -> str:  # noqa: B006
        """Find it."""
        return f"{word} {most} {where} {tags}"

    tool = tool_of(find)
    properties = tool.described.parameters["properties"]
    assert tool.described.parameters["required"] == ["word"]
    assert (properties["most"]["default"], properties["tags"]["default"]) == (10, ["a"])
    assert await used(tool, {"word": "x"}) == ToolAnswer("x 10 None ['a']")


def test_a_type_that_holds_itself_is_described_once() -> None:
    def plant(tree: Tree) -> None:
        """Plant it."""

    parameters = tool_of(plant).described.parameters
    assert parameters["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    check_schema(parameters, "it")
    assert problems(parameters, {"tree": {"name": "a", "below": [{"name": "b"}]}}) == []
    assert problems(parameters, {"tree": {"name": "a", "below": [{}]}}) == ["`tree.below[0].name` is missing"]


async def test_a_parameter_of_the_type_of_a_step_gets_the_step() -> None:
    async def where(step: StepContext, word: str) -> str:
        """Say where."""
        return f"{step.step} {word}"

    tool = tool_of(where)
    assert list(tool.described.parameters["properties"]) == ["word"]
    assert await used(tool, {"word": "x"}) == ToolAnswer("a#1 x")


async def test_a_parameter_of_the_type_of_a_use_gets_the_use_with_its_key() -> None:
    def pay(amount: int, use: ToolUse) -> str:
        """Pay."""
        return f"{amount} {use.key} {use.step.step}"

    tool = tool_of(pay)
    assert list(tool.described.parameters["properties"]) == ["amount"]
    assert await used(tool, {"amount": 3}) == ToolAnswer("3 m1.t1 a#1")


def untyped(a, b: int) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Do it."""


def many(*words: str) -> None:
    """Do it."""


def unknown_type(a: int, b: NoSuchType) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Do it."""


def strange(a: int, b: threading.Lock) -> None:
    """Do it."""


def two_tables(a: Box | Tree) -> None:
    """Do it."""


def undocumented(a: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (untyped, "here: the tool 'untyped': the parameter 'a' has no type; write one, such as a: str"),
        (many, "the parameter *words: 'str' has no name"),
        (unknown_type, "the types of its parameters, 'b' first, cannot be read (name 'NoSuchType'"),
        (strange, "no schema can be made for the parameter 'b'"),
        (two_tables, "no schema can be made for the parameter 'a'"),
        (undocumented, "has no docstring"),
        (lambda a: a, "'<lambda>' cannot be the name of a tool"),
        (Place, "is not a function"),
        (3, "is not a function"),
    ],
)
def test_a_function_that_cannot_be_described_is_refused(function: Any, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        function_tool(function, rules=ToolRules(), where="here")
    assert told in str(refused.value)
    assert str(refused.value).startswith("here: ")


@pytest.mark.parametrize("name", ["", "with space", "x" * 65, "ü", "1st", "a.b"])
def test_a_name_that_a_provider_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be the name of a tool"):
        tool_of(text, name=name)


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        ("as it is\n", "as it is\n"),
        (None, "null"),
        ({"a": [1, True]}, '{"a":[1,true]}'),
        (Place("Ulm"), '{"city":"Ulm","tags":[]}'),
        (date(2026, 2, 1), '"2026-02-01"'),
        ({"price": Decimal("1.50"), "in": {Path("b"), Path("a")}}, '{"price":"1.50","in":["a","b"]}'),
        (ToolAnswer("no", is_error=True), None),
    ],
)
async def test_a_text_is_shown_as_it_is_and_anything_else_as_json(returned: Any, shown: str | None) -> None:
    def give() -> Any:
        """Give it."""
        return returned

    assert await used(tool_of(give)) == (returned if shown is None else ToolAnswer(shown))


async def test_what_is_no_json_is_no_reason_to_use_the_tool_again() -> None:
    def give() -> Any:
        """Give it."""
        return threading.Lock()

    answer = await used(tool_of(give))
    assert not answer.is_error
    assert "do not use it again" in answer.text
    assert "is a lock, which cannot be stored" in answer.text


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no such part"), "ValueError: no such part"),
        (KeyError(), "KeyError"),
        (TimeoutError("its own"), "TimeoutError: its own"),
        (SystemExit(3), "SystemExit: 3"),
        (StopIteration("x"), "StopIteration"),
        (InvalidInput("no."), "InvalidInput: no."),
    ],
)
async def test_an_exception_is_an_answer_without_its_traceback(
    error: BaseException, told: str, is_async: bool
) -> None:
    def plain() -> None:
        """Fail."""
        raise error

    async def not_plain() -> None:
        """Fail."""
        raise error

    answer = await used(tool_of(not_plain if is_async else plain))
    assert answer.is_error
    assert told in answer.text
    assert "Traceback" not in answer.text


async def test_an_attempt_that_is_over_is_no_answer() -> None:
    """The model must not see what is wrong with the run."""

    async def late(step: StepContext) -> None:
        """Do it."""
        step.functions.check_open()

    step = a_step()
    step.functions.close()
    with pytest.raises(Refused, match="has ended"):
        await used(tool_of(late), step=step)


async def test_an_async_function_is_ended_at_its_time_limit() -> None:
    clock, began, ended = ManualClock(), asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        """Take long."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    using = asyncio.create_task(used(tool_of(slow, clock=clock), time_limit_s=5))
    await began.wait()
    clock.advance(6)
    with pytest.raises(CallTimedOut, match=r"m1.t1.* 5 s"):
        await using
    assert ended.is_set()


async def test_a_thread_that_is_late_still_answers_if_it_returns_soon() -> None:
    clock, go = ManualClock(autojump=False), threading.Event()

    def slow() -> str:
        """Take long."""
        go.wait(60)
        return "late"

    using = asyncio.create_task(used(tool_of(slow, clock=clock), time_limit_s=5))
    await asyncio.sleep(0)
    clock.advance(10)
    await asyncio.sleep(0)
    assert not using.done()
    go.set()
    assert await using == ToolAnswer("late")


async def test_a_thread_that_does_not_end_stays_known_to_its_step() -> None:
    """As of a plain handler: no other attempt of the step begins beside it."""
    step, clock, go = a_step(), ManualClock(autojump=False), threading.Event()

    def stuck() -> None:
        """Never end."""
        go.wait(60)

    using = asyncio.create_task(used(tool_of(stuck, clock=clock), step=step, time_limit_s=5))
    await asyncio.sleep(0)
    clock.advance(5 + PATIENCE_S + 1)
    with pytest.raises(CallTimedOut):
        await using
    assert step.functions.is_busy()
    go.set()
    assert await step.functions.wait_idle()


async def test_a_cancelled_use_cancels_an_async_function() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        """Take long."""
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    using = asyncio.create_task(used(tool_of(slow)))
    await began.wait()
    using.cancel()
    await asyncio.wait([using])
    assert using.cancelled()
    assert ended.is_set()


async def test_an_app_offers_what_is_registered_with_it() -> None:
    app = Onward(":memory:")

    @app.tool
    def add(a: int, b: int) -> int:
        """Add two numbers.

        The second may be negative.
        """
        return a + b

    @app.tool(name="deploy-now", repeatable=False, approval=True, time_limit_s=5)
    async def deploy(target: str) -> str:
        """Deploy it."""
        return f"deployed to {target}"

    assert add(1, 2) == 3
    assert app.tools["add"].described.description == "Add two numbers.\n\nThe second may be negative."
    assert app.tools["deploy-now"].rules == ToolRules(repeatable=False, approval=True, time_limit_s=5)
    source = FunctionTools(app.tools)
    step = a_step('allowed_tools="add, deploy*"')
    offered = await Toolbox([source]).of(step)
    assert sorted(offered) == ["add", "deploy-now"]
    assert await used(offered["add"].tool, {"a": 1, "b": 2}) == ToolAnswer("3")
    assert [tool.described.name for tool in await source.tools(step, ["add"])] == ["add"]
    assert source.check_name("dep*", step.node)
    assert not source.check_name("sub", step.node)


def test_two_tools_of_one_name_are_refused() -> None:
    app = Onward(":memory:")
    text.__doc__ = number.__doc__ = "Do it."
    app.tool(text)
    with pytest.raises(InvalidInput, match=r"test_functions.py:\d+: a tool 'text' already exists"):
        app.tool(text)
    app.tool(name="text", approval=True, replace=True)(number)
    assert app.tools["text"].rules.approval


@pytest.mark.parametrize(
    "how", [{"time_limit_s": 0}, {"time_limit_s": "5"}, {"repeatable": "no"}, {"output_characters": 0}]
)
def test_rules_that_cannot_be_kept_are_refused(how: dict[str, Any]) -> None:
    app = Onward(":memory:")
    with pytest.raises(InvalidInput, match=f"the tool 'add': {next(iter(how))} is"):

        @app.tool(**how)
        def add(a: int) -> None:
            """Add."""
