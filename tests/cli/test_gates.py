"""Gates on the command line: asked, answered, left open."""

from __future__ import annotations

from tests.cli.shell import GATE, Shell


def waiting_run(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    assert shell.inside("run", "gate.dot", "--run-id", "gate").code == 75


def test_a_pipe_leaves_the_gate_open_and_says_how_to_answer(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    done = shell("run", "gate.dot", "--run-id", "gate")
    assert done.code == 75
    name = "gate"
    assert done.out.splitlines()[-5:] == [
        f"run {name} waits for an answer at ask#1",
        "  ask#1: Ship it?",
        "    Y   Yes  → again",
        "    N   No  → drop",
        f"continue with: onward answer {name}",
    ]
    resumed = shell("resume", "gate")
    assert (resumed.code, resumed.out) == (75, "\n".join(done.out.splitlines()[-5:]) + "\n")


def test_auto_takes_the_choice_that_approves_and_says_which_where_none_does(shell: Shell) -> None:
    """D55."""
    no_first = GATE.replace(
        """ask -> again [label="[Y] Yes"]
  ask -> drop [label="[N] No"]""",
        """ask -> drop [label="[N] No"]
  ask -> again [label="[Y] Yes"]""",
    )
    assert no_first != GATE
    shell.write("gate.dot", no_first)
    assert shell.inside("run", "gate.dot", "--run-id", "gate").code == 75
    done = shell.inside("resume", "gate", "--answers", "auto")
    assert done.code == 0
    assert done.err == "no choice at again#1 approves; auto takes the first, '[S] Sure'\n"
    decided = [
        (e["gate"], e["choice"]["key"], e["by"]) for e in shell.log("gate") if e["kind"] == "GateDecided"
    ]
    assert decided == [("ask#1", "Y", "auto"), ("again#1", "S", "auto")]


def test_auto_takes_the_default_choice_before_the_first(shell: Shell) -> None:
    shell.write("gate.dot", GATE.replace('label="Really?"', 'label="Really?", human.default_choice=drop'))
    done = shell.inside("run", "gate.dot", "--run-id", "gate", "--answers", "auto")
    assert (done.code, "auto takes the default, '[W] Wait'" in done.err) == (0, True)


def test_a_person_at_a_terminal_is_asked_until_the_answer_is_a_choice(shell: Shell) -> None:
    """D56."""
    shell.write("gate.dot", GATE)
    terminal = shell.terminal("run", "gate.dot", "--run-id", "gate")
    terminal.wait_for(r"your answer \(Y/N\): ")
    terminal.type("maybe\n")
    terminal.wait_for("ask#1 has no choice 'maybe'")
    terminal.wait_for(r"your answer \(Y/N\): ", times=2)
    terminal.type("\n")
    terminal.wait_for(r"your answer \(Y/N\): ", times=3)
    terminal.type("yes\n")
    terminal.wait_for(r"your answer \(S/W\): ")
    terminal.type("w\n")
    done = terminal.end()
    assert done.code == 0
    assert shell.read("gate")["completed"] == ["start#1", "ask#1", "again#1", "drop#1", "exit#1"]


def test_what_was_typed_before_the_question_is_no_answer(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write(
        "gate.dot",
        GATE.replace(
            "start -> ask",
            f'work [shape=parallelogram, tool_command="{latch.command}"]; start -> work -> ask',
        ),
    )
    terminal = shell.terminal("run", "gate.dot", "--run-id", "gate")
    latch.wait_reached()
    terminal.type("n\n")
    latch.release()
    terminal.wait_for("your answer")
    terminal.type("\x04")
    assert terminal.end().code == 75
    assert shell.read("gate")["status"] == "waiting"


def test_the_end_of_input_leaves_the_gate_open(shell: Shell) -> None:
    waiting_run(shell)
    terminal = shell.terminal("answer", "gate")
    terminal.wait_for("your answer")
    terminal.type("\x04")
    assert terminal.end().code == 75
    assert shell("resume", "gate", "--answers", "prompt", stdin="").code == 75
    assert shell.read("gate")["status"] == "waiting"


def test_answers_can_come_through_a_pipe(shell: Shell) -> None:
    waiting_run(shell)
    done = shell("resume", "gate", "--answers", "prompt", stdin="bogus\ny\nsure\n")
    assert done.code == 0, done.err
    assert [e["by"] for e in shell.log("gate") if e["kind"] == "GateDecided"] == ["user", "user"]


def test_answer_decides_and_goes_on_to_the_next_question(shell: Shell) -> None:
    waiting_run(shell)
    first = shell.inside("answer", "gate", "Y", "--text", "looks good")
    assert first.code == 75
    assert "waits for an answer at again#1" in first.out
    assert shell.read("gate")["context"]["human.gate.text"] == "looks good"
    second = shell.inside("answer", "gate", "[W] Wait", "--gate", "again#1")
    assert second.code == 0
    assert shell.read("gate")["context"]["human.gate.selected"] == "W"


def test_answer_without_running_leaves_the_run_queued(shell: Shell) -> None:
    waiting_run(shell)
    done = shell.inside("answer", "gate", "drop", "--no-run")
    assert done.code == 0
    assert "continue with: onward resume" in done.out
    assert shell.read("gate")["status"] == "queued"
    again = shell.inside("answer", "gate", "Y", "--json")
    assert (again.code, again.error["code"], again.error["choice"]) == (1, "gate_decided", "N")
    assert shell.inside("resume", "gate").code == 0


def test_answer_without_a_choice_shows_the_question(shell: Shell) -> None:
    waiting_run(shell)
    shown = shell.inside("answer", "gate")
    assert shown.code == 75
    assert "  ask#1: Ship it?" in shown.out.splitlines()
    # The command that was just typed would only show the question again.
    assert shown.out.splitlines()[-1] == "continue with: onward answer gate CHOICE"
    named = shell.inside("answer", "gate", "--gate", "ask#1")
    assert named.out.splitlines()[-1] == "continue with: onward answer gate CHOICE --gate 'ask#1'"
    terminal = shell.terminal("answer", "gate")
    terminal.wait_for("your answer")
    terminal.type("n\n")
    assert terminal.end().code == 0


def test_a_choice_that_is_not_offered_is_a_usage_error_that_lists_the_offers(shell: Shell) -> None:
    waiting_run(shell)
    wrong = shell.inside("answer", "gate", "perhaps")
    assert wrong.code == 2
    assert "choose one of: Y ([Y] Yes), N ([N] No)" in wrong.err
    assert shell.inside("answer", "gate", "Y", "--gate", "ask#9").code == 1


def test_a_run_that_asks_nothing_cannot_be_answered(shell: Shell) -> None:
    waiting_run(shell)
    assert shell.inside("resume", "gate", "--answers", "auto").code == 0
    for words in (("answer", "gate", "Y"), ("answer", "gate")):
        refused = shell.inside(*words, "--json")
        assert (refused.code, refused.error["code"]) == (1, "no_open_gate")


def test_an_interviewer_of_the_app_answers(shell: Shell) -> None:
    """D57."""
    shell.write(
        "office.py",
        "from onward import Onward\napp = Onward()\n@app.interviewer('boss')\n"
        "async def boss(run, gate):\n    return 'N' if gate.node == 'ask' else None\n",
    )
    shell.write("gate.dot", GATE)
    done = shell.inside("run", "gate.dot", "--run-id", "gate", "--app", "office:app", "--answers", "boss")
    assert done.code == 0, done.err
    assert "answered  ask#1  [N] No (by boss)" in done.out
    nobody = shell.inside("run", "gate.dot", "--app", "office:app", "--answers", "intern")
    assert nobody.code == 2
    assert nobody.err == "onward: --answers 'intern' is unknown; choose one of auto, boss, prompt, wait.\n"


def test_a_step_whose_session_is_gone_says_what_it_is_shown_instead(shell: Shell) -> None:
    """K12: on the screen and in the log; the one who answers is another process than the one who asked."""
    source = """digraph talk { default_fidelity=full; default_thread_id=talk; start [shape=Mdiamond]
      exit [shape=Msquare]; ask [shape=hexagon]; send [prompt=p]; start -> ask -> send -> exit }"""
    shell.write("talk.dot", source)
    assert shell.inside("run", "talk.dot", "--run-id", "work", "--simulate").code == 75
    done = shell.inside("answer", "work", "send")
    assert "  degraded  send#1  its session was lost: summary:high instead of full" in done.out.splitlines()
    begun = [event for event in shell.log("work") if event["kind"] == "StepStarted"]
    assert (begun[-1]["fidelity"], begun[-1]["degraded_from"], begun[-1]["thread"]) == (
        "summary:high",
        "full",
        "talk",
    )
    assert "degraded_from=full" in shell.inside("events", "work").out


# -- verdicts, types and deadlines ---------------------------------------------------------------------


ONE = """
digraph one {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  ask [shape=hexagon, label="Ship it?" ATTRS]
  ship [shape=parallelogram, tool_command="true"]
  start -> ask -> ship -> exit
}
"""
SOON = "human.timeout=1ms"


def asking(shell: Shell, attrs: str) -> None:
    shell.write("one.dot", ONE.replace("ATTRS", f", {attrs}"))
    assert shell.inside("run", "one.dot", "--run-id", "one").code == 75


def test_any_gate_is_approved_or_rejected_by_a_flag(shell: Shell) -> None:
    waiting_run(shell)
    rejected = shell.inside("answer", "gate", "--reject", "--text", "not today")
    assert rejected.code == 0
    assert "answered  ask#1  [N] No (by user)" in rejected.out
    assert shell.read("gate")["context"]["human.gate.text"] == "not today"
    asking(shell, "human.type=yes_no")
    assert shell.inside("answer", "one", "--approve").code == 0


def test_a_rejection_that_no_edge_takes_fails_the_run_for_good(shell: Shell) -> None:
    asking(shell, "human.type=yes_no")
    done = shell.inside("answer", "one", "--reject", "--text", "too early")
    assert done.code == 1
    assert "  rejected  ask#1  No (by user)" in done.out
    assert "failed (rejected): user rejected ask#1: too early" in done.out
    assert "continue with" not in done.out
    assert shell.inside("resume", "one", "--json").error["code"] == "invalid_state"
    shown = shell.read("one")
    assert (shown["recoverable"], shown["steps"][-1]["status"]) == (False, "rejected")


def test_flags_that_contradict_each_other_are_refused(shell: Shell) -> None:
    waiting_run(shell)
    for words in (("--approve", "--reject"), ("Y", "--approve")):
        done = shell.inside("answer", "gate", *words)
        assert done.code == 2
        assert "contradict each other; give one" in done.err
    assert shell.read("gate")["status"] == "waiting"


def test_a_question_for_words_is_answered_with_words(shell: Shell) -> None:
    asking(shell, "human.type=freeform")
    assert "    answer in your own words" in shell.inside("answer", "one").out.splitlines()
    terminal = shell.terminal("answer", "one")
    terminal.wait_for("your answer: ")
    terminal.type("\n")
    terminal.wait_for("your answer: ", times=2)
    terminal.type("as soon as you can\n")
    assert terminal.end().code == 0
    assert shell.read("one")["context"]["human.gate.text"] == "as soon as you can"


def test_the_empty_line_takes_the_default(shell: Shell) -> None:
    """D56."""
    asking(shell, "human.type=confirmation, human.default_choice=ship")
    terminal = shell.terminal("answer", "one")
    terminal.wait_for(r"your answer \(Y/N; Enter for Y\): ")
    terminal.type("\n")
    assert terminal.end().code == 0


def test_what_is_asked_is_shown_with_its_deadline(shell: Shell) -> None:
    asking(shell, "human.type=yes_no, human.timeout=1h, human.on_timeout=reject")
    for command in ("show", "status"):
        lines = shell.inside(command, "one").out.splitlines()
        offered = [line.strip() for line in lines]
        assert "Y   Yes  → ship" in offered
        assert "N   No  → ends the run as rejected" in offered
        assert any(line.startswith("until 20") and line.endswith(", then it is rejected") for line in offered)
        assert any("Ship it?" in line for line in lines)
    [gate] = shell.read("one")["gates"]
    assert (gate["type"], gate["on_timeout"], gate["default"]) == ("yes_no", "reject", None)
    assert gate["deadline"] == shell.read("one")["wake_at"]


def test_the_list_of_open_gates_has_their_deadlines(shell: Shell) -> None:
    asking(shell, "human.type=yes_no, human.timeout=1h, human.on_timeout=reject")
    listed = shell.inside("answer")
    assert listed.code == 0
    assert listed.out.splitlines()[-1].strip().startswith("until 20")


def test_a_question_of_a_step_is_shown_listed_and_answered_like_any_other(shell: Shell) -> None:
    shell.write(
        "mine.py",
        """from onward import Onward
app = Onward()
@app.handler("pay")
async def pay(step):
    answer = await step.ask("approve", "Charge the card?", about="42", choices=["Charge", "Cancel"])
    return {"said": answer.choice, "by": answer.by, "no": answer.rejected}
""",
    )
    shell.write(
        "pay.dot",
        "digraph { start [shape=Mdiamond]; exit [shape=Msquare]; pay [type=pay]; start -> pay -> exit }",
    )
    app = ("--app", "mine:app")
    done = shell.inside("run", "pay.dot", "--run-id", "one", *app)
    assert done.code == 75
    offered = ["pay#1:approve: Charge the card?", "| 42", "C   Charge", "2   Cancel"]
    for command in (("status", "one"), ("answer",)):
        lines = [line.strip() for line in shell.inside(*command, *app).out.splitlines()]
        assert [line for line in lines if line in offered] == offered
    steps = {step["step"]: step["status"] for step in shell.read("one")["steps"]}
    assert (steps["pay#1"], steps["pay#1:approve"]) == ("held", "waiting")
    assert shell.inside("show", "one", "pay").out.startswith("step pay#1 of run")
    assert "Charge the card?" in shell.inside("show", "one", "pay#1:approve").out
    assert shell.inside("graph", "one").code == 0
    assert shell.inside("answer", "one", "maybe", *app).code == 2
    assert shell.inside("answer", "one", "--reject", *app).code == 0
    context = shell.read("one")["context"]
    assert (context["said"], context["no"]) == ("Cancel", True)
    assert shell.inside("run", "pay.dot", "--run-id", "two", "--answers", "auto", *app).code == 0
    assert shell.read("two")["context"]["by"] == "auto"


def test_a_resume_after_the_deadline_goes_on_by_its_rule(shell: Shell) -> None:
    asking(shell, f"{SOON}, human.default_choice=ship")
    late = shell.inside("answer", "one", "S", "--json")
    assert (late.code, late.error["code"]) == (1, "gate_expired")
    planned = shell.inside("resume", "one", "--dry-run").out.splitlines()
    assert "TAKE  ask#1  (ship: no answer in time)" in planned
    done = shell.inside("resume", "one")
    assert done.code == 0
    assert "  expired   ask#1  ship (no answer in time)" in done.out.splitlines()


def test_a_deadline_that_rejects_says_that_nobody_answered(shell: Shell) -> None:
    asking(shell, f"{SOON}, human.on_timeout=reject")
    done = shell.inside("resume", "one")
    assert done.code == 1
    assert "  expired   ask#1  rejected (no answer in time)" in done.out.splitlines()


def test_a_question_on_a_terminal_ends_at_its_deadline(shell: Shell) -> None:
    """D56: the prompt does not outlive the time there is to answer."""
    shell.write("one.dot", ONE.replace("ATTRS", ", human.timeout=1s, human.default_choice=ship"))
    terminal = shell.terminal("run", "one.dot", "--run-id", "one")
    terminal.wait_for("your answer")
    terminal.wait_for("no answer in time")
    assert terminal.end().code == 0


def test_a_question_on_a_terminal_ends_when_it_is_answered_elsewhere(shell: Shell) -> None:
    """Whoever sits there would otherwise be asked for ever about a run that has long continued."""
    shell.write("one.dot", ONE.replace("ATTRS", ""))
    terminal = shell.terminal("run", "one.dot", "--run-id", "one")
    terminal.wait_for("your answer")
    assert shell.inside("answer", "one", "s", "--no-run").code == 0
    terminal.wait_for("ask#1 was decided elsewhere: 'ship' by user")
    terminal.wait_for("continue with: onward resume one")
    assert terminal.end().code == 75


def test_a_terminal_whose_run_continues_elsewhere_says_how_to_follow_it(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("one.dot", ONE.replace("ATTRS", "").replace('"true"', f'"{latch.command}"'))
    terminal = shell.terminal("run", "one.dot", "--run-id", "one")
    terminal.wait_for("your answer")
    other = shell.start("answer", "one", "s")
    latch.wait_reached()
    terminal.wait_for("run one is running")
    terminal.wait_for("follow it with: onward events one --follow")
    assert terminal.end().code == 75
    latch.release()
    assert other.end().code == 0


def test_a_question_that_answer_asks_ends_when_its_run_is_cancelled(shell: Shell) -> None:
    shell.write("one.dot", ONE.replace("ATTRS", ""))
    assert shell.inside("run", "one.dot", "--run-id", "one").code == 75
    terminal = shell.terminal("answer", "one")
    terminal.wait_for("your answer")
    assert shell.inside("cancel", "one").code == 0
    terminal.wait_for("ask#1 no longer needs an answer")
    terminal.wait_for("run one cancelled")
    assert terminal.end().code == 1


def test_a_person_at_a_terminal_is_reminded(shell: Shell) -> None:
    shell.write("one.dot", ONE.replace("ATTRS", ", human.remind=100ms"))
    terminal = shell.terminal("run", "one.dot", "--run-id", "one")
    terminal.wait_for("your answer")
    terminal.wait_for("ask#1 still waits for an answer: Ship it", times=2)
    terminal.type("s\n")
    assert terminal.end().code == 0


DIRECTIONS = (
    '[{"label": "Calm", "description": "much\\nwhite \\u001b[31m", "colors": ["#ffffff", "#0b6e4f"]},'
    ' {"name": "Bold", "data": {"colors": {"ink": "#111", "paper": "#ff0"}, "columns": 2}}]'
)


def test_options_with_data_are_shown_chosen_and_passed_on(shell: Shell) -> None:
    """O0-11: name, description and colour swatches of what a step proposed."""
    source = ONE.replace("ATTRS", ", human.options=directions").replace(
        '"true"', '"echo $ONWARD_CONTEXT_HUMAN_GATE_DATA_COLUMNS of $ONWARD_CONTEXT_HUMAN_GATE_LABEL"'
    )
    shell.write("one.dot", source)
    left = shell.inside("run", "one.dot", "--run-id", "one", "--set", f"directions:={DIRECTIONS}")
    assert left.code == 75
    offered = [
        "C   Calm  → ship",
        "    much white",
        "    colors: #ffffff #0b6e4f",
        "B   Bold  → ship",
        "    colors: ink #111 paper #ff0",
    ]
    assert left.out.splitlines()[-6:-1] == [f"    {line}" for line in offered]
    [gate] = shell.inside("answer", "--json").json
    assert [choice["data"] for choice in gate["choices"]] == [
        {"description": "much\nwhite \x1b[31m", "colors": ["#ffffff", "#0b6e4f"]},
        {"name": "Bold", "colors": {"ink": "#111", "paper": "#ff0"}, "columns": 2},
    ]
    [shown] = shell.read("one")["gates"]
    assert shown["choices"] == gate["choices"]
    assert shell.inside("answer", "one", "bold").code == 0
    assert shell.read("one")["context"]["tool.output"] == "2 of Bold"


def test_a_choice_without_data_has_an_empty_object_in_json(shell: Shell) -> None:
    waiting_run(shell)
    [gate] = shell.read("gate")["gates"]
    assert [choice["data"] for choice in gate["choices"]] == [{}, {}]
