"""The abilities that the official conformance suite calls, served over HTTP, as far as abilities can be that.

Run ``python workshop.py PORT``; `server.sh` does, and runs the suite against it. The suite names the tools and says
what they answer; everything else is what `deedbook mcp serve` does with any workspace.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from deedbook import Ctx, Failed, Json
from deedbook_testing import Lab
from deedbook_tool_mcp.serving.http import HttpAddress, serve_http
from deedbook_tool_mcp.serving.sessions import ConnectionSessions

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
CONTENT = {
    "type": "object",
    "required": ["content"],
    "properties": {"content": {"type": "array", "items": {"type": "object", "required": ["type"]}}},
}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


def text(said: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": said}


def resource(name: str, media: str, said: str) -> dict[str, Any]:
    """Return a block that embeds a resource."""
    return {"type": "resource", "resource": {"uri": f"test://{name}", "mimeType": media, "text": said}}


BLOCKS = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [{"type": "image", "data": PIXEL, "mimeType": "image/png"}],
    "test_audio_content": [{"type": "audio", "data": SOUND, "mimeType": "audio/wav"}],
    "test_embedded_resource": [
        resource("embedded-resource", "text/plain", "This is an embedded resource content."),
    ],
    "test_multiple_content_types": [
        text("Multiple content types test:"),
        {"type": "image", "data": PIXEL, "mimeType": "image/png"},
        resource("mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
}


def progress(_args: Any, ctx: Ctx) -> Json:
    """Show three steps."""
    for step in (0, 50, 100):
        ctx.progress({"progress": step, "total": 100})
        time.sleep(0.05)
    return {"content": [text("done")]}


def fail(_args: Any, _ctx: Ctx) -> Json:
    """Fail."""
    raise Failed("TEST_ERROR", "This tool intentionally returns an error for testing")


def main() -> None:
    """Serve the workshop at the port that the command line names, until a signal comes."""
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder))
        for name, blocks in BLOCKS.items():
            lab.tool(name, lambda _args, _ctx, blocks=blocks: {"content": blocks}, takes=NOTHING, gives=CONTENT)
        lab.tool("test_tool_with_progress", progress, takes=NOTHING, gives=CONTENT)
        lab.tool("test_error_handling", fail, takes=NOTHING, gives=CONTENT)
        lab.tool("json_schema_2020_12_tool", lambda args, _ctx: args, takes=SCHEMA)
        with lab.kernel() as kernel:
            serve_http(ConnectionSessions(kernel, "mcp"), 0.0, HttpAddress("127.0.0.1", int(sys.argv[1])))


if __name__ == "__main__":
    main()
