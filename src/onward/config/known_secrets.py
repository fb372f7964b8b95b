"""The secrets of this process, and the redactor that knows them."""

from __future__ import annotations

import os

from onward.config.environment import VARIABLES
from onward.config.settings import Settings
from onward.errors import InvalidInput
from onward.project import Project
from onward.redact.redactor import Redactor
from onward.redact.settings import DEFAULT_REDACT
from onward.redact.sources import DATABASE, is_secret, make_redactor, password_of

_SECRET_FILE_BYTES_MAX = 1 << 20


def redactor_of(settings: Settings) -> Redactor:
    """Knows the secrets of this process: those of its environment, its files and its database."""
    how = settings.redact
    if how.off:
        return make_redactor(how, {})
    secrets = _own_secrets(settings.db)
    secrets |= {name: VARIABLES[name] for name in how.env if name in VARIABLES}
    secrets |= {os.path.basename(path): _secret_in(path) for path in how.files}
    return make_redactor(how, secrets)


def own_redactor(db: str | None = None) -> Redactor:
    """The same without a file of settings."""
    return make_redactor(DEFAULT_REDACT, _own_secrets(db or ""))


def _own_secrets(db: str) -> dict[str, str]:
    # A variable often has the path of a file with a secret, and the path is none.
    found = {
        name: value
        for name, value in VARIABLES.items()
        if is_secret(name, value) and not os.path.exists(value)
    }
    for address in (db, VARIABLES.get("ONWARD_DB", "")):
        if password := password_of(address):
            found[DATABASE] = password
    return found


def _secret_in(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_SECRET_FILE_BYTES_MAX).decode("utf-8", "surrogateescape").strip()
    except OSError as error:
        raise InvalidInput(f"cannot read {path}, which [redact] names: {error.strerror}.") from None


def read_secret(reference: str, project: Project, redactor: Redactor) -> str:
    """The secret that `env:NAME` or `file:PATH` refers to, a path being meant from the project's directory.

    It is known to the redactor from now on.
    """
    kind, _, name = reference.partition(":")
    if kind == "env":
        if not VARIABLES.get(name):
            raise InvalidInput(f"the secret of [notify] is the variable {name}, which is not set; set it.")
        redactor.add(name, VARIABLES[name].strip())
        return VARIABLES[name]
    path = project.path(os.path.expanduser(name))
    try:
        with open(path, encoding="utf-8") as file:
            secret = file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInput(f"cannot read {path}, the secret of [notify]: {why}.") from None
    redactor.add(os.path.basename(path), secret.strip())
    return secret
