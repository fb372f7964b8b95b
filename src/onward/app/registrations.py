"""What a program registers with its app: handlers, tools, transforms, rules and interviewers."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import msgspec

from onward.config import own_environment
from onward.engine.control.requests import AutoApprove, CallbackInterviewer, Interviewer
from onward.errors import InvalidInput
from onward.handlers.function import (
    ANSWER_BYTES_MAX,
    Elsewhere,
    FunctionHandler,
    IsolatedHandler,
    Returned,
    importable,
)
from onward.handlers.port import Handler
from onward.model.events import STDERR
from onward.model.values import shown
from onward.pipeline.build import Transform, checked_transform
from onward.pipeline.rules.check import (
    RULES,
    Problem,
    Rule,
    Subject,
    custom_rule,
    secret_rule,
    with_one_severity,
)
from onward.pipeline.rules.steps import rules_beside
from onward.process import SystemSpawn
from onward.redact.redactor import Redactor, cleaner_of

if TYPE_CHECKING:
    from onward.agents.tools.port import AgentTool, ToolRules


# An isolated function is given an IsolatedStep, any other a StepContext.
F = TypeVar("F", bound=Callable[[Any], Returned | Awaitable[Returned]])
TransformT = TypeVar("TransformT", bound=Transform)
RuleT = TypeVar("RuleT", bound=Callable[[Subject], Iterable[Problem]])
ToolT = TypeVar("ToolT", bound=Callable[..., Any])
AnswersT = TypeVar("AnswersT", bound=Callable[..., Any] | Interviewer)


class AppRegistrations:
    """An app's handlers, transforms, rules and interviewers."""

    def __init__(self, redactor: Redactor) -> None:
        self.redactor = redactor
        """Knows the secrets that are stored nowhere; `add` those that the environment does not have."""
        # Standard output is the answer: it is read first, and redacted then.
        cleaner = cleaner_of(lambda: self.redactor, streams=(STDERR,))
        spawn = SystemSpawn(output_bytes_max=ANSWER_BYTES_MAX, cleaner=cleaner)
        self._elsewhere = Elsewhere(spawn, own_environment)
        self.handlers: dict[str, Handler] = {}
        self._places: dict[str, str] = {}  # where each handler was registered
        self.tools: dict[str, AgentTool] = {}
        """The functions that agents may use, by name."""
        self.transforms: list[Transform] = []
        self.rules: list[Rule] = [*RULES, secret_rule(lambda text: self.redactor.knows(text))]
        self.interviewers: dict[str, Interviewer] = {"auto": AutoApprove()}

    def handler(self, kind: str, *, isolated: bool = False, replace: bool = False) -> Callable[[F], F]:
        """Register a function as the handler of the nodes with this `type`; a built-in type may be replaced.

        `isolated`: call it in its own process, which can be ended at any time. Another process must be able
        to import the function: it is not async, and at the top level of a module. `replace`: a handler of
        this name that was registered before, instead of an error; for notebooks and tests.
        """
        _check_named(kind, "handler", "type")

        def register(function: F) -> F:
            place = _place(1)
            _check_function(function, kind, place)
            if kind in self._places and not replace:
                raise InvalidInput(
                    f"{place}: there is a handler {kind!r} already, registered at {self._places[kind]}; "
                    "choose another name, or say replace=True."
                )
            self.handlers[kind] = self._isolated(function) if isolated else FunctionHandler(function)
            self._places[kind] = place
            self.rules[:] = rules_beside(kind, self.rules)
            return function

        return register

    def _isolated(self, function: Callable[..., Any]) -> Handler:
        return IsolatedHandler(importable(function), self._elsewhere)

    @overload
    def tool(self, function: ToolT, /) -> ToolT: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        repeatable: bool = True,
        approval: bool = False,
        time_limit_s: float | None = None,
        output_characters: int | None = None,
        concurrent: bool = True,
        isolated: bool = False,
        replace: bool = False,
    ) -> Callable[[ToolT], ToolT]: ...

    def tool(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        repeatable: bool = True,
        approval: bool = False,
        time_limit_s: float | None = None,
        output_characters: int | None = None,
        concurrent: bool = True,
        isolated: bool = False,
        replace: bool = False,
    ) -> Any:
        """Register a function that agents may use: `@app.tool`, or with options `@app.tool(approval=True)`.

        Its docstring tells the model what it is for, and the types of its parameters are the schema of its
        arguments; `Annotated[str, "text"]` describes one. A parameter of the type StepContext gets the step,
        one of the type ToolUse the use with its `key`.
        `repeatable=False`: a use whose process died in the middle is in doubt, and a person decides.
        `approval`: a person must allow each use. After `time_limit_s` (120) a use is ended; the model sees
        `output_characters` (30,000) of an answer. `concurrent=False`: it is not used at the same time as
        other tools that an answer asks for. `isolated`: call it in its own process, which can be ended at any
        time, as `handler` says. `replace`: a tool of this name that was registered before.
        """
        from onward.agents.tools.port import ToolRules  # here, as most apps have none

        rules = ToolRules(repeatable=repeatable, approval=approval, is_concurrent=concurrent)
        if time_limit_s is not None:
            rules = msgspec.structs.replace(rules, time_limit_s=time_limit_s)
        if output_characters is not None:
            rules = msgspec.structs.replace(rules, output_characters=output_characters)
        if function is not None:
            return self._add_tool(function, name, rules, isolated=isolated, replace=replace, place=_place(1))

        def register(function: ToolT) -> ToolT:
            return self._add_tool(function, name, rules, isolated=isolated, replace=replace, place=_place(1))

        return register

    def _add_tool(
        self,
        function: ToolT,
        name: str | None,
        rules: ToolRules,
        *,
        isolated: bool,
        replace: bool,
        place: str,
    ) -> ToolT:
        from onward.agents.tools.functions import IsolatedTool, function_tool

        tool = function_tool(function, rules=rules, where=place, name=name)
        made: AgentTool = tool
        if isolated:
            made = IsolatedTool(tool, importable(function, "tool"), self._elsewhere)
        if made.described.name in self.tools and not replace:
            raise InvalidInput(
                f"{place}: there is a tool {made.described.name!r} already; choose another name with "
                "@app.tool(name='…'), or say replace=True."
            )
        self.tools[made.described.name] = made
        return function

    def transform(self, function: TransformT) -> TransformT:
        """Register a function from graph to graph, or an object with such an `apply`.

        They apply in order, after `$goal` and the stylesheet and before the checks, in every command.
        """
        self.transforms.append(checked_transform(function))
        return function

    def rule(self, name: str, severity: str = "warning") -> Callable[[RuleT], RuleT]:
        """Register a function that yields the `Problem`s it finds in a `Subject` as a rule of the checker."""

        def register(function: RuleT) -> RuleT:
            self.rules.append(custom_rule(name, severity, function))
            return function

        return register

    def severity(self, rule: str, severity: str) -> None:
        """Change the severity of a rule: `app.severity("reachability", "warning")`."""
        self.rules[:] = with_one_severity(self.rules, rule, severity)

    def interviewer(self, name: str) -> Callable[[AnswersT], AnswersT]:
        """Register who answers gates under a name: an interviewer, or a function `(run, gate) -> answer`.

        The function may be async. It returns an `Answer`, a choice or words, True or False for a verdict, or
        None to leave the gate open.
        """
        _check_named(name, "interviewer", "name")

        def register(who: AnswersT) -> AnswersT:
            is_function = not hasattr(who, "ask")
            self.interviewers[name] = (
                CallbackInterviewer(name, cast("Callable[..., Any]", who))
                if is_function
                else cast("Interviewer", who)
            )
            return who

        return register


def _place(above: int) -> str:
    """The line of the user's code that registers something, so many calls above the caller of this."""
    frame = sys._getframe(above + 1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _check_named(name: object, what: str, kind: str) -> None:
    """Refuse a decorator that was written without its parentheses, and an empty name."""
    if callable(name):
        called = getattr(name, "__name__", "name")
        raise InvalidInput(
            f"{_place(2)}: @app.{what} needs a {kind}: write @app.{what}({called!r}) above {called}."
        )
    if not isinstance(name, str) or not name:
        raise InvalidInput(
            f"@app.{what} needs a {kind}, and {shown(name)} is none; write @app.{what}('name')."
        )


def _check_function(function: object, kind: str, place: str) -> None:
    """Refuse what cannot be called with a step."""
    if isinstance(function, type):
        raise InvalidInput(
            f"{place}: the handler {kind!r} is the class {function.__qualname__}, and must be a function; "
            "register a function that uses the class, or an object of it that can be called."
        )
    if not callable(function):
        raise InvalidInput(
            f"{place}: the handler {kind!r} is {shown(function)}, and must be a function that takes a step."
        )
