"""A client for Amazon Bedrock that makes every request once. It alone imports boto3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import boto3
from botocore.config import Config
from botocore.session import Session
from botocore.tokens import FrozenAuthToken

from onward.agents.providers import TimeLimits

KEY, ADDRESS = "api_key", "base_url"
TIMES = {"aws_read_timeout": "read_timeout", "aws_connect_timeout": "connect_timeout"}


def bedrock_client(options: Mapping[str, Any], limits: TimeLimits) -> Any:
    """The client; without a key, it finds the credentials of AWS as every other program does."""
    given = dict(options)
    key, address = given.pop(KEY, None), given.pop(ADDRESS, None)
    config: dict[str, Any] = {
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "read_timeout": max(limits.first_byte_s, limits.between_s),
        "connect_timeout": limits.connect_s,
    }
    config |= {TIMES[name]: given.pop(name) for name in TIMES if name in given}
    if key is not None:
        given = {name: value for name, value in given.items() if name in ("region_name", "profile_name")}
        given["botocore_session"] = _KeySession(key)
        config["signature_version"] = "bearer"
    return boto3.Session(**given).client("bedrock-runtime", config=Config(**config), endpoint_url=address)


class _KeySession(Session):  # type: ignore[misc, unused-ignore]
    """Signs with a key of Bedrock, and never with other credentials that the machine may have."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key

    def get_auth_token(self, **_: Any) -> FrozenAuthToken:
        return FrozenAuthToken(self._key)

    def get_credentials(self) -> None:
        return None
