"""TLS of the server's own: a real certificate, and a client that checks it."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import ssl
import subprocess

import pytest

from tests.cli.shell import PATIENCE_S, Shell
from tests.server.serving import Serving, token_file

pytestmark = pytest.mark.slow
READY = r"Onward is at https://127\.0\.0\.1:(\d+) "


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_a_server_speaks_tls_with_its_certificate(shell: Shell) -> None:
    """S1: who trusts the certificate gets answers; who speaks plainly, or trusts another, gets none."""
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=onward"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(["openssl", *made.split(), *names], cwd=shell.directory, check=True, capture_output=True)
    process = shell.start("serve", "--port", "0", "--tls-cert", "cert.pem", "--tls-key", "key.pem")
    try:
        process.wait_for(READY)
        found = re.search(READY, process._out.text)
        assert found is not None
        port = int(found[1])
        server = Serving(shell, process, port, "", "")
        trusting = ssl.create_default_context(cafile=str(shell.directory / "cert.pem"))
        headers = {"Authorization": f"Bearer {token_file(shell).read_text().strip()}"}
        asking = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_S, context=trusting)
        asking.request("GET", "/api/runs", headers=headers)
        reply = asking.getresponse()
        told = reply.read()
        asking.close()
        assert (reply.status, json.loads(told)["runs"]) == (200, [])
        with pytest.raises(ssl.SSLCertVerificationError):
            http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=PATIENCE_S, context=ssl.create_default_context()
            ).connect()
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            server.ask("GET", "/healthz", token="")
        assert server.stop().code == 0
    finally:
        if process.process.poll() is None:
            process.process.kill()
