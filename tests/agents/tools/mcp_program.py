"""A stand-in MCP server on standard input and output. Its arguments are the faults that it has.

It imports nothing of Onward: it prints what the specification documents.
"""

import json
import os
import signal
import sys
import time
from typing import Any

FAULTS = set(sys.argv[1:])
NAMES = ["ask", "crash", "echo", "environment", "grow", "hang", "huge", "mumble", "pid", "refuse", "wrong_id"]
LOG = os.environ.get("MCP_LOG")


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def note(message: dict[str, Any]) -> None:
    if LOG:
        with open(LOG, "a") as file:
            file.write(json.dumps(message) + "\n")


def answer(id: Any, result: dict[str, Any]) -> None:
    say({"jsonrpc": "2.0", "id": id, "result": result, "futureField": {"x": 1}})


def tool(name: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": f"Do {name}.", "inputSchema": schema, "icons": [], **more}


def tools() -> list[dict[str, Any]]:
    found = [tool(name) for name in NAMES]
    found.append(tool("look", annotations={"readOnlyHint": True}))
    if "grown" in FAULTS:
        found.append(tool("grown"))
    return found


def call(id: Any, name: str, arguments: dict[str, Any]) -> None:
    text = arguments.get("text", "")
    if "slow" in FAULTS:
        time.sleep(0.2)
    if name == "crash":
        sys.stderr.write("panic: out of cheese\n")
        sys.stderr.flush()
        os._exit(7)
    if name == "hang":
        return
    if name == "environment":
        text = json.dumps(dict(os.environ))
    if name == "pid":
        text = str(os.getpid())
    if name == "grow":
        FAULTS.add("grown")
        say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    if name == "huge":
        sys.stdout.write("x" * (9 * 1024 * 1024))
        sys.stdout.flush()
        return
    if name == "ask":
        say({"jsonrpc": "2.0", "id": "s-1", "method": "sampling/createMessage", "params": {}})
        say({"jsonrpc": "2.0", "id": "s-2", "method": "ping"})
        say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}})
    if name == "mumble":
        sys.stdout.write("receipt 17\n")
        sys.stdout.flush()
        return
    if name == "wrong_id":
        answer(id + 1000, {"content": [{"type": "text", "text": "for somebody else"}]})
    if name == "refuse":
        say({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "Unknown tool: refuse"}})
        return
    answer(id, {"content": [{"type": "text", "text": f"{name}: {text}"}]})


def list_tools(id: Any, params: dict[str, Any]) -> None:
    found = tools()
    if "pages" in FAULTS:
        at = int(params.get("cursor", "0"))
        more = {"nextCursor": str(at + 2)} if at + 2 < len(found) else {}
        answer(id, {"tools": found[at : at + 2], **more})
    elif "endless" in FAULTS:
        answer(id, {"tools": found, "nextCursor": "again"})
    else:
        answer(id, {"tools": found})


def initialize(id: Any, params: dict[str, Any]) -> None:
    if "modern" in FAULTS:
        error = {"code": -32601, "message": "initialize is gone; supported: 2026-07-28"}
        say({"jsonrpc": "2.0", "id": id, "error": error})
        return
    version = (
        "2024-11-05"
        if "old" in FAULTS
        else "1999-01-01"
        if "ancient" in FAULTS
        else params["protocolVersion"]
    )
    server = {"name": "stand-in", "version": "1", "websiteUrl": "x"}
    capabilities = {} if "toolless" in FAULTS else {"tools": {"listChanged": True}, "logging": {}}
    answer(id, {"protocolVersion": version, "capabilities": capabilities, "serverInfo": server})


def serve() -> None:
    if "fails" in FAULTS:
        sys.stderr.write("Error: no licence\n")
        sys.exit(3)
    if "stubborn" in FAULTS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "child" in FAULTS and os.fork() == 0:
        os.setsid()
        note({"pid": os.getpid()})
        time.sleep(1000)
    if "banner" in FAULTS:
        print("Listening on stdio …", flush=True)
    if "garbage" in FAULTS:
        for _ in range(200):
            print("INFO nothing to see", flush=True)
    if "loud" in FAULTS:
        sys.stderr.write("noise\n" * 200_000)
    note({"pid": os.getpid()})
    for line in sys.stdin:
        message = json.loads(line)
        note(message)
        id, method, params = message.get("id"), message.get("method"), message.get("params", {})
        if "mute" in FAULTS:
            continue
        if "modern" in FAULTS and method != "initialize" and id is not None:
            meta = params.get("_meta", {})
            assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28", meta
        if method == "initialize":
            initialize(id, params)
        elif method == "server/discover" and "modern" in FAULTS:
            answer(
                id,
                {
                    "resultType": "complete",
                    "supportedVersions": ["2026-07-28"],
                    "capabilities": {"tools": {}},
                },
            )
        elif method == "tools/list":
            list_tools(id, params)
        elif method == "tools/call":
            call(id, params["name"], params.get("arguments", {}))
        elif id is not None and method is not None:
            say({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})
    if "stubborn" in FAULTS:
        time.sleep(1000)


serve()
