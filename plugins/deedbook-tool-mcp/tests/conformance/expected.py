"""The server that the official conformance suite expects, on the official SDK and without Deedbook.

Run ``python expected.py`` for standard input and output, ``python expected.py PORT`` for HTTP. `server.sh` gives it to
the suite directly and through the gateway; the tests put the gateway in front of it.
"""

import asyncio
import json
import sys
from typing import Any, Final

import anyio
import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import ServerMessageMetadata

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
NOTHING: Final = {"type": "object", "properties": {}, "additionalProperties": False}
SCHEMA: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
DEFAULTS: Final = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
TITLED: Final = [{"const": "value1", "title": "First"}, {"const": "value2", "title": "Second"}]
OPTIONS: Final = ["option1", "option2", "option3"]
ENUMS: Final = {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}
PERSON: Final = {"username": {"type": "string"}, "email": {"type": "string"}}
QUESTIONS: Final = {
    "test_elicitation": (PERSON, ["username", "email"]),
    "test_elicitation_sep1034_defaults": (DEFAULTS, []),
    "test_elicitation_sep1330_enums": (ENUMS, []),
}

Context = ServerRequestContext[Any, Any]


def text(said: str) -> types.TextContent:
    """Return a block of text."""
    return types.TextContent(text=said)


def resource(uri: str, media: str, said: str) -> types.EmbeddedResource:
    """Return a block that embeds a resource."""
    return types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, mime_type=media, text=said))


IMAGE = types.ImageContent(data=PIXEL, mime_type="image/png")
EMBEDDED = resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
MIXED = resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
BLOCKS: Final[dict[str, list[Any]]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [IMAGE],
    "test_audio_content": [types.AudioContent(data=SOUND, mime_type="audio/wav")],
    "test_embedded_resource": [EMBEDDED],
    "test_multiple_content_types": [text("Multiple content types test:"), IMAGE, MIXED],
}
SAID: Final = {"type": "object", "properties": {"prompt": {"type": "string"}, "message": {"type": "string"}}}
TOOLS: Final[dict[str, Any]] = {
    **dict.fromkeys((*BLOCKS, "test_tool_with_logging", "test_tool_with_progress", "test_error_handling"), NOTHING),
    **dict.fromkeys((*QUESTIONS, "test_sampling"), SAID),
    "json_schema_2020_12_tool": SCHEMA,
}


