"""Providers that speak none of our formats, through pydantic-ai. Begin with `client`.

Only these files know the library. It is an extra, and is imported with the first request: `is_installed` says
whether it can be, without importing it.
"""

from __future__ import annotations

from importlib.util import find_spec

INSTALL = "pip install 'onward[others]'"


def is_installed() -> bool:
    """Whether the library of the extra is there."""
    return find_spec("pydantic_ai") is not None
