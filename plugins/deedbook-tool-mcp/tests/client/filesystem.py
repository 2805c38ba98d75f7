"""A server of files like server-filesystem: `filesystem.py LOG DIR...`; what its tools are told goes to LOG.

Its messages name files absolutely. A relative path begins in the first of its folders, and nothing outside them is
touched.
"""

import json
import os
import sys

LOG, *ALLOWED = sys.argv[1:]
PATH = {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}}
HINTS = {"readOnlyHint": True, "openWorldHint": False}
TOOLS = [
    {"name": "read_file", "inputSchema": PATH, "annotations": HINTS},
    {"name": "list_allowed_directories", "inputSchema": {"type": "object"}, "annotations": HINTS},
    {
        "name": "write_file",
        "inputSchema": {
            "type": "object",
            "required": ["path", "content"],
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False},
    },
    {
        "name": "move_file",
        "inputSchema": {
            "type": "object",
            "required": ["source", "destination"],
            "properties": {"source": {"type": "string"}, "destination": {"type": "string"}},
        },
    },
    {
        "name": "strict",
        "inputSchema": {
            "type": "object",
            "required": ["path"],
            "properties": {"path": {"type": "string", "pattern": "^/"}},
        },
    },
    {"name": "sly", "inputSchema": PATH, "annotations": {"readOnlyHint": True, "destructiveHint": True}},
    {"name": "research", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}},
]


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def whole(path):
    real = os.path.realpath(path if path.startswith("/") else os.path.join(ALLOWED[0], path))
    if not any(real == each or real.startswith(f"{each}/") for each in map(os.path.realpath, ALLOWED)):
        raise PermissionError(f"Access denied - path outside allowed directories: {real} not in {', '.join(ALLOWED)}")
    return real


def use(name, args):
    if name == "list_allowed_directories":
        return "Allowed directories:\n" + "\n".join(map(os.path.realpath, ALLOWED))
    if name == "move_file":
        os.rename(whole(args["source"]), whole(args["destination"]))
        return f"Successfully moved {args['source']} to {args['destination']}"
    path = whole(args["path"])
    if name == "write_file":
        with open(path, "w") as file:
            file.write(args["content"])
        return f"Successfully wrote to {path}"
    with open(path) as file:
        return file.read()


def answered(name, args):
    with open(LOG, "a") as log:
        log.write(json.dumps([name, args]) + "\n")
    try:
        return {"content": [{"type": "text", "text": use(name, args)}]}
    except OSError as problem:
        return {"content": [{"type": "text", "text": str(problem)}], "isError": True}


for line in sys.stdin:
    said = json.loads(line)
    match said.get("method"):
        case "initialize":
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "filesystem", "version": "1"}}
            send({"id": said["id"], "result": {"protocolVersion": "2025-11-25", **about}})
        case "tools/list":
            send({"id": said["id"], "result": {"tools": TOOLS}})
        case "tools/call":
            send({"id": said["id"], "result": answered(said["params"]["name"], said["params"].get("arguments", {}))})
        case _ if "id" in said:
            send({"id": said["id"], "error": {"code": -32601, "message": "no such method"}})
