"""The website builder runs without a provider: builds, fixes and questions, killed and resumed."""

from __future__ import annotations

import signal

import pytest

from onward.machine.definition import Definition
from onward.machine.plan.route import planned_agents
from onward.pipeline.build import build
from onward.testing.script import ScriptedReply, ScriptRule
from tests.cli.conftest import shell as shell
from tests.cli.shell import Shell, wait_until
from tests.examples.website import BUILD, MESSAGE, NEVER, WEBSITE, agents, git, playing, requests, script

pytestmark = pytest.mark.slow
TYPES = ("brief", "problems", "build_check", "version")


def plan(**inputs: str) -> list[str]:
    source = (WEBSITE / "website.dot").read_text()
    built = build(source, file="website.dot", known_types=TYPES)
    assert built.warnings == ()
    return list(planned_agents(Definition(built.graph), inputs))


def test_a_build_asks_for_a_direction_remediates_twice_and_keeps_a_version(shell: Shell) -> None:
    """O0-9, O0-10, O0-11, O0-17."""
    with playing(shell, script()):
        asked = shell("run", "website.dot", "--run-id", "site", "--answers", "wait", *BUILD)
        assert asked.code == 75
        [gate] = shell.read("site")["gates"]
        offered = {choice["label"]: choice["data"] for choice in gate["choices"]}
        assert list(offered) == ["Calm", "Market", "Night", "[N] New ideas"]
        assert offered["Calm"]["colors"] == ["#f5efe6", "#0b3d2e", "#d96c2c"]
        assert shell("answer", "site", "calm").code == 0
    view = shell.read("site")
    assert (view["status"], agents(view)) == ("completed", plan(intent="build", scope="full"))
    assert view["context"]["brief"].count("columns: 1") == 1, "the chosen data reach the agents"
    visits = [step["step"] for step in view["steps"]]
    assert "remediate#2" in visits
    assert "remediate#3" not in visits
    assert view["context"]["problems.said"] == "no problem is left after 2 rounds"
    assert view["context"]["check.problems"] == []
    assert git(shell, "log", "--format=%s") == f"{MESSAGE}\nBegin"
    assert sorted(git(shell, "ls-files").split()) == [
        "README.md",
        "api.py",
        "app.js",
        "index.html",
        "style.css",
    ]
    assert "refs/onward/site/remediate-1-" in git(shell, "for-each-ref", "refs/onward"), (
        "a snapshot of each step"
    )


def test_a_round_that_does_not_help_is_the_last_one_and_that_is_said(shell: Shell) -> None:
    nothing = ScriptRule(
        contains="You correct a website", reply=ScriptedReply(text="I see nothing to correct.")
    )
    with playing(shell, script(nothing)):
        done = shell("run", "website.dot", "--run-id", "site", "--answers", "auto", *BUILD)
    assert done.code == 0
    view = shell.read("site")
    assert view["status"] == "completed"
    assert (
        view["context"]["problems.said"] == "round 1 did not help: 3 problems now, 3 before it; they are left"
    )
    outcomes = {step["step"]: step["status"] for step in view["steps"]}
    assert (outcomes["check#1"], "remediate#2" in outcomes) == ("partial_success", False)


def test_a_fix_has_only_the_agents_of_its_scope_and_a_question_changes_nothing(shell: Shell) -> None:
    with playing(shell, script()):
        assert shell("run", "website.dot", "--run-id", "site", "--answers", "auto", *BUILD).code == 0
        fix = ("--set", "intent=fix", "--set", "scope=styling", "--set", "user_message=It is hard to read")
        assert shell("run", "website.dot", "--run-id", "fix", *fix).code == 0
        ask = ("--set", "intent=question", "--set", "scope=full", "--set", "user_message=What is it?")
        assert shell("run", "website.dot", "--run-id", "ask", *ask).code == 0
    assert agents(shell.read("fix")) == ["diagnose", "styling", "review", "summary"]
    assert set(agents(shell.read("fix"))) <= set(plan(intent="fix", scope="styling"))
    assert agents(shell.read("ask")) == plan(intent="question", scope="full") == ["answer"]
    assert git(shell, "log", "--format=%s") == f"It is hard to read\n{MESSAGE}\nBegin"
    assert "color: #2b2622" in (shell.directory / "site/style.css").read_text()


def test_messages_are_read_as_what_the_builder_says_it_is_for(shell: Shell) -> None:
    """S0-2, S0-3, S0-4: from the message to the agents; a question is asked with what was said before."""
    remembered = ScriptRule(
        contains="And on phones?", remembers="What is on the page?", reply=ScriptedReply(text="It fits.")
    )
    with playing(shell, script(remembered)):
        assert shell("pipelines", "add", "website.dot").code == 0
        for text in ("What is on the page?", "And on phones?"):
            assert shell("chat", "bakery", text, "--watch").code == 0
        shell("chat", "bakery", "Build a website for my bakery")
        page = shell("chats", "show", "bakery", "--json").json
    assert [(run["intent"], run["scope"], run["planned_agents"][0]) for run in page["runs"]] == [
        ("build", "full", "research"),
        ("question", "full", "answer"),
        ("question", "frontend", "answer"),
    ]
    assert "It fits." in [one["text"] for one in page["messages"]]


@pytest.mark.crash
def test_with_all_agents_done_a_resume_goes_straight_to_the_finish(shell: Shell) -> None:
    """S0-29. Killed in remediation: research, design, the makers and the review are not asked again."""
    with playing(shell, script(ScriptRule(contains="You correct a website", times=1, reply=NEVER))) as ledger:
        run = shell.start("run", "website.dot", "--run-id", "site", "--answers", "auto", *BUILD)
        wait_until(lambda: "site/remediate#1/m1" in requests(ledger), "the request of the remediation")
        run.signal(signal.SIGKILL)
        run.end()
        before = requests(ledger)
        resumed = shell("resume", "site")
        assert resumed.code == 0
        again = {key for key, times in requests(ledger).items() if times > 1}
    started = [line.split()[1] for line in resumed.out.splitlines() if line.split()[0] == "started"]
    assert started[0] == "remediate#1"
    assert not {step.partition("#")[0] for step in started} & {"research", "design", "fan", "brief"}
    assert (again, before["site/remediate#1/m1"]) == ({"site/remediate#1/m1"}, 1)
