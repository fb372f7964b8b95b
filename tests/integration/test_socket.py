"""`/ws` as a connection: who may open it, and how it ends."""

from __future__ import annotations

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from onward.testing.script import ModelScript
from tests.cli.shell import Shell
from tests.integration.client import listening, model
from tests.server.serving import serving

pytestmark = pytest.mark.slow


def test_a_socket_is_refused_like_any_request_and_closed_when_the_server_drains(shell: Shell) -> None:
    with model(shell, ModelScript()), serving(shell) as server:
        for query in ("?chat=c1", "?after=1", "?chatId=c1&after=x"):
            with pytest.raises(InvalidStatus) as refused, listening(server, query):
                pass
            assert refused.value.response.status_code == 422
        with listening(server) as workflows, listening(server, "?chatId=nobody") as page:
            assert server.stop().code == 0
            for client in (workflows, page):
                with pytest.raises(ConnectionClosed) as closed:
                    client.until_type("WORKFLOW_STARTED")
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1001
