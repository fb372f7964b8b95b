"""Every place times every hostile request; every set of roles times every operation."""

from __future__ import annotations

from itertools import combinations

import pytest

from onward.operations.http import ADMIN, ROLES, ROUTES, VIEWER
from onward.operations.protocol import Operations
from tests.server.door import a_door
from tests.server.refusals import table

SETS = [roles for size in range(1, 5) for roles in combinations(ROLES, size)]


async def test_every_place_refuses_every_hostile_request() -> None:
    """S2, S3, S4, S8, S15, S20, S22: 0 accepted."""
    async with a_door(failures=1_000_000) as door:
        rows = await table(door)
    bad = [row for row in rows if not row.is_well]
    assert not bad, "\n".join(f"{row.place}, {row.kind}: {row.found}, not {row.wanted}" for row in bad)
    assert len({row.place for row in rows}) >= 50


@pytest.mark.parametrize("roles", SETS, ids=",".join)
async def test_every_operation_is_for_its_roles_alone(roles: tuple[str, ...]) -> None:
    """S20: every set of roles times every operation."""
    async with a_door() as door:
        token = await door.token(*roles)
        for route in ROUTES:
            path = route.path.replace("{", "").replace("}", "")
            headers = {"authorization": f"Bearer {token}"}
            reply = await door.ask(route.method, path, raw=b"", headers=headers)
            may = route.role == VIEWER or route.role in roles or ADMIN in roles
            assert (reply.code != "wrong_role") == may, (route.asks, roles, reply)
            assert reply.status < 500, (route.asks, reply)


def test_the_table_has_every_operation_or_says_why_not() -> None:
    routed = {route.asks for route in ROUTES}
    groups = [name for name in vars(Operations) if not name.startswith("_")]
    asked = set[str]()
    for group in groups:
        protocol = vars(Operations)[group].fget.__annotations__["return"]
        kind = getattr(__import__("onward.operations.protocol", fromlist=[protocol]), protocol)
        asked |= {f"{group}.{name}" for name in vars(kind) if not name.startswith("_")}
    assert routed <= asked
    assert asked - routed <= NOT_ROUTED.keys(), asked - routed - NOT_ROUTED.keys()


NOT_ROUTED = {
    "lists.run_gates": "in GET /api/runs/{run}",
    "lists.run_limit": "in GET /api/runs/{run}",
    "decide.recover_runs": "every server sweeps by itself",
    "messages.list_messages": "GET /api/chat has them",
    "start.submit_runs": "not yet",
}
