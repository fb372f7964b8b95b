"""What must come of a program, by the rules of the dialect. It reads the program, never the graph.

Nothing of the engine is used here, so that a mistake there cannot be repeated here.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tests.dialect.program import (
    MAX_REROUTES,
    Block,
    Choice,
    Gate,
    Goal,
    Loop,
    Parallel,
    Statement,
    Work,
    all_statements,
    answer_of,
    end_of,
    join_of,
    judge_of,
)

SUCCESS, PARTIAL, FAIL = "success", "partial_success", "fail"
RANKS = (SUCCESS, PARTIAL, FAIL)
LABELS = {"Y": "[Y] yes", "N": "[N] no"}


@dataclass
class Prediction:
    """What must come of a program. `steps` are the finished ones of every line, in order.

    `attempts` are how often each effect is tried if nothing happens to the process; those in `hopeless` get
    new tries from whoever resumes.
    """

    steps: dict[str, list[str]] = field(default_factory=dict)
    statuses: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    hopeless: set[str] = field(default_factory=set)
    context: dict[str, Any] = field(default_factory=dict)
    reroutes: int = 0
    reason: str = ""

    @property
    def status(self) -> str:
        return "failed" if self.reason not in ("", "dead_end") else "completed"


class LineFailed(Exception):
    """Nothing leads on from here."""


class NoWayOn(LineFailed):
    """There are edges, and none of them can be taken."""


class LineEnded(Exception):
    """There are no edges, and this is not the exit."""


@dataclass
class Line:
    """The run itself, or a branch of it."""

    path: str
    context: dict[str, Any]
    steps: list[str]
    statuses: dict[str, str]
    last_node: str = ""
    last_status: str = SUCCESS
    label: str = ""
    visits: Counter[str] = field(default_factory=Counter)
    goals: dict[str, str] = field(default_factory=dict)

    def visit(self, node: str) -> str:
        """The full name of the node's next visit."""
        self.visits[node] += 1
        step = f"{node}#{self.visits[node]}"
        return f"{self.path}/{step}" if self.path else step

    def finish(self, step: str, status: str = SUCCESS, **changes: Any) -> None:
        self.steps.append(step.rpartition("/")[2])
        self.statuses[step] = status
        self.context.update({key.replace("__", "."): value for key, value in changes.items()})
        self.context["outcome"] = status
        self.last_node, self.last_status = self.steps[-1].partition("#")[0], status
        self.label = changes.get("preferred_label", "")

    def count(self, counter: str, add: int = 1) -> dict[str, Any]:
        number = self.context.get(f"count_{counter}", 0) + add
        return {f"count_{counter}": number, f"parity_{counter}": "odd" if number % 2 else "even"}


def is_conditional(statement: Statement | None) -> bool:
    """A failure goes on by a plain edge only if that leads to where outcomes are looked at."""
    return isinstance(statement, Choice) and not statement.is_counting


def predict(program: Block) -> Prediction:
    """Follow the program to its end."""
    prediction = Prediction()
    _Prophet(prediction).run(program)
    return prediction


