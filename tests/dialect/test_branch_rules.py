"""What a branch cannot do is said before a run gets there (C8, C15)."""

from __future__ import annotations

import pytest

from tests.pipeline.reading import findings

ENDS = (
    "start; exit\nP [shape=component]; F [shape=tripleoctagon]; a; b\n"
    "start -> P -> a -> F -> exit; P -> b -> F\n"
)
NESTED = "Q [shape=component]; G [shape=tripleoctagon]; c; d\n"


def found(rule: str, statements: str) -> list[str]:
    """The findings as `severity line:column message`; the statements begin in line 5."""
    diagnostics = findings(f"digraph G {{\n{ENDS}{statements}\n}}", rule)
    return [f"{each.severity} {each.line}:{each.column} {each.message}" for each in diagnostics]


INSIDE = "is inside a branch of 'P' and"


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ("F -> P [loop_restart=true]", []),
        ("a -> b [loop_restart=false]", []),
        (
            'a -> b [condition="outcome=fail", loop_restart=true]',
            [f"error 5:48 the loop_restart edge a -> b {INSIDE} cannot end the run"],
        ),
        (
            "P -> c [loop_restart=true]; c -> F; c",
            [f"error 5:22 the loop_restart edge P -> c {INSIDE} cannot end the run"],
        ),
        # What happens only when the fan-out itself has failed happens outside of its branches.
        ('c; P -> c [condition="outcome=fail", loop_restart=true]; c -> exit', []),
        (
            "b -> F [loop_restart=true]",
            [f"warning 5:22 the loop_restart edge b -> F {INSIDE} ends only that branch"],
        ),
        # The same edge can be taken by the run itself, where it is a good one.
        (
            'start -> a [condition="context.k=1"]; a -> c [loop_restart=true]; c -> F; c',
            [f"warning 5:60 the loop_restart edge a -> c {INSIDE} cannot end the run"],
        ),
        (
            f"{NESTED}b -> Q -> c -> G -> F; Q -> d -> G; d -> e [loop_restart=true]; e -> F; e",
            ["error 6:58 the loop_restart edge d -> e is inside a branch of 'Q' and cannot end the run"],
        ),
        # A branch comes there by a jump.
        (
            "a [retry_target=c]; c -> F; c; c -> b [loop_restart=true]",
            [f"error 5:53 the loop_restart edge c -> b {INSIDE} cannot end the run"],
        ),
        # The fan-in is where the branches have ended.
        ("F -> c -> P [loop_restart=true]; c", []),
    ],
)
def test_an_edge_that_restarts_the_run_inside_a_branch(statements: str, expected: list[str]) -> None:
    assert found("branch_restart", statements) == expected


def test_of_many_fan_outs_that_share_an_edge_the_first_is_named() -> None:
    """The order of a set differs between processes; what `check` prints does not."""
    names = [f"p{number}" for number in range(12)]
    nodes = "; ".join(f"{name} [shape=component]; {name} -> shared" for name in names)
    ways = "; ".join(f"b -> {name}" for name in names)
    (message,) = found("branch_restart", f"shared; {nodes}; {ways}; shared -> a [loop_restart=true]")
    assert "'p0'" in message


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ('F -> P [condition="context.k=1"]', []),
        (
            'a -> P [condition="outcome=fail"]',
            ["error 5:1 a branch of 'P' leads back to it: P -> a -> P"],
        ),
        ("P -> P", ["error 5:1 a branch of 'P' leads back to it: P -> P"]),
        # Not a branch: it is taken when the fan-out has failed.
        ('c; P -> c [condition="outcome=fail"]; c -> P', []),
        (
            "b -> c -> d -> P; c; d",
            ["error 5:11 a branch of 'P' leads back to it: P -> b -> c -> d -> P"],
        ),
        ("b [retry_target=P]", ["error 5:17 a branch of 'P' leads back to it: P -> b -> P"]),
        (
            "b [fallback_retry_target=P, retry_target=nobody]",
            ["error 5:26 a branch of 'P' leads back to it: P -> b -> P"],
        ),
        # An unmet goal is looked after at the end of the run, where there is no branch.
        (
            "b [retry_target=P, goal_gate=true]",
            ["warning 5:17 a branch of 'P' leads back to it: P -> b -> P"],
        ),
        ('b [retry_target=P, goal_gate=true]; b -> F [condition="outcome=fail"]', []),
        # The node before the fan-out is met by the run as well as by the branch that jumps to it.
        (
            "plan; start -> plan -> P; b [retry_target=plan]",
            ["warning 5:43 a branch of 'P' leads back to it: P -> b -> plan -> P"],
        ),
        (f"{NESTED}b -> Q -> c -> G -> F; Q -> d -> G", []),
        (
            f"{NESTED}b -> Q -> c -> G -> F; Q -> d -> P",
            ["error 6:29 a branch of 'P' leads back to it: Q -> d -> P"],
        ),
        (f"{NESTED}F -> Q -> c -> G -> exit; Q -> d -> G", []),
        # Loops around an inner fan-out stay in the branch that it is in.
        (f'{NESTED}b -> Q -> c -> G -> F; Q -> d -> G; G -> Q [condition="context.k=1"]', []),
        ('a -> P [condition="outcome =="]', ["error 5:1 a branch of 'P' leads back to it: P -> a -> P"]),
    ],
)
def test_a_branch_that_leads_back_to_its_own_fan_out(statements: str, expected: list[str]) -> None:
    assert found("fan_out_in_itself", statements) == expected


def test_a_long_way_back_is_shown_by_its_ends() -> None:
    chain = " -> ".join(f"n{number}" for number in range(30))
    nodes = "; ".join(f"n{number}" for number in range(30))
    (message,) = found("fan_out_in_itself", f"{nodes}; b -> {chain} -> P")
    assert message.endswith("leads back to it: P -> b -> n0 -> ... -> n28 -> n29 -> P")


@pytest.mark.timeout(120)
def test_a_thousand_fan_outs_inside_each_other_are_soon_checked() -> None:
    """S22: each branch is followed once, however deep it is."""
    deep = "".join(
        f"p{n} [shape=component]; f{n} [shape=tripleoctagon]; x{n}\n"
        f"p{n} -> p{n + 1}; p{n} -> x{n} -> f{n}; f{n + 1} -> f{n}\n"
        for n in range(1_000)
    )
    text = f"digraph {{ start; exit; start -> p0; f0 -> exit; p1000; f1000; p1000 -> f1000\n{deep} }}"
    assert findings(text, "fan_out_in_itself") == ()
    knotted = text.replace("x999 -> f999", "x999 -> p0")
    assert [finding.severity for finding in findings(knotted, "fan_out_in_itself")] == ["error"]
