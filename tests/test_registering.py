"""What a program registers: a mistake is named where it was made."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import onward
from onward import Onward, StepContext
from onward.errors import InvalidInput


@pytest.fixture
def app() -> Onward:
    return Onward(":memory:")


def here() -> str:
    """The line above the call of this."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno - 1}"


@pytest.mark.parametrize("store", [None, ""])
def test_an_app_without_a_database_is_refused(store: Any) -> None:
    with pytest.raises(InvalidInput, match="names no database; give a path or a postgresql:// address"):
        Onward(store)


def test_the_path_of_a_database_may_be_a_path(tmp_path: Path) -> None:
    assert Onward(tmp_path / "runs.db").store == str(tmp_path / "runs.db")


async def greet(step: StepContext) -> None:
    return None


def test_a_handler_without_parentheses_is_told_how_to_write_it(app: Onward) -> None:
    decorator: Any = app.handler
    with pytest.raises(InvalidInput) as refused:
        decorator(greet)
    place = here()
    assert str(refused.value) == (
        f"{place}: @app.handler needs a type: write @app.handler('greet') above greet."
    )
    assert app.handlers == {}


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_handler_needs_a_name(app: Onward, name: Any) -> None:
    with pytest.raises(InvalidInput, match=r"needs a type, and .* is not one; write @app.handler\('name'\)"):
        app.handler(name)


def test_an_interviewer_without_parentheses_is_told_how_to_write_it(app: Onward) -> None:
    decorator: Any = app.interviewer
    with pytest.raises(InvalidInput, match=r"write @app.interviewer\('greet'\) above greet"):
        decorator(greet)


class Greeter:
    def __call__(self, step: StepContext) -> None:
        return None


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (Greeter, "the handler 'greet' is the class Greeter, and must be a function"),
        (7, "the handler 'greet' is 7, and must be a function that takes a step"),
        (None, "the handler 'greet' is None"),
        ("greet", "the handler 'greet' is 'greet'"),
    ],
)
def test_a_handler_that_is_no_function_is_refused(app: Onward, what: Any, says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        app.handler("greet")(what)
    place = here()
    assert str(refused.value).startswith(f"{place}: {says}")
    assert app.handlers == {}


def takes_nothing() -> None:
    return None


def takes_two(step: StepContext, more: str) -> None:
    return None


@pytest.mark.parametrize("what", [takes_nothing, takes_two])
def test_a_handler_that_takes_no_step_is_refused_when_it_is_registered(app: Onward, what: Any) -> None:
    with pytest.raises(InvalidInput, match=r"'greet' cannot be called with one argument, the step; give it"):
        app.handler("greet")(what)
    assert app.handlers == {}


def test_an_object_that_can_be_called_is_a_handler(app: Onward) -> None:
    app.handler("greet")(Greeter())
    assert list(app.handlers) == ["greet"]


def test_a_second_handler_of_one_name_names_the_place_of_the_first(app: Onward) -> None:
    app.handler("greet")(greet)
    first, handler = here(), app.handlers["greet"]
    with pytest.raises(InvalidInput) as refused:
        app.handler("greet")(greet)
    second = here()
    assert str(refused.value) == (
        f"{second}: a handler 'greet' is already registered at {first}; choose another name, or pass "
        "replace=True."
    )
    assert app.handlers["greet"] is handler
    app.handler("greet", replace=True)(greet)
    assert app.handlers["greet"] is not handler


def test_a_built_in_type_may_have_a_handler_of_the_app(app: Onward) -> None:
    app.handler("tool")(greet)
    assert list(app.handlers) == ["tool"]


def test_the_public_names_are_what_dir_shows() -> None:
    assert dir(onward) == sorted(onward.__all__)
    for name in onward.__all__:
        assert getattr(onward, name).__name__ == name
    with pytest.raises(AttributeError, match="module 'onward' has no attribute 'nothing'"):
        onward.nothing  # noqa: B018 - the point
