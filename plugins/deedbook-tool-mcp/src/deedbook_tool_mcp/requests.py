"""The requests of the protocol that are abilities besides the calls of tools; pure.

The ability of a request is ``SERVER/METHOD``, such as ``files/resources/read``. Its id has more segments than that of a
tool, ``SERVER/TOOL``, so the two never meet, and the glob ``SERVER/*`` covers the tools alone.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from deedbook.contract import Object

LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
ELICIT: Final = "elicitation/create"
"""The one request that a server makes: it asks the person at the client."""
HANDLER: Final = "mcp-request"
"""The tool plugin behind their abilities."""
_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "object", "additionalProperties": _TEXT}


def _object(required: str = "", **properties: Object) -> Object:
    """Return the schema of an object with these members and no others."""
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


def _result(**properties: Object) -> Object:
    """Return the schema of a result with at least these members."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(*required: str) -> Object:
    items = {"type": "object", "properties": dict.fromkeys(required, _TEXT), "required": list(required)}
    return {"type": "array", "items": items}


@attrs.frozen
class RequestForm:
    """A request of the protocol: what it is for, and the schemas of its parameters and of its result.

    *capability* is the capability that a server declares for it. *for_client*: it concerns one client's own connection,
    so that it works only through the gateway.
    """

    capability: str
    summary: str
    takes: Object
    gives: Object
    for_client: bool = False


_PAGE: Final = _object(cursor=_TEXT)
_URI: Final = _object("uri", uri=_TEXT)
_NOTHING: Final = _result()

REQUESTS: Final[Mapping[str, RequestForm]] = {
    "completion/complete": RequestForm(
        "completions",
        "Suggest values for an argument of a prompt or of a resource template.",
        _object(
            "ref argument",
            ref=_object("type", type={"enum": ["ref/prompt", "ref/resource"]}, name=_TEXT, title=_TEXT, uri=_TEXT),
            argument=_object("name value", name=_TEXT, value=_TEXT),
            context=_object(arguments=_TEXTS),
        ),
        _result(completion=_result(values={"type": "array", "items": _TEXT})),
    ),
    ELICIT: RequestForm(
        "",
        "Ask the person at the client for values, and send the answer to the server.",
        _object("message requestedSchema", message=_TEXT, requestedSchema={"type": "object"}, mode={"const": "form"}),
        _result(action={"enum": ["accept", "decline", "cancel"]}),
        for_client=True,
    ),
    "logging/setLevel": RequestForm(
        "logging",
        "Choose from which level on the server sends log messages.",
        _object("level", level={"enum": list(LEVELS)}),
        _NOTHING,
        for_client=True,
    ),
    "prompts/get": RequestForm(
        "prompts",
        "Get a prompt, filled with arguments.",
        _object("name", name=_TEXT, arguments=_TEXTS),
        _result(messages={"type": "array", "items": {"type": "object", "required": ["role", "content"]}}),
    ),
    "prompts/list": RequestForm("prompts", "List the prompts.", _PAGE, _result(prompts=_list("name"))),
    "resources/list": RequestForm("resources", "List the resources.", _PAGE, _result(resources=_list("uri", "name"))),
    "resources/read": RequestForm("resources", "Read a resource.", _URI, _result(contents=_list("uri"))),
    "resources/subscribe": RequestForm(
        "resources", "Ask to be notified when a resource changes.", _URI, _NOTHING, for_client=True
    ),
    "resources/templates/list": RequestForm(
        "resources", "List the resource templates.", _PAGE, _result(resourceTemplates=_list("uriTemplate", "name"))
    ),
    "resources/unsubscribe": RequestForm(
        "resources", "End the notifications about a resource.", _URI, _NOTHING, for_client=True
    ),
}
"""The requests by their methods."""


def find_offered(capabilities: Mapping[str, Any], *, is_modern: bool) -> Iterator[str]:
    """Yield the methods that a server with these *capabilities*, as JSON, answers.

    With revision 2026-07-28 (*is_modern*) a server declares nothing about the subscriptions of older revisions, so they
    count as offered.
    """
    for method, form in REQUESTS.items():
        offered = capabilities.get(form.capability)
        if isinstance(offered, Mapping) and (
            not method.endswith("subscribe") or is_modern or offered.get("subscribe") is True
        ):
            yield method


def is_request(plugin: Any) -> bool:
    """Return whether *plugin*, the handler of an ability in a charter, sends such a request."""
    return list(plugin or ()) == ["tool", HANDLER]
