"""The rule about conditions on the outcome: they compare it with a word that it can be."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from onward.errors import ConditionError
from onward.pipeline.condition import Clause
from onward.pipeline.graph import Edge, Graph
from onward.pipeline.rules.rule import Problem, Subject, about, owner_of
from onward.pipeline.rules.words.vocabulary import is_near
from onward.pipeline.value import shown

OUTCOMES = ("success", "partial_success", "retry", "fail")
_KEY = "outcome"
_SYNONYMS = {
    **dict.fromkeys(("succeeded", "succeed", "successful", "passed", "pass", "ok", "completed"), "success"),
    **dict.fromkeys(("failed", "failure", "failing", "fails", "error", "rejected"), "fail"),
    **dict.fromkeys(("partial", "partially"), "partial_success"),
    **dict.fromkeys(("retrying", "retries", "again"), "retry"),
}


def outcome_known(subject: Subject) -> Iterator[Problem]:
    """Every condition on the outcome can be true and can be false.

    It is an error if the run would take another edge instead, and a warning if it would stop there.
    """
    graph = subject.graph
    for edge in graph.edges:
        try:
            clauses = edge.guard.clauses
        except ConditionError:
            continue  # condition_syntax reports it
        for clause in clauses:
            if clause.key == _KEY and clause.operator and clause.literal not in (*OUTCOMES, ""):
                yield _impossible(graph, edge, clause)
            elif clause.key != _KEY and is_near(clause.key.lower(), _KEY):
                yield _misspelt(graph, edge, clause)


def _impossible(graph: Graph, edge: Edge, clause: Clause) -> Problem:
    meant = _meant(clause.literal)
    never = "never" if clause.operator == "=" else "always"
    message = (
        f"the condition of {owner_of(edge, 'condition')} compares outcome with {shown(clause.literal)}, "
        f"which no outcome is: it is {never} true"
    )
    fix = f"write one of {', '.join(OUTCOMES)}; for other words use preferred_label or the context"
    if meant:
        fix = f"did you mean outcome{clause.operator}{meant}?"
    problem = about(edge, message, key="condition", offset=_offset(edge, clause, clause.literal), fix=fix)
    return replace(problem, only_possible=not _misleads(graph, edge, clause, meant or "success"))


def _misspelt(graph: Graph, edge: Edge, clause: Clause) -> Problem:
    message = f"the condition of {owner_of(edge, 'condition')} reads {clause.key!r} from the context"
    fix = f"did you mean outcome? If not, write context.{clause.key}"
    problem = about(edge, message, key="condition", offset=_offset(edge, clause, clause.key), fix=fix)
    return replace(problem, only_possible=not _misleads(graph, edge, clause, _meant(clause.literal)))


def _offset(edge: Edge, clause: Clause, word: str) -> int:
    key = edge.condition.find(clause.key)
    return key if word == clause.key else max(key, edge.condition.find(word, key + len(clause.key)))


def _meant(word: str) -> str:
    plain = word.strip().lower().replace("-", "_").replace(" ", "_")
    near = (outcome for outcome in OUTCOMES if is_near(plain, outcome))
    return _SYNONYMS.get(plain) or next(near, "")


def _misleads(graph: Graph, edge: Edge, clause: Clause, outcome: str) -> bool:
    """Whether a run with the outcome that was meant takes an edge that it should not."""
    if clause.operator != "=":
        return True
    others = (other for other in graph.outgoing(edge.source) if other is not edge)
    return any(_is_taken(graph, other, outcome) for other in others)


def _is_taken(graph: Graph, edge: Edge, outcome: str) -> bool:
    try:
        clauses = edge.guard.clauses
    except ConditionError:
        return False
    if not clauses:
        return outcome != "fail" or _passes_failures(graph, edge.source)
    about_the_outcome = [clause for clause in clauses if clause.key == _KEY]
    return bool(about_the_outcome) and all(clause.holds(lambda _: outcome) for clause in about_the_outcome)


def _passes_failures(graph: Graph, node_id: str) -> bool:
    """Whether a plain edge may be followed by a failure: C3."""
    node = graph.nodes.get(node_id)
    if node is None or node.kind == "conditional":
        return True
    says = node.text("continue_on_fail") or graph.text("continue_on_fail")
    return says.strip() == "true"