class _Prophet:
    def __init__(self, prediction: Prediction) -> None:
        self.all = prediction

    def run(self, program: Block) -> None:
        root = Line("", self.all.context, self.all.steps.setdefault("", []), self.all.statuses)
        root.finish(root.visit("start"))
        ahead, is_at_exit = program, True
        try:
            while True:
                try:
                    self.block(root, ahead)
                    is_at_exit = True
                except LineEnded:
                    is_at_exit = False
                unmet = [name for name, status in root.goals.items() if status == FAIL]
                if not unmet:
                    break
                if self.all.reroutes == MAX_REROUTES:
                    self.all.reason = "goal_unmet"
                    return
                self.all.reroutes += 1
                ahead = self.back(program, unmet[0])
            if is_at_exit:
                root.finish(root.visit("exit"))
            else:
                self.all.reason = "dead_end"
        except NoWayOn:
            self.all.reason = "no_way_on"
        except LineFailed:
            self.all.reason = "step_failed"

    def back(self, program: Block, goal: str) -> Block:
        """From the outermost statement that the goal is in."""
        for number, statement in enumerate(program):
            if any(inner.name == goal for inner in all_statements((statement,))):
                return program[number:]
        raise AssertionError(goal)

    def block(self, line: Line, block: Block, onward: Statement | None = None) -> None:
        """`onward` is what comes behind the block, if it is a statement."""
        for statement, after in zip(block, (*block[1:], onward), strict=False):
            self.statement(line, statement, after)

    def statement(self, line: Line, statement: Statement, onward: Statement | None) -> None:
        match statement:
            case Work():
                self.work(line, statement, onward)
            case Goal(name=name):
                step = self.effect(line, name)
                is_first = all(piece.partition("#")[2].partition(".")[0] == "1" for piece in step.split("/"))
                line.goals[name] = FAIL if is_first else SUCCESS
                line.finish(step, line.goals[name], **line.count(name))
            case Choice(name=name, counter=counter, is_counting=is_counting):
                if is_counting:
                    line.finish(self.effect(line, name), **line.count(counter))
                else:
                    self.conditional(line, name)
                is_odd = line.context.get(f"count_{counter}", 0) % 2 == 1
                if not is_odd:
                    self.even(line, statement)
                self.block(line, statement.blocks[0 if is_odd else 1], onward)
            case Loop():
                self.loop(line, statement)
            case Gate(name=name):
                step = line.visit(name)
                key = answer_of(step)
                answered = {"human__gate__selected": key, "human__gate__label": LABELS[key]}
                line.finish(step, **answered, preferred_label=LABELS[key])
                self.block(line, statement.blocks["YN".index(key)], onward)
            case Parallel():
                self.parallel(line, statement, onward)

    def even(self, line: Line, choice: Choice) -> None:
        """What may stand in the place of the block for an even counter."""
        if choice.even == "closed":
            line.last_status = FAIL  # what the branch came to; the step itself keeps its outcome
            raise NoWayOn
        if choice.even == "dead_end":
            line.finish(self.effect(line, end_of(choice)), **line.count(choice.counter))
            raise LineEnded

    def effect(self, line: Line, node: str, attempts: int = 1) -> str:
        step = line.visit(node)
        self.all.attempts[step] = attempts
        return step

    def conditional(self, line: Line, node: str) -> None:
        """It hands on the outcome and the label that came in."""
        label = {"preferred_label": line.label} if line.label else {}
        line.finish(line.visit(node), line.context.get("outcome", SUCCESS), **label)

    def work(self, line: Line, work: Work, onward: Statement | None) -> None:
        is_hopeless = work.breaks or work.stumbles > work.max_retries
        attempts = work.max_retries + 1 if is_hopeless else work.stumbles + 1
        step = self.effect(line, work.name, attempts)
        status = SUCCESS
        if is_hopeless:
            self.all.hopeless.add(step)
            status = PARTIAL if work.allow_partial and not work.breaks else FAIL
        changes = line.count("failures") if work.breaks else line.count(work.counter, work.add)
        if status != FAIL:
            line.finish(step, status, **changes)
            if work.is_judged:
                self.conditional(line, judge_of(work))
            return
        leads_on = bool(work.blocks) or is_conditional(onward)
        if not leads_on and not line.path:
            raise LineFailed  # the step stays open, so that it can be retried
        line.finish(step, status, **changes)
        if not leads_on:
            raise LineFailed
        if work.is_judged:
            self.conditional(line, judge_of(work))
        for rescue in work.blocks:
            self.block(line, rescue, onward)

    def loop(self, line: Line, loop: Loop) -> None:
        """Turns are counted in the context: a loop that was left early continues its count later."""
        is_over = False
        while not is_over:
            counted = line.count(loop.name)
            is_over = counted[f"count_{loop.name}"] % loop.times == 0
            again = {f"again_{loop.name}": "no" if is_over else "yes"}
            line.finish(self.effect(line, loop.name), **counted, **again)
            if not is_over:
                self.block(line, loop.blocks[0], loop)

    def parallel(self, line: Line, parallel: Parallel, onward: Statement | None) -> None:
        step, join = line.visit(parallel.name), join_of(parallel)
        targets: Counter[str] = Counter()
        results = []
        for block in parallel.blocks:
            target = block[0].name if block else join
            targets[target] += 1
            name = target if targets[target] == 1 else f"{target}.{targets[target]}"
            results.append(self.branch(line, f"{step}.{name}", name, parallel.name, block))
        statuses = [result["status"] for result in results]
        line.finish(step, PARTIAL if FAIL in statuses else SUCCESS, parallel__results=results)
        best = min(results, key=lambda result: (RANKS.index(result["status"]), result["id"]))
        if best["status"] == FAIL:
            if not parallel.is_rescued and not is_conditional(onward):
                line.last_status = FAIL
                raise LineFailed
            line.finish(line.visit(join), FAIL)
            return
        chosen = {"best_id": best["id"], "best_outcome": best["status"]}
        changes = {f"parallel__fan_in__{key}": value for key, value in chosen.items()}
        line.finish(line.visit(join), **changes)

    def branch(self, parent: Line, path: str, name: str, fan: str, block: Block) -> dict[str, Any]:
        """Its own copy of the context, and what it came to."""
        line = Line(path, deepcopy(parent.context), [], self.all.statuses, last_node=fan)
        with suppress(LineFailed, LineEnded):
            self.block(line, block)
        if line.steps:
            self.all.steps[path] = line.steps
        parent.goals.update(line.goals)
        before = parent.context
        changed = {
            key: value
            for key, value in line.context.items()
            if key not in ("outcome", "preferred_label") and not (key in before and before[key] == value)
        }
        return {"id": name, "status": line.last_status, "last_node": line.last_node, "context": changed}
