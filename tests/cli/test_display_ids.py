"""A run is called in errors what the user called it."""

from __future__ import annotations

import pytest

from onward.cli.output import as_typed
from onward.model.ids import display_id
from tests.cli.shell import GATE, Shell, pipeline


@pytest.mark.parametrize(
    "words",
    [("resume",), ("pause",), ("steer", "faster"), ("answer", "Yes"), ("replay", "--checkpoint", "2")],
)
def test_an_error_calls_a_run_by_its_display_id_if_the_user_did(shell: Shell, words: tuple[str, ...]) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    run = shell.inside("run", "ok.dot", "--json").json
    name, *more = words
    for typed in (run["display_id"], run["display_id"][:3]):
        done = shell.inside(name, typed, *more)
        assert done.code != 0
        assert run["id"] not in done.err
        assert f"run {run['display_id']}" in done.err
        assert run["id"] not in shell.inside(name, typed, *more, "--json").error["message"]
    assert run["display_id"] not in shell.inside(name, run["id"], *more).err
    assert f"run {run['id']}" in shell.inside(name, run["id"], *more).err


def test_what_an_error_says_to_type_works(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    run = shell.inside("run", "gate.dot", "--json").json
    done = shell.inside("retry", run["display_id"])
    assert f"run {run['display_id']}" in done.err
    shell.inside("cancel", run["display_id"])
    done = shell.inside("answer", run["display_id"], "Yes")
    assert f"see `onward show {run['display_id']}`" in done.err


def test_an_id_of_the_users_own_is_named_as_it_was_typed(shell: Shell) -> None:
    shell.write("ok.dot", pipeline(("a", "true")))
    assert shell.inside("run", "ok.dot", "--run-id", "nightly").code == 0
    assert "run nightly is completed" in shell.inside("resume", "nightly").err
    assert f"run {display_id('nightly')} is completed" in shell.inside("resume", display_id("nightly")).err


def test_a_run_is_called_by_the_id_that_was_chosen_for_it(shell: Shell) -> None:
    shell.write("fails.dot", pipeline(("a", "exit 3")))
    printed = shell.inside("run", "fails.dot", "--run-id", "nightly").out
    printed += "".join(shell.inside(*words, "nightly").out for words in (("status",), ("show",), ("calls",)))
    printed += shell.inside("status").out + shell.inside("show", "nightly", "a").out
    assert display_id("nightly") not in printed
    assert "continue with: onward resume nightly" in printed
    generated = shell.inside("run", "fails.dot", "--json").json
    assert (
        f"run {generated['display_id']}: line (id {generated['id']})"
        in shell.inside("status", generated["id"]).out
    )


def test_an_id_in_a_path_stays() -> None:
    run = "01m7kc85t0fzt68m7xrd3z7601"
    typed = ["resume", display_id(run)]
    assert as_typed(f"/runs/{run}/work of run {run}.", typed) == f"/runs/{run}/work of run {display_id(run)}."


@pytest.mark.parametrize("words", [("show",), ("resume",), ("messages",), ("logs",), ("calls",)])
def test_a_misspelt_run_is_answered_with_the_one_that_may_be_meant(
    shell: Shell, words: tuple[str, ...]
) -> None:
    shell.write("line.dot", pipeline(("a", "true")))
    assert shell.inside("run", "line.dot", "--run-id", "nightly-build").code == 0
    display = shell.inside("run", "line.dot", "--json").json["display_id"]
    wrong = ("2" if display[2] != "2" else "3").join((display[:2], display[3:]))
    for wanted, meant in (
        ("nigthly-build", "nightly-build"),
        ("Nightly_Build", "nightly-build"),
        (wrong, display),
    ):
        refused = shell.inside(*words, wanted)
        assert refused.code != 0
        assert f"no run {wanted!r}" in refused.err
        assert f"did you mean {meant!r}? `onward status` lists" in refused.err
    assert "did you mean" not in shell.inside(*words, "something-else").err
