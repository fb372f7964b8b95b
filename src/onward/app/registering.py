"""What a program registers with its app: handlers, transforms, rules and interviewers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar, cast

from onward.config import own_environment
from onward.engine.control.interview import AutoApprove, CallbackInterviewer, Interviewer
from onward.errors import InvalidInput
from onward.handlers.function import FunctionHandler, Returned
from onward.handlers.isolated import IsolatedHandler, importable
from onward.handlers.isolation import ANSWER_BYTES_MAX
from onward.handlers.port import Handler
from onward.pipeline.build import Transform
from onward.pipeline.prepare import checked_transform
from onward.pipeline.rules.check import RULES, Problem, Rule, Subject
from onward.pipeline.rules.custom import custom_rule, with_one_severity
from onward.pipeline.rules.tools import rules_beside
from onward.process import SystemSpawn

# An isolated function is given an IsolatedStep, any other a StepContext.
F = TypeVar("F", bound=Callable[[Any], Returned | Awaitable[Returned]])
TransformT = TypeVar("TransformT", bound=Transform)
RuleT = TypeVar("RuleT", bound=Callable[[Subject], Iterable[Problem]])
AnswersT = TypeVar("AnswersT", bound=Callable[..., Any] | Interviewer)


class Registering:
    """An app's handlers, transforms, rules and interviewers."""

    def __init__(self) -> None:
        self._spawn = SystemSpawn(output_bytes_max=ANSWER_BYTES_MAX)
        self.handlers: dict[str, Handler] = {}
        self.transforms: list[Transform] = []
        self.rules: list[Rule] = list(RULES)
        self.interviewers: dict[str, Interviewer] = {"auto": AutoApprove()}

    def handler(self, kind: str, *, isolated: bool = False) -> Callable[[F], F]:
        """Register a function as the handler of a node `type`; a name that exists is replaced.

        `isolated`: call it in its own process, which can be ended at any time. Another process must be able
        to import the function: it is not async, and at the top level of a module.
        """
        if not kind:
            raise InvalidInput("a handler needs a type name: @app.handler('name').")

        def register(function: F) -> F:
            self.handlers[kind] = self._isolated(function) if isolated else FunctionHandler(function)
            self.rules[:] = rules_beside(kind, self.rules)
            return function

        return register

    def _isolated(self, function: Callable[..., Any]) -> Handler:
        return IsolatedHandler(importable(function), self._spawn, own_environment)

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
        if not name:
            raise InvalidInput("an interviewer needs a name: @app.interviewer('name').")

        def register(who: AnswersT) -> AnswersT:
            is_function = not hasattr(who, "ask")
            self.interviewers[name] = (
                CallbackInterviewer(name, cast("Callable[..., Any]", who))
                if is_function
                else cast("Interviewer", who)
            )
            return who

        return register
