"""The description of the API, generated from the table of routes and the types of requests and replies.

`document` is OpenAPI 3.1 for programs, `document_page` the same for people: HTML without a script or any
external resource. Streams have the address of what they follow, and are omitted.
"""

from __future__ import annotations

from functools import cache
from html import escape
from typing import Any, NotRequired, TypedDict

import msgspec

from onward.operations.http import LIMIT, LIMIT_MAX, ROUTES, Route
from onward.read.event_schemas import SHOWN, event_schemas
from onward.replies.steps import EventShown
from onward.server.api import PAGES, ApiPlace
from onward.version import VERSION

REF = "#/components/schemas/{name}"
KEY = "1 to 200 printable ASCII characters: sending the same request again returns the result of the first"
INTRODUCTION = (
    "Send `Authorization: Bearer TOKEN`. A run is named by its whole id. Lists repeat a parameter. Errors "
    "are sent as application/problem+json: programs read `code`."
)


class ProblemTold(TypedDict):
    """Why a request was refused. `detail` is for people, `code` for programs."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    advice: NotRequired[str]
    details: dict[str, Any]
    request: str


@cache
def document() -> bytes:
    """OpenAPI 3.1, as JSON."""
    return msgspec.json.encode(described())


@cache
def described() -> dict[str, Any]:
    """The document as a value."""
    places = [ApiPlace(route) for route in ROUTES]
    types: list[Any] = [ProblemTold]
    for place in places:
        types += [place.route.reply, place.query, *([place.body] if place.body else [])]
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    components |= event_schemas(REF)
    of = iter(schemas[1:])
    paths: dict[str, dict[str, Any]] = {}
    for place in places:
        route, reply, query = place.route, next(of), next(of)
        reply = {"$ref": REF.format(name=SHOWN)} if route.reply == EventShown else reply
        body = next(of) if place.body else None
        parameters = [*_in_path(route), *_in_query(query, components, route), *_in_headers(route)]
        about: dict[str, Any] = {
            "operationId": route.asks,
            "summary": (route.request.__doc__ or "").partition("\n")[0],
            "description": f"Role: {route.role}.",
            "parameters": parameters,
            "responses": {str(route.status): _reply(route, reply), "default": _content(schemas[0], True)},
        }
        if body is not None:
            about["requestBody"] = {"content": {"application/json": {"schema": body}}, "required": False}
        paths.setdefault(route.path, {})[route.method.lower()] = about
    return {
        "openapi": "3.1.0",
        "info": {"title": "Onward", "version": VERSION, "description": INTRODUCTION},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _reply(route: Route, reply: dict[str, Any]) -> dict[str, Any]:
    if route.is_bytes:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        return {"description": "The content, as a download.", "content": content}
    if route.pages is None:
        return _content(reply)
    page = {
        "type": "object",
        "properties": {
            PAGES[route.asks]: {"type": "array", "items": reply},
            "cursor": {"type": ["integer", "null"]},
        },
        "required": [PAGES[route.asks], "cursor"],
    }
    return _content(page)


def _content(schema: Any, is_problem: bool = False) -> dict[str, Any]:
    kind = "application/problem+json" if is_problem else "application/json"
    says = "Why the request was refused." if is_problem else "The reply, as `--json` prints it."
    return {"description": says, "content": {kind: {"schema": schema}}}


def _in_path(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in route.in_path
    ]


def _in_query(query: dict[str, Any], components: dict[str, Any], route: Route) -> list[dict[str, Any]]:
    """The parameters; `limit` has the bounds of every page."""
    found = components[query["$ref"].rpartition("/")[2]]
    needed = found.get("required", ())
    told = {
        name: {"name": name, "in": "query", "required": name in needed, "schema": schema}
        for name, schema in found["properties"].items()
    }
    if route.pages or "limit" in told:
        bounds = {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT}
        told["limit"] = {"name": "limit", "in": "query", "required": False, "schema": bounds}
    return list(told.values())


def _in_headers(route: Route) -> list[dict[str, Any]]:
    named: dict[str, dict[str, Any]] = {}
    if "key" in route.of_caller:
        named["Idempotency-Key"] = {"type": "string", "pattern": "^[ -~]{1,200}$", "description": KEY}
    if "if_head" in route.of_caller:
        named["If-Match"] = {"type": "string", "pattern": '^"[0-9]{1,18}"$'}
    if route.waits:
        named["Prefer"] = {"type": "string", "examples": ["wait=10"]}
    return [
        {"name": name, "in": "header", "required": False, "schema": schema} for name, schema in named.items()
    ]


@cache
def document_page() -> str:
    """The description for people."""
    made = described()
    routes = "".join(
        _route_section(path, method, about)
        for path, methods in made["paths"].items()
        for method, about in methods.items()
    )
    types = "".join(
        _type_section(name, schema) for name, schema in sorted(made["components"]["schemas"].items())
    )
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>The API of Onward</title></head><body>"
        f"<h1>The API of Onward {escape(VERSION)}</h1><p>{escape(INTRODUCTION)}</p>"
        f"{routes}<h2>Types</h2>{types}</body></html>"
    )


def _route_section(path: str, method: str, about: dict[str, Any]) -> str:
    asked = "".join(
        f"<li><code>{escape(one['name'])}</code> ({one['in']}{', required' if one['required'] else ''}): "
        f"{_shown(one['schema'])}</li>"
        for one in about["parameters"]
    )
    if "requestBody" in about:
        schema = about["requestBody"]["content"]["application/json"]["schema"]
        asked += f"<li>the body: {_shown(schema)}</li>"
    code, reply = next(iter(about["responses"].items()))
    schema = next(iter(reply["content"].values()))["schema"]
    return (
        f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(about['summary'])} "
        f"{escape(about['description'])}</p><ul>{asked}<li>{code}: {_shown(schema)}</li></ul>"
    )


def _type_section(name: str, schema: dict[str, Any]) -> str:
    fields = "".join(
        f"<li><code>{escape(field)}</code>: {_shown(kind)}</li>"
        for field, kind in schema.get("properties", {}).items()
    )
    says = escape(schema.get("description", ""))
    some = f"<p>{_shown(schema)}</p>" if "oneOf" in schema else ""
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{says}</p>{some}<ul>{fields}</ul>'


def _shown(schema: dict[str, Any]) -> str:
    """A schema in a few words, with links to the types it names."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if some := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(map(_shown, some))
    if "const" in schema:
        return f"<code>{escape(str(schema['const']))}</code>"
    if "enum" in schema:
        return "one of " + ", ".join(f"<code>{escape(str(one))}</code>" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"a list of {_shown(schema.get('items') or {})}"
    if schema.get("type") == "object" and "properties" in schema:
        fields = schema["properties"].items()
        return ", ".join(f"<code>{escape(name)}</code>: {_shown(kind)}" for name, kind in fields)
    kind = schema.get("type", "anything")
    return escape(kind if isinstance(kind, str) else " or ".join(kind))
