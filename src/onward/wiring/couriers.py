"""What delivers notifications, as `[notify]` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from onward.config.environment import tool_environment
from onward.config.known_secrets import read_secret
from onward.config.settings import Settings
from onward.errors import InvalidInput
from onward.store.port.store import Store
from onward.wiring.places import database_variable
from onward.wiring.warning import redacting

if TYPE_CHECKING:
    from onward.notify.courier import Courier
    from onward.notify.sender import Sender
    from onward.notify.settings import NotifySettings
    from onward.redact.redactor import Redactor


def make_courier(
    store: Store,
    settings: Settings,
    *,
    warn: Callable[[str], None],
    redactor: Redactor,
    db: str | None = None,
    count: Callable[[str], None] = lambda result: None,
    is_hurried: Callable[[], bool] = lambda: False,
) -> Courier | None:
    """What delivers notifications as `[notify]` says; None if nobody wants any.

    What the `redactor` knows is told to nobody; the secret that signs requests is known to it from now on.
    """
    notify = settings.notify
    if notify is None:
        return None
    from onward.clock import SystemClock, SystemDice
    from onward.notify.courier import Courier

    return Courier(
        store.outbox,
        _sender(notify, settings, redactor, db),
        SystemClock(),
        SystemDice(),
        kinds=notify.on,
        timeout_s=notify.timeout_s,
        warn=redacting(warn, redactor),
        redactor=redactor,
        count=count,
        is_hurried=is_hurried,
    )


def _sender(notify: NotifySettings, settings: Settings, redactor: Redactor, db: str | None) -> Sender:
    from onward.clock import SystemClock
    from onward.notify.command import CommandSender
    from onward.notify.url import UrlSender, key_of
    from onward.process import SystemSpawn
    from onward.redact.stream import cleaner_of

    if notify.command is not None:
        environment = tool_environment(notify.env) | database_variable(db, notify.env)
        cwd = settings.project.path(".")
        spawn = SystemSpawn(cleaner=cleaner_of(lambda: redactor))
        return CommandSender(
            notify.command, spawn, environment=environment, cwd=cwd, timeout_s=notify.timeout_s
        )
    secret = None
    if notify.secret is not None:
        try:
            secret = key_of(read_secret(notify.secret, settings.project, redactor))
        except ValueError:
            raise InvalidInput(
                f"the secret of [notify], {notify.secret}, is empty or not base64 behind whsec_."
            ) from None
    assert notify.url is not None  # one of the two is there
    return UrlSender(notify.url, secret=secret, timeout_s=notify.timeout_s, clock=SystemClock())
