"""Flows in files: `site.py:build` is the flow `build` of the file `site.py`."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from onward.errors import InvalidInput, told
from onward.flows.define import Flow, Step
from onward.pipeline.flow_source import FlowPlace


class _Uncached(SourceFileLoader):
    """Compiles the file each time.

    Python's cache misses an edit within the same second that keeps the size, as from `limit=3` to `limit=4`.
    The run would go on with the old code, and nothing would say so.
    """

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def load_file(file: str) -> ModuleType:
    """The module in a file of Python, imported once. Its directory is where it finds others."""
    path = os.path.abspath(file)
    name = os.path.basename(path).removesuffix(".py")
    if not os.path.isfile(path):
        raise InvalidInput(f"{file} does not exist; name an existing Python file.")
    own = f"{name} of {path}"
    for known in (sys.modules.get("__main__"), sys.modules.get(name), sys.modules.get(own)):
        if known is not None and _is_from(known, path):
            return known
    if name in sys.modules or importlib.util.find_spec(name) is not None:
        name = own  # it may be called like a module of Python's, as site.py is
    directory = os.path.dirname(path)
    if directory not in sys.path:
        sys.path.insert(0, directory)
    spec = importlib.util.spec_from_file_location(name, path, loader=_Uncached(name, path))
    assert spec is not None  # a file that ends with .py has one
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InvalidInput(f"importing {file} failed: {told(error).rstrip('.')}.") from error
    return module


def _is_from(module: ModuleType, path: str) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and os.path.abspath(file) == path


def flows_in(module: ModuleType) -> Sequence[Flow[Any, Any]]:
    """The flows that a module has, also those that it imported."""
    return list({id(one): one for one in vars(module).values() if isinstance(one, Flow)}.values())


def steps_in(module: ModuleType) -> Sequence[Step[..., Any]]:
    """The steps that a module has."""
    return list({id(one): one for one in vars(module).values() if isinstance(one, Step)}.values())


def flow_at(place: FlowPlace) -> Flow[Any, Any]:
    """The flow at a place."""
    module = load_file(place.file)
    found = getattr(module, place.name, None)
    if isinstance(found, Flow):
        return found
    flows = flows_in(module)
    for flow in flows:
        if flow.name == place.name:
            return flow
    there = ", ".join(sorted(flow.name for flow in flows)) or "none"
    raise InvalidInput(f"{place.file} has no flow {place.name!r}; its flows: {there}.")
