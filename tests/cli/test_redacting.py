"""Which secrets a command knows, and what it says about those that it cannot keep."""

from __future__ import annotations

import pytest

from onward.errors import InvalidInput
from onward.redact.redactor import is_secret, password_of, read_redact
from tests.cli.shell import Shell, pipeline

VALUE = "value-of-a-secret"


def said(shell: Shell) -> str:
    """What becomes of an input that holds the value."""
    shell.write("line.dot", pipeline(("a", "true")))
    done = shell.inside("run", "line.dot", "--run-id", "one", "--set", f"token={VALUE}")
    assert done.code == 0, done.err
    return stored(shell, "one")


def stored(shell: Shell, run: str) -> str:
    token: str = shell.read(run)["context"]["token"]
    return token


@pytest.mark.parametrize(
    "name",
    ["DEPLOY_KEY", "APIKEY", "GITHUB_TOKEN", "MY_SECRET_7", "PGPASSWORD", "GCP_CREDENTIALS", "db_pass"],
)
def test_a_variable_that_is_named_like_a_secret_is_one(name: str) -> None:
    assert is_secret(name, VALUE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("MONKEY", VALUE), ("TOKENS", VALUE), ("SSH_PUBLIC_KEY", VALUE), ("COMPASS", VALUE)),
        *(("USE_KEY", "true"), ("A_KEY", ""), ("ONWARD_IDEMPOTENCY_KEY", "one/a#1")),
    ],
)
def test_others_are_none(name: str, value: str) -> None:
    assert not is_secret(name, value)


def test_the_value_of_such_a_variable_is_stored_nowhere(shell: Shell) -> None:
    shell.environment["GITHUB_TOKEN"] = VALUE
    assert said(shell) == "[redacted GITHUB_TOKEN]"


def test_the_path_of_a_file_with_a_secret_is_none(shell: Shell) -> None:
    shell.environment["APP_CREDENTIALS"] = str(shell.directory)
    shell.write("line.dot", pipeline(("a", "pwd")))
    done = shell.inside("run", "line.dot", "--verbose")
    assert str(shell.directory) in done.out


def test_the_settings_name_variables_and_files(shell: Shell) -> None:
    shell.environment["LICENSE"] = VALUE
    assert said(shell) == VALUE
    shell.write("onward.toml", '[redact]\nenv = ["LICENSE", "MISSING"]\n')
    shell.inside("run", "line.dot", "--run-id", "two", "--set", f"token={VALUE}")
    assert stored(shell, "two") == "[redacted LICENSE]"


def test_the_content_of_a_file_is_redacted(shell: Shell) -> None:
    shell.write("key.pem", f"{VALUE}\n")
    shell.write("onward.toml", '[redact]\nfiles = ["key.pem"]\n')
    assert said(shell) == "[redacted key.pem]"


def test_a_pattern_of_the_settings_is_redacted(shell: Shell) -> None:
    shell.write("onward.toml", '[redact]\npatterns = ["of-a-[a-z]+"]\n')
    assert said(shell) == "value-[redacted]"


def test_redaction_can_be_switched_off(shell: Shell) -> None:
    shell.environment["GITHUB_TOKEN"] = VALUE
    shell.write("onward.toml", "[redact]\noff = true\n")
    assert said(shell) == VALUE


def test_well_known_forms_can_be_switched_off(shell: Shell) -> None:
    token = f"ghp_{'a1B2' * 9}"
    shell.write("onward.toml", "[redact]\nwell_known = false\n")
    shell.write("line.dot", pipeline(("a", f"echo {token}")))
    assert token in shell.inside("run", "line.dot", "--verbose").out
    shell.write("onward.toml", "")
    assert token not in shell.inside("run", "line.dot", "--verbose").out


def test_a_secret_too_short_to_redact_is_named_in_a_warning(shell: Shell) -> None:
    shell.environment["MY_TOKEN"] = "short"
    shell.write("line.dot", pipeline(("a", "true")))
    done = shell.inside("run", "line.dot")
    assert done.err.count("the value of MY_TOKEN is too short to be redacted") == 1
    assert shell.inside("status").err == ""


