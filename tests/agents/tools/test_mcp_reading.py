"""What MCP servers say, and what settings say about them: settings, names, rules, answers. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from onward.agents.tools.mcp.protocol import (
    NotAMessage,
    RpcError,
    ServerAnswer,
    ServerNotification,
    ServerRequest,
    check_marks,
    encoded,
    mirrored,
    read_messages,
)
from onward.agents.tools.mcp.settings import McpServer, read_servers
from onward.agents.tools.mcp.source import McpTools, model_name, read_answer, read_tools, rules_of
from onward.agents.tools.port import ToolAnswer, ToolRules
from onward.clock import SystemClock
from onward.errors import InvalidInput
from tests.agents.tools.using import a_step

SERVER = McpServer(name="files", command=("x",))
TRUSTED = McpServer(name="files", command=("x",), trust_hints=True)


def test_settings_describe_servers() -> None:
    found = read_servers(
        {
            "files": {
                "command": ["npx", "server"],
                "env": ["TOKEN", "AWS_*"],
                "cwd": "sub",
                "tools": ["read_*"],
            },
            "line": {"command": "exec server --stdio", "time_limit_s": 5},
            "web": {"url": "https://example.com/mcp/", "headers": {"Authorization": "env:KEY"}},
        }
    )
    assert found["files"].command == ("npx", "server")
    assert (found["files"].env, found["files"].cwd, found["files"].tools) == (
        ("TOKEN", "AWS_*"),
        "sub",
        ("read_*",),
    )
    assert found["line"].command == ("sh", "-c", "exec server --stdio")
    assert found["web"].url == "https://example.com/mcp/"
    assert not found["web"].trust_hints


@pytest.mark.parametrize(
    ("name", "table", "told"),
    [
        ("files", {}, "[mcp.files] in onward.toml needs either a command or a url"),
        ("files", {"command": "x", "url": "http://a/b"}, "either a command or a url"),
        ("files", {"command": "x", "timeout": 3}, "sets timeout; known settings are command, cwd, env"),
        ("files", {"command": ""}, "command of [mcp.files] in onward.toml is ''; write a line, or words"),
        ("files", {"command": [1]}, "write a line, or words"),
        (
            "files",
            {"command": "x", "headers": {}},
            "sets headers, which a server with a command does not have",
        ),
        ("files", {"url": "http://a/b", "env": ["A"]}, "sets env, which a server with a url does not have"),
        ("files", {"command": "x", "env": ["A=b"]}, "is not a variable name"),
        ("files", {"command": "x", "tools": "read"}, "write a list of names and patterns"),
        ("files", {"command": "x", "time_limit_s": 0}, "time_limit_s of [mcp.files]"),
        ("files", {"command": "x", "trust_hints": "yes"}, "write true or false"),
        ("files", {"url": "ftp://a"}, "is not an http address"),
        ("files", {"url": "https://user:pass@a/b"}, "contains a user name or a password"),
        ("files", {"url": "https://a/b", "headers": {"Authorization": "Bearer x"}}, "looks like a secret"),
        ("files", {"url": "https://a/b", "headers": {"Mcp-Session-Id": "x"}}, "which Onward sets itself"),
        ("a__b", {"command": "x"}, "has an invalid name"),
        ("1st", {"command": "x"}, "has an invalid name"),
        ("x" * 31, {"command": "x"}, "has an invalid name"),
        ("files", "x", "write a table [mcp.files]"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(name: str, table: Any, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_servers({name: table})
    assert told in str(refused.value)
    assert "pass@" not in str(refused.value)


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ("read", "files__read"),
        ("admin.tools.list", "files__admin_tools_list"),
        ("übersicht", "files___bersicht"),
        ("x" * 100, f"files__{'x' * 48}_"),
    ],
)
def test_a_tool_has_a_name_that_every_provider_takes(own: str, name: str) -> None:
    found = model_name(SERVER, own, taken={})
    assert found.startswith(name)
    assert len(found) <= 64


def test_two_tools_whose_names_become_the_same_are_both_there() -> None:
    listed, odd = read_tools(SERVER, [{"name": "a.b"}, {"name": "a_b"}])
    assert odd == []
    names = {tool.own_name: tool.described.name for tool in listed}
    assert names["a.b"] == "files__a_b"
    assert names["a_b"].startswith("files__a_b_")


def test_tools_that_cannot_be_used_are_left_out_and_named() -> None:
    found: list[Any] = [
        {"name": "good", "title": "A title", "inputSchema": {"type": "object", "required": ["a"]}},
        {"name": "remote", "inputSchema": {"$ref": "http://127.0.0.1:1/schema"}},
        {"name": "list", "inputSchema": {"type": "array"}},
        {"name": "none", "inputSchema": None},
        {"description": "no name"},
        7,
    ]
    listed, odd = read_tools(SERVER, found)
    (good,) = listed
    assert good.described.description == "A title"
    assert good.described.parameters == {"type": "object", "properties": {}, "required": ["a"]}
    assert len(odd) == 5
    assert "the tool 'remote' of the MCP server 'files' is left out: its inputSchema refers to" in odd[0]


def test_settings_choose_tools_by_their_own_names() -> None:
    server = McpServer(name="files", command=("x",), tools=("read_*", "stat"))
    found = [{"name": name} for name in ("read_file", "write_file", "stat", "statistics")]
    assert [tool.own_name for tool in read_tools(server, found)[0]] == ["read_file", "stat"]


STRICT = ToolRules(repeatable=False, approval=True)
RULES: list[tuple[Any, ToolRules]] = [
    (None, STRICT),
    ({}, STRICT),
    ("readOnlyHint", STRICT),
    ({"readOnlyHint": True}, ToolRules(repeatable=True, approval=False)),
    ({"readOnlyHint": "true"}, STRICT),
    ({"idempotentHint": True}, ToolRules(repeatable=True, approval=True)),
    ({"destructiveHint": False}, ToolRules(repeatable=False, approval=False)),
    ({"destructiveHint": True, "readOnlyHint": True}, ToolRules(repeatable=True, approval=True)),
]


@pytest.mark.parametrize(("annotations", "trusted"), RULES)
def test_what_a_server_says_of_itself_counts_only_if_settings_trust_it(
    annotations: Any, trusted: ToolRules
) -> None:
    assert rules_of(SERVER, annotations) == STRICT
    assert rules_of(TRUSTED, annotations) == trusted


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, ToolAnswer("a\nb")),
        ({"content": [{"type": "text", "text": "no"}], "isError": True}, ToolAnswer("no", is_error=True)),
        ({"content": []}, ToolAnswer("")),
        ({}, ToolAnswer("")),
        (
            {"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]},
            ToolAnswer("[image: image/png, 3 bytes]"),
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "inside"}}]},
            ToolAnswer("[a:b]\ninside"),
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a:b", "blob": "AAAA"}}]},
            ToolAnswer("[resource: a:b, unknown type, 3 bytes]"),
        ),
        (
            {"content": [{"type": "resource_link", "uri": "a:b", "name": "main"}]},
            ToolAnswer("[link: main a:b]"),
        ),
        (
            {"content": [{"type": "hologram", "x": 1}, 7, {"type": "text"}]},
            ToolAnswer("[hologram: not shown]\n[text: not shown]"),
        ),
        ({"structuredContent": {"a": 1}}, ToolAnswer('{"a":1}')),
        (
            {"content": [{"type": "text", "text": '{"a": 1}'}], "structuredContent": {"a": 1}},
            ToolAnswer('{"a": 1}'),
        ),
        (
            {"content": [{"type": "text", "text": "5"}], "structuredContent": {"result": 5}},
            ToolAnswer("5"),  # as SDKs wrap what is no object
        ),
        (
            {"content": [{"type": "text", "text": "five"}], "structuredContent": {"result": "five"}},
            ToolAnswer("five"),
        ),
        (
            {"content": [{"type": "text", "text": "summary"}], "structuredContent": [1]},
            ToolAnswer("summary\n[1]"),
        ),
        (
            {"resultType": "input_required", "inputRequests": {}},
            ToolAnswer("the tool asks for input of a person, which is not possible here", is_error=True),
        ),
    ],
)
def test_an_answer_is_text_for_the_model(result: dict[str, Any], answer: ToolAnswer) -> None:
    assert read_answer(result) == answer


def test_messages_are_read_whatever_else_they_hold() -> None:
    assert read_messages(b'{"jsonrpc":"2.0","id":1,"result":{"a":1},"x":2}') == [
        ServerAnswer(1, result={"a": 1})
    ]
    assert read_messages(b'{"id":"s","method":"ping"}') == [ServerRequest("s", "ping")]
    assert read_messages(b'[{"method":"n"},{"id":2,"error":{"code":-1,"message":"x"}}]') == [
        ServerNotification("n", {}),
        ServerAnswer(2, error={"code": -1, "message": "x"}),
    ]


@pytest.mark.parametrize(
    "line",
    [b"", b"hello", b"3", b"null", b"[1]", b"{}", b'{"id":1}', b'{"id":true,"result":{}}', b"[" * 100_000],
)
def test_what_is_no_message_is_none(line: bytes) -> None:
    with pytest.raises(NotAMessage):
        read_messages(line)


def test_an_error_is_told_in_one_line() -> None:
    with pytest.raises(RpcError) as error:
        ServerAnswer(1, error={"code": -32000, "message": "a\n\x1b[31mb" + "x" * 10_000}).value()
    assert "\n" not in str(error.value)
    assert len(str(error.value)) <= 500
    with pytest.raises(RpcError, match="error None"):
        ServerAnswer(1, error={}).value()


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("us-west1", "us-west1"),
        ("a b", "a b"),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("", "=?base64??="),
    ],
)
def test_a_text_becomes_a_header_as_the_specification_says(value: str, sent: str) -> None:
    assert encoded(value) == sent


def test_marked_parameters_become_headers() -> None:
    schema = {
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"properties": {"count": {"type": "integer", "x-mcp-header": "Count"}}},
            "on": {"type": "boolean", "x-mcp-header": "On"},
        }
    }
    check_marks(schema)
    assert mirrored(schema, {"region": "eu", "deep": {"count": 3}, "on": True}) == {
        "Mcp-Param-Region": "eu",
        "Mcp-Param-Count": "3",
        "Mcp-Param-On": "true",
    }
    assert mirrored(schema, {"region": None, "deep": 3}) == {}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "A\r\nB"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": ""}}},
        {"properties": {"a": {"items": {"type": "string", "x-mcp-header": "A"}}}},
        {
            "properties": {
                "a": {"type": "string", "x-mcp-header": "A"},
                "b": {"type": "string", "x-mcp-header": "a"},
            }
        },
    ],
)
def test_a_mark_that_cannot_be_followed_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        check_marks(schema)


@pytest.mark.parametrize(
    ("name", "is_there"),
    [
        ("files__read", True),
        ("files__*", True),
        ("*", True),
        ("fi*", True),
        ("files__", False),
        ("read", False),
        ("other__*", False),
        ("files", False),
        ("*__read", True),
    ],
)
def test_a_name_is_known_as_far_as_its_server_is(name: str, is_there: bool) -> None:
    async def nothing(server: McpServer) -> Any:
        raise AssertionError("nothing is started to check a name")

    tools = McpTools({"files": SERVER}, nothing, clock=SystemClock(), warn=print)
    assert tools.check_name(name, a_step().node) is is_there
