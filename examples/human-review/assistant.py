"""An assistant, as an AI would act: it asks the runtime, and does what it is told may be done.

python assistant.py ask PROMPT          hand in a prompt and see what the workspace says to it
python assistant.py create PATH TEXT    make a task that writes a page
python assistant.py run TASK            run it
"""

import sys
from typing import Any

from deedbook_serve.client import Runtime


def ask(runtime: Runtime, session: str, prompt: str) -> None:
    """Hand in what a person wants; the hints say which ability is for that."""
    signals = runtime.submit(session, prompt)["signals"]
    print("intent: ", signals.get("normalized_intent", [{}])[0].get("value", "none"))
    for hint in signals["routing_hint"][0]["value"]["abilities"]:
        print("ability:", hint["id"], "because", hint["reason"])


def create(runtime: Runtime, session: str, path: str, text: str) -> None:
    """Make a task; whether there may be one is said by the workspace's hooks, before anything is there."""
    known = runtime.call(session, "page-hash", {"path": path})["hash"]
    args = {"path": path, "text": text + "\n", "expected_hash": known, "who": "writer", "why": "asked for"}
    show(runtime.actions(session, [{"id": "make", "action": "CREATE_TASK", "ability": "page", "args": args}]))


def run(runtime: Runtime, session: str, task: str) -> None:
    """Run a task; the guard may deny it, or have a person asked."""
    show(runtime.actions(session, [{"id": "run", "action": "RUN_TASK", "task": task}]))


def show(results: list[dict[str, Any]]) -> None:
    """Print the task alone on standard output, and all that was said about it on standard error."""
    for each in results:
        print(f"{each['action']}: {each['status']}", file=sys.stderr)
        for name in ("preflight", "guard"):
            for said in each.get(name, ()):
                print(f"{name} {said['hook']}: {said['value']}", file=sys.stderr)
        if "error" in each:
            print(each["error"]["message"], file=sys.stderr)
        if each["action"] == "CREATE_TASK" and "task" in each:
            print(each["task"])


with Runtime() as runtime:
    session = runtime.open(client="writer")
    {"ask": ask, "create": create, "run": run}[sys.argv[1]](runtime, session, *sys.argv[2:])
    runtime.end(session)