class Expected:
    """The server, and whom to notify about resources."""

    def __init__(self) -> None:
        self.level = "debug"
        self.watched: set[str] = set()

    async def list_tools(self, _ctx: Context, _params: Any) -> types.ListToolsResult:
        """List the tools."""
        tools = [
            types.Tool(name=name, description=f"The tool {name}.", input_schema=takes) for name, takes in TOOLS.items()
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Call a tool."""
        args = params.arguments or {}
        match params.name:
            case name if name in BLOCKS:
                return types.CallToolResult(content=BLOCKS[name])
            case "test_tool_with_progress":
                for step in (0, 50, 100):
                    await ctx.session.report_progress(step, 100, f"step {step}")
                    await asyncio.sleep(0.05)
                return types.CallToolResult(content=[text("done")])
            case "test_tool_with_logging":
                for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
                    await notify(ctx, "notifications/message", {"level": "info", "data": said}, ctx.request_id)
                    await asyncio.sleep(0.05)
                return types.CallToolResult(content=[text("logged")])
            case "test_error_handling":
                why = "This tool intentionally returns an error for testing"
                return types.CallToolResult(content=[text(why)], is_error=True)
            case "test_sampling":
                return types.CallToolResult(content=[text(await sample(ctx, args.get("prompt", "")))])
            case name if name in QUESTIONS:
                form, required = QUESTIONS[name]
                schema = {"type": "object", "properties": form, "required": required}
                answer = await ctx.session.elicit_form(args.get("message", "Which?"), schema, ctx.request_id)
                said = f"action={answer.action}, content={json.dumps(answer.content)}"
                return types.CallToolResult(content=[text(f"Elicitation completed: {said}")])
            case "json_schema_2020_12_tool":
                return types.CallToolResult(content=[text(json.dumps(args))])
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")

    async def list_resources(self, _ctx: Context, _params: Any) -> types.ListResourcesResult:
        """List the resources."""
        named = {
            "test://static-text": "text/plain",
            "test://static-binary": "image/png",
            "test://watched-resource": None,
        }
        return types.ListResourcesResult(
            resources=[types.Resource(uri=uri, name=uri[7:], mime_type=media) for uri, media in named.items()]
        )

    async def list_templates(self, _ctx: Context, _params: Any) -> types.ListResourceTemplatesResult:
        """List the resource templates."""
        template = types.ResourceTemplate(uri_template="test://template/{id}/data", name="template")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read(self, _ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        """Read a resource."""
        uri = str(params.uri)
        if uri == "test://static-binary":
            return types.ReadResourceResult(
                contents=[types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PIXEL)]
            )
        if uri in ("test://static-text", "test://watched-resource"):
            said, media = "This is the content of the static text resource.", "text/plain"
        elif uri.startswith("test://template/"):
            ident = uri.split("/")[3]
            said = json.dumps({"id": ident, "templateTest": True, "data": f"Data for ID: {ident}"})
            media = "application/json"
        else:
            raise MCPError(types.INVALID_PARAMS, f"Resource not found: {uri}")
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=media, text=said)])

    async def subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Notify the client at once, and never again."""
        self.watched.add(str(params.uri))
        await notify(ctx, "notifications/resources/updated", {"uri": str(params.uri)})
        await notify(ctx, "notifications/prompts/list_changed", None)
        return types.EmptyResult()

    async def unsubscribe(self, _ctx: Context, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        """Forget a subscription."""
        self.watched.discard(str(params.uri))
        return types.EmptyResult()

    async def list_prompts(self, _ctx: Context, _params: Any) -> types.ListPromptsResult:
        """List the prompts."""
        arguments = {
            "test_simple_prompt": (),
            "test_prompt_with_arguments": ("arg1", "arg2"),
            "test_prompt_with_embedded_resource": ("resourceUri",),
            "test_prompt_with_image": (),
        }
        prompts = [
            types.Prompt(
                name=name,
                description=f"The prompt {name}.",
                arguments=[types.PromptArgument(name=each, description=each, required=True) for each in needed],
            )
            for name, needed in arguments.items()
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(self, _ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        """Get a prompt."""
        given = params.arguments or {}
        blocks: dict[str, list[Any]] = {
            "test_simple_prompt": [text("This is a simple prompt for testing.")],
            "test_prompt_with_arguments": [
                text(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")
            ],
            "test_prompt_with_embedded_resource": [
                resource(given.get("resourceUri", "test://none"), "text/plain", "Embedded resource content."),
                text("Please process the embedded resource above."),
            ],
            "test_prompt_with_image": [IMAGE, text("Please analyze the image above.")],
        }
        if params.name not in blocks:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
        messages = [types.PromptMessage(role="user", content=block) for block in blocks[params.name]]
        return types.GetPromptResult(messages=messages)

    async def complete(self, _ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        """Complete an argument."""
        values = [each for each in ("paris", "park", "party") if each.startswith(params.argument.value)]
        return types.CompleteResult(completion=types.Completion(values=values, total=len(values), has_more=False))

    async def set_level(self, _ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        """Keep the level."""
        self.level = params.level
        return types.EmptyResult()


async def notify(ctx: Context, method: str, params: Any, related: Any = None) -> None:
    """Send a notification to the client."""
    form = {
        "notifications/message": types.LoggingMessageNotification,
        "notifications/resources/updated": types.ResourceUpdatedNotification,
        "notifications/prompts/list_changed": types.PromptListChangedNotification,
    }[method]
    notification: Any = form.model_validate({"method": method, "params": params})
    await ctx.session.send_notification(notification, related)


async def sample(ctx: Context, prompt: str) -> str:
    """Return what the client's model answers."""
    message = types.SamplingMessage(role="user", content=text(prompt))
    request = types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=100))
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    answer = await ctx.session.send_request(request, types.CreateMessageResult, metadata=related)
    return f"LLM response: {answer.content}"


class _Server(Server[Any]):
    def create_initialization_options(self, *_args: Any, **_more: Any) -> Any:
        """Declare that the lists may change."""
        changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(changes)


def build() -> Server[Any]:
    """Return the server."""
    it = Expected()
    server = _Server(
        "expected", version="1.0", instructions="Call the tools as the suite does.", on_list_tools=it.list_tools,
        on_call_tool=it.call_tool, on_list_resources=it.list_resources, on_list_resource_templates=it.list_templates,
        on_read_resource=it.read, on_subscribe_resource=it.subscribe, on_unsubscribe_resource=it.unsubscribe,
        on_list_prompts=it.list_prompts, on_get_prompt=it.get_prompt, on_completion=it.complete,
    )  # fmt: skip
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, it.set_level)
    return server


async def serve_pipes() -> None:
    """Serve the client at standard input and output."""
    server = build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> None:
    """Serve at the port of the command line, or at standard input and output."""
    if len(sys.argv) > 1:
        print("listening", file=sys.stderr, flush=True)
        app = build().streamable_http_app()
        uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", timeout_graceful_shutdown=1)
    else:
        anyio.run(serve_pipes)


if __name__ == "__main__":
    main()
