"""Why a server cannot be reached, in one clause, and what to do about it.

The driver's own words name the address again, ask questions and run over several lines; what is left of them
here is the reason alone, whatever language the server speaks.
"""

from __future__ import annotations

import re

_ALL_FAILURES = "Multiple connection attempts failed. All failures were:"
_EACH = re.compile(r" ?- host: (?:'[^']*'|None), port: (?:'[^']*'|None), hostaddr: (?:'[^']*'|None): ")
_BEFORE = re.compile(
    r"^(?:connection (?:failed|is bad): )?"
    r"(?:connection to server (?:at \"[^\"]*\"(?: \([^)]*\))?, port \S+|on socket \"[^\"]*\") failed: )?"
    r"(?:[A-Z]+: +)?"
)
_BEHIND = re.compile(r" (?:Is the server running|This probably means|HINT:|DETAIL:|LINE \d).*$")

ELSE = "check that the server runs, and the address, role and password"
_ADVICE = (
    (r"session is read-only|hot standby", "start or promote the primary, or add it to the address"),
    (r"database \"[^\"]*\" does not exist", "create it with `createdb`, or name another in the address"),
    (r"password|authentication|\brole \"", "correct the role and the password in the address"),
    (r"pg_hba", "allow this machine in the server's pg_hba.conf, or use another address"),
    (r"starting up|shutting down|recovery|too many|remaining connection slots", "try again later"),
    (r"SSL|certificate", "correct sslmode in the address, or set up TLS on the server"),
    (r"resolve host|could not translate host|port number", "correct the host and port in the address"),
    (
        r"refused|timeout|timed out|No such file|unreachable|no route|closed the connection",
        "start the server, or correct the host and port in the address",
    ),
)


def reason(said: object) -> str:
    """What the driver or the server said, as one clause without an end."""
    text = " ".join(str(said).split())
    if _ALL_FAILURES in text:
        each = _EACH.split(text.partition(_ALL_FAILURES)[2])
        return " or ".join(dict.fromkeys(_clause(one) for one in each if one.strip()))
    return _clause(text)


def advice(why: str) -> str:
    """What to do about a reason."""
    for pattern, what in _ADVICE:
        if re.search(pattern, why, re.IGNORECASE):
            return what
    return ELSE


def _clause(text: str) -> str:
    clause = _BEHIND.sub("", _BEFORE.sub("", text.strip()))
    clause = re.sub(r"\[Errno -?\d+\] ", "", clause)
    return clause.rstrip(" .?!")
