"""The app that a command line names."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

from onward.config import Settings, load_settings, place_in, redactor_of
from onward.errors import InvalidInput
from onward.wiring import POSTGRES, PROJECT_RUNS

if TYPE_CHECKING:
    from types import ModuleType

    from onward.app import Onward
    from onward.cli.options import Common
    from onward.engine.sources import Sources
    from onward.store.port.store import Store


def sources_of(app: Onward, store: Store) -> Sources:
    """Where the definitions of stored runs come from, prepared as this app prepares them."""
    from onward.engine.sources import Sources
    from onward.pipeline.graph import BUILT_IN_TYPES

    return Sources(store.blobs, app.transforms, {*app.handlers, *BUILT_IN_TYPES}, app.rules)


def common_app(common: Common) -> Onward:
    """The app that the flags of every command mean."""
    return app_of(load_settings(db=common.db, app=common.app, runs=common.runs, files=common.files))


def app_of(settings: Settings) -> Onward:
    """The app that the settings name, or one without handlers; a given database overrides the app's own."""
    from onward.app import Onward

    app = Onward(settings.db) if settings.app is None else loaded_app(settings, settings.app)
    if settings.is_db_given:
        app.store = settings.db
    app.runs = settings.runs or app.runs
    if app.runs is None and isinstance(app.store, str) and app.store.startswith(POSTGRES):
        app.runs = settings.project.path(PROJECT_RUNS)
    app.files = settings.files or app.files
    app.blocked_s = app.blocked_s if settings.blocked_s is None else settings.blocked_s
    redactor = redactor_of(settings)
    if not settings.redact.off:
        redactor.take(app.redactor)
    app.redactor = redactor
    return app


def loaded_app(settings: Settings, name: str) -> Onward:
    """The app that the settings name; what the project's file names is meant from the project's directory."""
    if not settings.is_app_of_project or not settings.project.directory:
        return load_app(name, os.getcwd())
    project = settings.project
    app = load_app(name, project.directory)
    app.store = place_in(project, app.store) if isinstance(app.store, str) else app.store
    app.runs = None if app.runs is None else project.path(app.runs)
    return app


def load_app(name: str, directory: str) -> Onward:
    """The app `package.module:name`, imported from a directory or an installed package."""
    module_name, colon, attribute = name.partition(":")
    module_path = module_name.removesuffix(".py").removeprefix("./").replace("/", ".")
    if not colon or not module_name or not attribute:
        example = f"{module_path or 'shop'}:{attribute or 'app'}"
        raise InvalidInput(f"--app {name!r} names no app; write MODULE:NAME, as in {example}.")
    if module_path != module_name:
        raise InvalidInput(
            f"--app {name}: {module_name!r} is a file; write its module, as in {module_path}:{attribute}."
        )
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name and not module_name.startswith(f"{error.name}."):
            raise InvalidInput(
                f"--app {name}: {module_name} needs the module {error.name!r}, which is missing."
            ) from error
        raise InvalidInput(
            f"--app {name}: there is no module {module_name!r} in {directory} or installed."
        ) from error
    except Exception as error:
        raise InvalidInput(
            f"--app {name}: importing {module_name} failed: {type(error).__name__}: {error}."
        ) from error
    return _app_in(module, attribute, name)


def _app_in(module: ModuleType, attribute: str, name: str) -> Onward:
    from onward.app import Onward

    found: object = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, Onward):
        return found
    apps = sorted(key for key, value in vars(module).items() if isinstance(value, Onward))
    meant = (
        f"did you mean {module.__name__}:{apps[0]}?" if apps else f"write `{attribute} = Onward(...)` there."
    )
    if found is None:
        raise InvalidInput(f"--app {name}: module {module.__name__} has no {attribute!r}; {meant}")
    raise InvalidInput(f"--app {name} has the type {type(found).__name__} and is no Onward app; {meant}")
