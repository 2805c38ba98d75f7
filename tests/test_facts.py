"""Facts that gates read: counted once, recorded as declared, and true when the intent is written."""

import time
from concurrent.futures import ThreadPoolExecutor

from deedbook import GateSpec, HandlerSpec, allow, deny
from deedbook.format.errors import Ok


class Quota:
    """Denies the fourth call."""

    spec = GateSpec(pure=True, reads=frozenset({"session.calls"}), settings={"type": "object"})

    def __init__(self, settings, host):
        pass

    def __call__(self, call):
        time.sleep(0.002)  # lets another thread come in between the facts and the intent
        used = call.facts["session.calls"].get(call.ability, 0)
        return allow() if used < 3 else deny(f"{used} calls are spent")


class Nothing:
    spec = HandlerSpec(takes={"type": "object"}, gives={"type": "object"}, effects="none")

    def __init__(self, settings, host):
        pass

    def __call__(self, args, ctx):
        return {}


WORKSPACE = """
schema_version: v1
abilities: {nothing: {summary: Nothing., handler: {tool: nothing}}}
policies: {quota: {kind: quota}}
"""


def test_quota_holds_when_many_threads_ask_at_once(lab):
    lab.offer("policy", "quota", Quota)
    lab.offer("tool", "nothing", Nothing)
    lab.write("deedbook.yaml", WORKSPACE)
    with lab.session() as session, ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: session.call("nothing", {}), range(40)))
    assert sum(isinstance(result, Ok) for result in results) == 3
    checks = [event.payload for event in lab.events() if event.type == "policy.check"]
    assert sorted(check["facts"]["session.calls"].get("nothing", 0) for check in checks)[:4] == [0, 1, 2, 3]
