"""An MCP server that does what a file says, byte by byte: `rogue.py PLAN`; what it hears goes to PLAN.log.

The plan is read again for each message: ``tools`` is what it lists, ``do`` says for a tool, or for another request, how
it behaves, ``can`` are more capabilities.
"""

import itertools
import json
import os
import sys
import threading
import time

PLAN = sys.argv[1]
ASKED = {
    "sampling": ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
    "roots": ("roots/list", {}),
    "elicitation": ("elicitation/create", {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}),
}


def plan():
    with open(PLAN) as file:
        return json.load(file)


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(said):
    return {"content": [{"type": "text", "text": said}]}


def later(ident, seconds):
    time.sleep(seconds)
    send({"id": ident, "result": text(str(os.getpid()))})


def call(ident, name, args):
    how = plan().get("do", {}).get(name, "echo")
    match how:
        case "echo":
            send({"id": ident, "result": text(json.dumps(args))})
        case "env":
            send({"id": ident, "result": text(json.dumps({**os.environ, "cwd": os.getcwd()}))})
        case "pid":
            send({"id": ident, "result": text(str(os.getpid()))})
        case "slow":
            threading.Thread(target=later, args=(ident, 0.3)).start()
        case "die":
            sys.stderr.write("I am done for, says hunter2\n")
            sys.stderr.flush()
            os._exit(3)
        case "half":
            sys.stdout.write('{"jsonrpc": "2.0", "id": 1, "res')
            sys.stdout.flush()
            os._exit(0)
        case "hang":
            pass
        case "deaf":
            time.sleep(1000)
        case "banner":
            sys.stdout.write("Welcome!\n\n{}\n[1, 2]\n\xff\n")
            send({"id": ident, "result": text("after all")})
        case "garbage":
            while True:
                sys.stdout.write("no message at all\n" * 1000)
        case "huge":
            sys.stdout.write("x" * (17 * 1024 * 1024) + "\n")
            sys.stdout.flush()
        case "asks-all":
            for number in itertools.count():
                send({"id": f"q{number}", "method": "ping"})
        case "error":
            send({"id": ident, "error": {"code": -32602, "message": "no such thing as hunter2"}})
        case "list-changed":
            send({"method": "notifications/tools/list_changed"})
            send({"id": ident, "result": text("changed")})
        case {"raw": raw}:
            sys.stdout.write(raw.replace("ID", str(ident)) + "\n")
            sys.stdout.flush()
        case str() if how in ASKED:
            method, params = ASKED[how]
            send({"id": "mine", "method": method, "params": params})
            answer = json.loads(sys.stdin.readline())
            send({"id": ident, "result": text(json.dumps(answer.get("error") or answer["result"]))})
        case {"notify": method, **rest}:
            send({"method": method, "params": rest.get("params", {})})
            send({"id": ident, "result": text("notified")})
        case _:
            send({"id": ident, "result": how})


def main():
    with open(f"{PLAN}.log", "a", buffering=1) as log:
        log.write(json.dumps({"started": os.getpid()}) + "\n")
        for line in sys.stdin:
            log.write(line)
            message = json.loads(line)
            ident, method = message.get("id"), message.get("method")
            if method == "initialize":
                about = {"name": "rogue", "version": plan().get("version", "1")}
                can = {"tools": {"listChanged": True}, **plan().get("can", {})}
                result = {"protocolVersion": "2025-11-25", "capabilities": can, "serverInfo": about}
                send({"id": ident, "result": result})
            elif method == "tools/list":
                send({"id": ident, "result": {"tools": plan()["tools"]}})
            elif method == "tools/call":
                call(ident, message["params"]["name"], message["params"].get("arguments"))
            elif method in plan().get("do", {}):
                call(ident, method, message.get("params"))
            elif method and ident is not None:
                send({"id": ident, "error": {"code": -32601, "message": f"{method} is unknown"}})


main()
