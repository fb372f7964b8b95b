"""Where secrets are: which variables hold one, and the password of an address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qs, unquote, urlsplit

from onward.redact.patterns import WELL_KNOWN
from onward.redact.redactor import Redactor
from onward.redact.settings import RedactSettings

_HOLDS_SECRET = re.compile(
    r"(?:^|_)(?:(?:API)?KEY|PAT|AUTH|CREDENTIALS?|PASS|PASSWD)$|TOKEN$|PASSWORD|PASSPHRASE|SECRET",
    re.IGNORECASE,
)
# Named like secrets, and none.
_HARMLESS = re.compile("^ONWARD_IDEMPOTENCY_KEY$|PUBLIC", re.IGNORECASE)
_SWITCHES = frozenset({"0", "1", "on", "off", "yes", "no", "true", "false", "none"})
DATABASE = "database password"


def is_secret(name: str, value: str) -> bool:
    """Whether a variable holds a secret, by its name."""
    return bool(
        _HOLDS_SECRET.search(name) and not _HARMLESS.search(name) and value and value.lower() not in _SWITCHES
    )


def password_of(address: str) -> str | None:
    """The password in the address of a database."""
    if "://" not in address:
        return None
    try:
        parts = urlsplit(address)
        return unquote(parts.password) if parts.password else parse_qs(parts.query).get("password", [None])[0]
    except ValueError:
        return None


def make_redactor(how: RedactSettings, secrets: Mapping[str, str]) -> Redactor:
    """The redactor of a process."""
    if how.off:
        return Redactor(patterns=())
    patterns = WELL_KNOWN if how.well_known else ()
    return Redactor(secrets, patterns=patterns, own=how.patterns)