def test_a_secret_in_a_pipeline_is_warned_of(shell: Shell) -> None:
    shell.environment["DEPLOY_KEY"] = VALUE
    shell.write("line.dot", pipeline(("a", f"deploy --key {VALUE}")))
    done = shell.inside("validate", "line.dot")
    assert done.code == 0
    assert "tool_command of node 'a' contains the value of DEPLOY_KEY" in done.out + done.err
    assert VALUE not in done.out + done.err


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ("redact = 1", "write a table [redact]"),
        ("[redact]\nnames = []", "[redact] in onward.toml sets names; known settings are env, files"),
        ("[redact]\nenv = 'KEY'", "env of [redact] in onward.toml is 'KEY'; write a list of strings"),
        ("[redact]\noff = 1", "off of [redact] in onward.toml is 1; write true or false"),
        (
            "[redact]\npatterns = ['(']",
            "the pattern '(' of [redact] in onward.toml is not a regular expression",
        ),
        ("[redact]\nfiles = ['none.txt']", "cannot read none.txt, which [redact] names: No such file"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(shell: Shell, toml: str, why: str) -> None:
    shell.write("onward.toml", toml)
    shell.write("line.dot", pipeline(("a", "true")))
    done = shell.inside("run", "line.dot")
    assert done.code == 2
    assert why in done.err
    assert done.err.count("\n") == 1, done.err


def test_the_password_of_an_address_is_a_secret() -> None:
    assert password_of("postgresql://me:p%40ss@host/db") == "p@ss"
    assert password_of("postgresql://host/db?user=me&password=hidden") == "hidden"
    assert password_of("postgresql://host/db") is None
    assert password_of("runs.db") is None
    assert password_of("postgresql://[bad/db") is None


def test_settings_that_are_no_table_are_refused() -> None:
    with pytest.raises(InvalidInput):
        read_redact([], file="onward.toml", path=str)


LOUD = """
import asyncio, gc, logging, os, sys, threading, warnings

from onward import flow, step

SECRET = os.environ["GITHUB_TOKEN"]


class Panic(BaseException):
    pass


class Closed:
    def __del__(self):
        raise ValueError(f"closing: {SECRET}")


def fail():
    raise ValueError(f"behind: {SECRET}")


async def leave():
    sys.exit(f"left: {SECRET}")


async def raises():
    fail()


@step
async def be_loud(how: str) -> None:
    loop = asyncio.get_running_loop()
    match how:
        case "task":
            task = loop.create_task(raises())
            await asyncio.sleep(0.01)
            del task
            gc.collect()
        case "callback":
            loop.call_soon(fail)
            await asyncio.sleep(0.01)
        case "thread":
            thread = threading.Thread(target=fail)
            thread.start()
            thread.join()
        case "del":
            Closed()
        case "warning":
            warnings.warn(f"careful: {SECRET}", stacklevel=1)
        case "log":
            logging.getLogger("shop").error("of the shop: %s", SECRET)
        case "wrong log":
            logging.getLogger("shop").error("of the shop: %d", SECRET)
        case "panic":
            raise Panic(SECRET)
        case "exit":
            task = loop.create_task(leave())
            await asyncio.sleep(0.01)


@flow
async def loud(how: str) -> None:
    await be_loud(how)
"""
SAID = {
    "task": "behind: [redacted GITHUB_TOKEN]",
    "callback": "behind: [redacted GITHUB_TOKEN]",
    "thread": "behind: [redacted GITHUB_TOKEN]",
    "del": "closing: [redacted GITHUB_TOKEN]",
    "warning": "careful: [redacted GITHUB_TOKEN]",
    "log": "of the shop: [redacted GITHUB_TOKEN]",
    "wrong log": "shop",
    "panic": "Panic: [redacted GITHUB_TOKEN]",
    "exit": "left: [redacted GITHUB_TOKEN]",
}


@pytest.mark.parametrize("how", SAID)
def test_what_python_prints_by_itself_has_no_secrets(shell: Shell, how: str) -> None:
    """Errors of tasks, threads and finalizers, warnings and log lines do not pass through the output."""
    shell.environment["GITHUB_TOKEN"] = VALUE
    shell.write("loud.py", LOUD)
    done = shell("run", "loud.py:loud", "--set", f"how={how}")
    assert SAID[how] in done.err
    assert VALUE not in done.out + done.err


@pytest.mark.parametrize("how", ["task", "thread", "del", "warning", "log", "wrong log"])
def test_neither_has_what_a_worker_logs_in_json(shell: Shell, how: str) -> None:
    shell.environment["GITHUB_TOKEN"] = VALUE
    shell.write("loud.py", LOUD)
    shell("submit", "loud.py:loud", "--set", f"how={how}", "--run-id", "one")
    done = shell("worker", "--app", "loud.py", "--log-format", "json", "--until-idle")
    assert SAID[how] in done.err
    assert VALUE not in done.out + done.err
