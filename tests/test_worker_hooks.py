"""Plugins' hooks in processes of their own: what they may do there, and what becomes of those that misbehave."""

import pytest

PLUGIN = """
    import os, sys, time
    from deedbook import Decision, GateSpec, allow, deny, hookimpl, transform


    class Plugin:
        spec = GateSpec(pure=True, rewrites={rewrites}, reads=frozenset({{"session.calls"}}))

        def __init__(self, settings, host):
            self.settings, self.host = settings, host
            {construct}

        @hookimpl
        def pre_tool_use(self, call):
            {body}
"""
HOOK = """
    schema_version: v1
    id: guard
    event_type: PreToolUse
    handler: {hook: guard}
    match: {abilities: echo}
    isolation: worker
    timeout_ms: 20000
"""


@pytest.fixture
def guarded(place):
    """Return a function that calls echo behind a hook with that body; it returns the answer and the hook's own."""

    def call(body, *more, construct="pass", rewrites=False, timeout=20_000, **env):
        place.offer("hooks", "guard", PLUGIN.format(body=body, construct=construct, rewrites=rewrites))
        place.system(
            "hooks/guard.yaml", HOOK.replace("20000", str(timeout)) + "".join(f"    {line}\n" for line in more)
        )
        ran = place.run("call", "echo", "--args", '{"text": "hi"}', "--json", **env)
        said = ran.json
        (fired,) = (each for each in place.payloads("hook.fired", said["session"]) if each["event"] == "PreToolUse")
        return said, next(each for each in fired["asked"] if each["hook"] == "guard")

    return call


def test_hook_in_a_worker_decides_in_another_process_about_the_same_call(guarded):
    said, asked = guarded(
        "return deny(f'{call.args} {call.facts} {call.digest} {os.getppid()} ' + type(call).__name__)"
    )
    assert said["state"] == "GATE_DENIED"
    assert asked["reason"].startswith("{'text': 'hi'} {'session.calls': {}} ")
    assert asked["reason"].endswith(" Call")


def test_hook_in_a_worker_allows_signals_and_rewrites(guarded):
    body = "return Decision('transform', 'louder', {'text': call.args['text'].upper()}, {'ability_guard': 1})"
    said, _ = guarded(body, rewrites=True)
    assert said["result"] == {"text": "HI"}
    assert said["signals"] == {"ability_guard": [{"hook": "guard", "value": 1}]}


def test_hook_in_a_worker_has_its_settings_and_only_the_secrets_that_they_name(guarded, place):
    place.configure("schema_version: v1", "schema_version: v1\nsecrets: {gh: {env: GH}, other: {env: OTHER}}")
    body = "return deny(repr([len(self.host.secret(self.settings['key']).reveal()), self.other, sorted(os.environ)]))"
    construct = (
        "self.other = ''\n            try: host.secret('other')\n"
        "            except Exception as problem: self.other = str(problem)"
    )
    _, asked = guarded(body, "with: {key: gh}", construct=construct, GH="0123456789abcdef", OTHER="fedcba9876543210")
    assert asked["reason"].startswith("[16, \"secret 'other' is not declared")
    assert "GH" not in asked["reason"].partition("declared: gh")[2]


MISBEHAVING = {
    "raises": ("1 / 0", "ZeroDivisionError: division by zero"),
    "says exit": ("sys.exit(0)", "SystemExit: 0"),
    "dies": ("os._exit(0)", "WORKER_BROKEN"),
    "is killed": ("os.kill(os.getpid(), 9)", "WORKER_BROKEN"),
    "answers nothing": ("pass", "answered NoneType, not a Decision"),
    "answers a word": ("return 'allow'", "answered str, not a Decision"),
    "rewrites without saying so": ("return transform({})", "answered transform; it may answer"),
    "signals what is not its own": ("return Decision('allow', signals={'routing_hint': 1})", "may carry ability_guard"),
    "cannot be recorded": ("return Decision('allow', signals={'ability_guard': {1}})", "set is not a JSON type"),
    "floods": ("return deny('x' * 40_000_000)", "OUTPUT_TOO_LARGE"),
    "prints": ("print('allow', flush=True); return deny('printed')", "printed"),
}


@pytest.mark.campaign(keep=6)
@pytest.mark.parametrize("what", MISBEHAVING)
def test_hook_that_misbehaves_in_its_worker_denies(guarded, what):
    body, why = MISBEHAVING[what]
    said, asked = guarded(body)
    assert said["state"] == "GATE_DENIED"
    assert why in asked["reason"]


def test_hook_that_hangs_in_its_worker_denies_on_time(guarded):
    said, asked = guarded("time.sleep(3600)", timeout=700)
    assert (said["state"], asked["reason"][:12]) == ("GATE_DENIED", "TOOL_TIMEOUT")


@pytest.mark.parametrize("construct", ["raise ValueError('no')", "sys.exit(1)", "os._exit(1)"])
def test_hook_that_cannot_be_constructed_in_its_worker_denies(guarded, construct):
    said, _ = guarded("return allow()", construct=construct)
    assert said["state"] == "GATE_DENIED"


def test_first_party_hook_works_in_a_worker(place):
    place.system(
        "hooks/deny.yaml",
        "schema_version: v1\nid: deny\nevent_type: PreToolUse\nhandler: {hook: deny-tools}\n"
        "with: {names: [echo]}\nmatch: {abilities: echo}\nisolation: worker\ntimeout_ms: 20000\n",
    )
    place.run("call", "echo", "--args", '{"text": "hi"}', status=3)
