"""Plugins that are wrong, each in a way of its own: every one installs, and breaks its contract somewhere."""

import json
import os
import threading
import time
from contextlib import suppress

import attrs

from deedbook import Call, Failed, GateSpec, HandlerSpec, Skill, allow, ask, deny, hookimpl
from deedbook.contract import PolicyProblem, Subject

ANY = {"type": "object"}
KEY = {"type": "object", "properties": {"key": {}}, "additionalProperties": False}


class Tool:
    spec = HandlerSpec(effects="none", takes=ANY, gives=ANY)

    def __init__(self, settings, host):
        self.settings, self.host = settings, host

    def __call__(self, args, ctx):
        return {"fine": True}


class Writes(Tool):
    def __call__(self, args, ctx):
        self.host.replace("left-behind.txt", b"x", expected="")
        return {}


class Keeps(Tool):
    def __call__(self, args, ctx):
        self.last = args
        return {}


class Changes(Tool):
    def __call__(self, args, ctx):
        args["more"] = 1
        return {}


class Differs(Tool):
    def __call__(self, args, ctx):
        return {"at": time.perf_counter_ns()}


class TakesAnySetting(Tool):
    spec = HandlerSpec(effects="none", takes=ANY, gives=ANY, settings={"type": "object"})


class Tells(Tool):
    spec = HandlerSpec(effects="none", takes=ANY, gives=ANY, settings=KEY)

    def __init__(self, settings, host):
        self.key = host.secret(settings["key"]).reveal()

    def __call__(self, args, ctx):
        return {"fine": True}


class Sleeps(Tool):
    def __call__(self, args, ctx):
        time.sleep(2)
        return {"fine": True}


class Hosted(Tool):
    spec = HandlerSpec(effects="none", takes=ANY, gives=ANY, files="host")

    def __call__(self, args, ctx):
        with suppress(FileNotFoundError), self.host.open("absent"):
            pass
        return {"files": len(self.host.scan(""))}


class Opens(Hosted):
    def __call__(self, args, ctx):
        with open(__file__, "rb"):
            return {}


class Threads(Hosted):
    def __call__(self, args, ctx):
        thread = threading.Thread(target=os.listdir, args=(".",))
        thread.start()
        thread.join()
        return {}


class Provider(Tool):
    def __call__(self, request, ctx):
        usage = {"input_tokens": 1, "output_tokens": 1}
        said = {"text": self.text(request), "tool_calls": self.calls(), "finish_reason": "stop", "usage": usage}
        return {**said, "model": "m", "schema_version": "v2"}

    def text(self, request):
        form = {"intent": "greet", "constraints": [], "schema_version": "v1"}
        return json.dumps(form)

    def calls(self):
        return []


class Prose(Provider):
    def text(self, request):
        return "Certainly! Here is what you asked for."


class Invents(Provider):
    def calls(self):
        return [{"id": "1", "name": "rm", "args": {}}]


class Bare(Provider):
    def __call__(self, request, ctx):
        return {"text": "hello"}


class Flow(Tool):
    spec = HandlerSpec(takes={"type": "object"}, effects="none")

    def __call__(self, args, run):
        run.answer(self.reply())

    def reply(self):
        return "done"


class MovesOn(Flow):
    def reply(self):
        raise Failed("NOT_DONE", "no")


class Random(Flow):
    def reply(self):
        return str(time.perf_counter_ns())


class WritingFlow(Flow):
    def reply(self):
        self.host.replace("left-behind.txt", b"x", expected="")
        return "done"


class Hook:
    spec = GateSpec(pure=True)

    def __init__(self, settings, host):
        self.host, self.asked = host, 0

    @hookimpl
    def pre_tool_use(self, call: Call):
        return self.answer(call)

    def answer(self, call):
        return deny("no") if call.ability == "forbidden" else allow()


class Counts(Hook):
    def answer(self, call):
        self.asked += 1
        return allow() if self.asked % 2 else deny("every other")


class Reads(Hook):
    def answer(self, call):
        with suppress(OSError):
            open("/etc/hostname").close()
        return super().answer(call)


class Lax(Hook):
    def answer(self, call):
        return allow()


class Raises(Hook):
    def answer(self, call):
        raise ValueError("hm")


class Unmarked(Hook):
    def pre_tool_use(self, call):
        return allow()


class Policy(Hook):
    def __call__(self, call):
        return self.answer(call)


class CountingPolicy(Counts, Policy):
    pass


class ReadingPolicy(Reads, Policy):
    pass


class LaxPolicy(Lax, Policy):
    pass


class FragilePolicy(Policy):
    @staticmethod
    def check(body, abilities):
        return [PolicyProblem(message="too many") for limit in [body["answer"] + "!"] if len(limit) > 100]


class PointlessPolicy(Policy):
    @staticmethod
    def lint(body, abilities):
        yield PolicyProblem(pointer="/nowhere", message="is doubtful")


FINDING = {
    "type": "object",
    "required": ["severity"],
    "properties": {"severity": {"enum": ["minor", "major"]}, "line": {"type": "integer"}},
}


class Judging:
    """A kind that judges findings, and no calls."""

    spec = GateSpec(pure=True, calls=False, subjects={"finding": Subject(schema=FINDING)})

    def __init__(self, settings, host):
        pass

    def decide(self, case):
        return allow() if case.value["severity"] == "minor" else deny("major")


class FailingSubject(Judging):
    def decide(self, case):
        return super().decide(case) if case.value.get("line", 1) else deny(f"{1 / case.value['line']}")


class AskingSubject(Judging):
    def decide(self, case):
        return ask("a person") if "line" in case.value else allow()


class UnnamedSubject(Judging):
    spec = attrs.evolve(
        Judging.spec, subjects={**Judging.spec.subjects, "dispatch": Subject(schema={"type": "object"})}
    )


class CountingSubject(Judging):
    asked = 0

    def decide(self, case):
        self.asked += 1
        return allow() if self.asked % 2 else deny("even")


class Loader:
    spec = GateSpec()

    def __init__(self, settings, host):
        self.host = host

    def __call__(self):
        with self.host.open(".system/skills/list.md") as file:
            for line in file.read().decode().splitlines():
                name, _, told = line.partition(":")
                yield from self.one(name, told)

    def one(self, name, told):
        if not told:
            yield Failed("SOURCE_INVALID", f"list.md: {name} has no description")
        else:
            yield Skill(name, told, "body", frozenset({"echo"}), triggers=(name,), source=".system/skills/list.md")


class Skips(Loader):
    def one(self, name, told):
        return super().one(name, told) if told else ()


class Widens(Loader):
    def one(self, name, told):
        for each in super().one(name, told):
            yield (
                each
                if isinstance(each, Failed)
                else Skill(
                    each.name,
                    each.description,
                    each.body,
                    frozenset({"echo", "other"}),
                    each.triggers,
                    source=each.source,
                )
            )


class Varies(Loader):
    def one(self, name, told):
        return super().one(name, f"{told} {time.perf_counter_ns()}" if told else "")
