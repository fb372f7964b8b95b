"""Which database a SQLite file is."""

from __future__ import annotations

import os

import apsw

from onward.model.identity import Identity
from onward.store.sqlite.reading import one


def read_identity(db: apsw.Connection, path: str) -> Identity:
    """Its own, with the file's name: a copy beside the original is not the original."""
    found = one(db, "identity_get")
    if found is None:
        raise apsw.CorruptError("its identity is missing")
    name, unmarked_until_us = found
    return Identity(f"{name}/{os.path.basename(path)}", unmarked_until_us)
