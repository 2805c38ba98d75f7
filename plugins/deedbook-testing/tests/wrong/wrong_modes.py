"""Flows in two modes: one pair is right, each other flow breaks one rule."""

from deedbook import HandlerSpec

TAKES = {"type": "object"}
GIVES = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}


class Runtime:
    spec = HandlerSpec(takes=TAKES, effects="none")

    def __init__(self, settings, host):
        self.seen = []

    def __call__(self, args, run):
        self.work(run, run.call("echo", {"text": "hi"})["text"])

    def work(self, run, text):
        run.answer(text)


class Standalone:
    spec = HandlerSpec(takes=TAKES, gives=GIVES, effects="none")

    def __init__(self, settings, host):
        pass

    def __call__(self, args, run):
        return {"text": run.call("echo", {"text": "hi"})["text"]}


class ReturnsToo(Runtime):
    def __call__(self, args, run):
        super().__call__(args, run)
        return {"text": "hi"}


class KeepsState(Runtime):
    def work(self, run, text):
        self.seen.append(text)
        run.answer(text)


class StopsHalfWay(Runtime):
    def work(self, run, text):
        run.context.clarify({"text": text})


class OtherCalls(Standalone):
    def __call__(self, args, run):
        return {"text": "hi"}


class CallsAContext(Standalone):
    def __call__(self, args, run):
        run.context.clarify({})
        return {"text": "hi"}


class OtherArguments(Standalone):
    spec = HandlerSpec(takes={"type": "object", "properties": {}}, gives=GIVES, effects="none")
