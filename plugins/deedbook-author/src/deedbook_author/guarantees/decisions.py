"""Attacks on decisions: forbidden calls, paths written in other ways, callers outside their scope, gates that fail."""

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from shutil import rmtree
from typing import Any, Final

import attrs

from deedbook.contract import Failed
from deedbook.contract.pointers import split_pointer
from deedbook.format.terminal import pluralise
from deedbook.policy.bound import BoundAbility, Scope
from deedbook.policy.gates import BoundGate
from deedbook.workspace.site import SETTINGS

from .attacks import ENFORCEMENT, KERNEL, Attack, NotApplicable, PromiseBroken, expect
from .candidates import JudgedCall
from .inert import OWN
from .target import Attempt, InertKernel, Target

_MOST: Final = 24
_NO_POLICY: Final = "no policy is declared; an entry under policies: makes this apply"
_FOLDER: Final = ".system/guarantees"


# --- policies ---------------------------------------------------------------------------------------------------------


def _no_denial(target: Target) -> str:
    if not target.document["policies"]:
        return _NO_POLICY
    return (
        ""
        if target.denied_calls or target.asked_calls
        else "no policy denies a call that could be built, or asks a person"
    )


def _distinct(calls: Sequence[JudgedCall]) -> list[JudgedCall]:
    """Return one call of each ability that each rule decides about, at most a bounded number."""
    first: dict[tuple[str, str], JudgedCall] = {}
    for call in calls:
        first.setdefault((call.by, call.ability), call)
    return list(first.values())[:_MOST]


def _deny_forbidden(target: Target) -> str:
    calls = _distinct([*target.denied_calls, *target.asked_calls])
    for call in calls:
        tried = target.base.attempt(call.ability, call.args, call.principal)
        change = KERNEL if target.document["enforcement"] == "enforce" else ENFORCEMENT
        said = "denied by" if call.outcome == "deny" else "left to a person by"
        expect(tried.is_refused, f"{call} is {said} {call.by}, and was not refused: {tried}", change)
    rules = ", ".join(sorted({call.by for call in calls}))
    return f"{pluralise(len(calls), 'call')} refused that the policies deny or leave to a person: {rules}"


def _no_denied_path(target: Target) -> str:
    return _no_denial(target) or target.why_not(lambda: _denied_paths(target))


def _denied_paths(target: Target) -> list[tuple[JudgedCall, str]]:
    """Return calls that are denied, each with the name of an argument that is a path."""
    found = []
    for call in _distinct(target.denied_calls):
        names = [split_pointer(pointer)[0] for pointer in call.paths if len(split_pointer(pointer)) == 1]
        found += [(call, name) for name in names if isinstance(call.args.get(name), str) and call.args[name]]
    if not found:
        raise NotApplicable("no call that a policy denies has a path among its arguments")
    refused = [
        pair for pair in found if target.base.attempt(pair[0].ability, pair[0].args, pair[0].principal).is_refused
    ]
    if not refused:
        raise NotApplicable("the paths that a policy denies are not refused even as they are: see denied-call")
    return refused


def _spell(path: str) -> Iterator[str]:
    """Yield other spellings of a relative path."""
    yield f"./{path}"
    yield f"guarantees/../{path}"
    yield path.replace("/", "//")
    folder, name = posixpath.split(path)
    yield posixpath.join(folder, "x", "..", name)
    yield posixpath.join(folder, ".", name)


def _spell_paths(target: Target) -> str:
    tried = 0
    for call, name in _denied_paths(target):
        for path in _spell(call.args[name]):
            made = target.base.attempt(call.ability, {**call.args, name: path}, call.principal)
            tried += 1
            expect(
                made.is_refused,
                f"{call} is denied by {call.by}; with the path {path!r} it was performed",
                f"{call.by}: write the condition with paths: or under:, which read paths normalised",
            )
    return f"{tried} other spellings of forbidden paths were refused"


# --- gates that fail --------------------------------------------------------------------------------------------------


def _crash(*_subject: Any) -> Any:
    raise RuntimeError("the gate crashed")


def _answer_nonsense(*_subject: Any) -> Any:
    return "yes"


def _replace(gates: tuple[BoundGate, ...], ask: Callable[..., Any]) -> tuple[BoundGate, ...]:
    return tuple(attrs.evolve(gate, ask=ask) for gate in gates)


def _find_asked(target: Target, event: str) -> JudgedCall:
    """Return a call that is not denied and for which *event* is recorded; raises `NotApplicable`."""
    for call in [target.call, *target.calls]:
        tried = target.base.attempt(call.ability, call.args, call.principal)
        if (tried.begun or tried.code == "NEEDS_HUMAN") and any(each.type == event for each in tried.events):
            return call
    raise NotApplicable(f"no call that could be built asks a {'hook' if event == 'hook.fired' else 'policy'}")


def _no_hook(target: Target) -> str:
    if not any(hook["event"] == "PreToolUse" for hook in target.document["hooks"].values()):
        return "no hook is asked before calls; declare one under hooks: with event: PreToolUse"
    return no_call(target) or target.why_not(lambda: _find_asked(target, "hook.fired"))


def _no_binding_policy(target: Target) -> str:
    if target.document["enforcement"] != "enforce":
        return "policies are only observed: see denied-call"
    if not target.document["policies"]:
        return _NO_POLICY
    return no_call(target) or target.why_not(lambda: _find_asked(target, "policy.check"))


def _break_hooks(ask: Callable[..., Any]) -> Callable[[Target], str]:
    def run(target: Target) -> str:
        def change(bound: BoundAbility) -> BoundAbility:
            return attrs.evolve(bound, rewriters=_replace(bound.rewriters, ask), guards=_replace(bound.guards, ask))

        return _break(target, "hook.fired", change)

    return run


def _break_policies(target: Target) -> str:
    return _break(target, "policy.check", lambda bound: attrs.evolve(bound, policies=_replace(bound.policies, _crash)))


def _break(target: Target, event: str, change: Callable[[BoundAbility], BoundAbility]) -> str:
    call = _find_asked(target, event)
    weak = target.reopen(target.base.kernel, change)
    tried = weak.attempt(call.ability, call.args, call.principal)
    expect(tried.is_refused and tried.code == "GATE_DENIED", f"{call} was not refused: {tried}")
    return f"{call}: {tried}"


# --- hooks in processes of their own ----------------------------------------------------------------------------------

_PROGRAMS: Final[Mapping[str, str]] = {
    "crash": "exit 3\n",
    "hang": "sleep 60\n",
    "nonsense": "echo allow\n",
    "twice": """echo '{"decision": "allow"}'; echo '{"decision": "allow"}'\n""",
}


def _copy_with_hooks(target: Target) -> InertKernel:
    """Return a copy with hooks that fail, each for a principal of its own."""
    copy = target.variant()
    for name, text in _PROGRAMS.items():
        copy.write(f"{_FOLDER}/{name}.sh", text)

    def add(settings: dict[str, Any]) -> None:
        hooks = settings.setdefault("hooks", {})
        for name in _PROGRAMS:
            hooks[f"{OWN}{name}"] = {
                "event_type": "PreToolUse",
                "handler": {"script": ["sh", f"{_FOLDER}/{name}.sh"]},
                "match": {"kind": ["tool", "memory"], "principals": [f"{OWN}{name}"]},
                "priority": 1_000_000,
                "timeout_ms": 300 if name == "hang" else 10_000,
            }

    copy.edit(add)
    return target.open(copy)


def _fail_program(name: str) -> Callable[[Target], str]:
    def run(target: Target) -> str:
        opened = target.open_once("hooks", _copy_with_hooks)
        call, hook = target.call, f"{OWN}{name}"
        tried: Attempt = opened.attempt(call.ability, call.args, hook)
        by = tried.place
        expect(tried.is_refused and hook in by, f"{call.ability} was not refused by the hook: {tried} ({by})")
        return str(tried)

    return run


def no_call(target: Target) -> str:
    """Return why no call can be made that this workspace does not deny; empty if one can."""
    return target.why_not(lambda: target.call)


def no_allowed(target: Target) -> str:
    """Return why no call can be made that this workspace allows; empty if one can."""
    return target.why_not(lambda: target.allowed_call)


# --- scope ------------------------------------------------------------------------------------------------------------


def _outside_scope(target: Target) -> str:
    """Call an ability as a caller that may use all others, and as each client what it is not shown."""
    call = target.call
    names = frozenset(target.document["abilities"]) - {call.ability}
    with target.base.session(call.principal) as session:
        session.caller = attrs.evolve(session.caller, scope=Scope("the scope of the attack", names, names))
        tried = target.base.attempt_in(session, call.ability, call.args)
    expect(tried.is_refused and tried.code == "TOOL_NOT_ALLOWED", f"{call.ability} was not refused: {tried}")
    return str(tried)


def _no_narrow_client(target: Target) -> str:
    if not target.document["clients"]:
        return "no client is declared; an entry under agents: with expose: makes this apply"
    return "" if list(_hidden_abilities(target)) else "every client may use every ability; name fewer under its expose:"


def _hidden_abilities(target: Target) -> Iterator[tuple[str, JudgedCall]]:
    """Yield each client with a call of an ability that it is not shown. Its own model needs no `expose`."""
    for name in target.document["clients"]:
        scope = target.base.kernel.client(name, via="python").scope
        shown = (scope.names or frozenset()) | (scope.models or frozenset())
        call = next((call for call in target.calls if call.ability not in shown), None)
        if call is not None and scope.names is not None:
            yield name, call


def _outside_client(target: Target) -> str:
    found = []
    for name, call in _hidden_abilities(target):
        tried = target.base.attempt(call.ability, call.args, f"agent:{name}")
        expect(
            tried.is_refused and tried.code == "TOOL_NOT_ALLOWED",
            f"the client {name} is not shown {call.ability}, and was not refused: {tried}",
            f"{SETTINGS}: agents: {name}: expose",
        )
        found.append(f"{name} may not use {call.ability}")
    return "; ".join(found)


def _unknown(target: Target) -> str:
    tried = target.base.attempt("guarantees/unknown", {"text": "x"})
    expect(tried.is_refused and tried.code == "TOOL_NOT_FOUND", f"an unknown ability was not refused: {tried}")
    expect(any(each.type == "tool.denied" for each in tried.events), "the refusal is not in the ledger")
    return str(tried)


# --- files ------------------------------------------------------------------------------------------------------------


def _reaches_no_files(target: Target) -> str:
    through = [name for name, each in target.document["abilities"].items() if each.get("files") == "host"]
    if not through:
        return "no ability declares that it reaches files through the host alone"
    return "" if target.document["file_roots"] else "files: {roots: []} lets tools reach no file"


def _follow_links(target: Target) -> str:
    """Reach a file outside through links and ``..``, as a tool would."""
    top = str(target.document["file_roots"][0])
    outside = target.scratch.root.with_name("outside")
    outside.mkdir(exist_ok=True)
    (outside / "secret.txt").write_text("secret", encoding="utf-8")
    folder = target.scratch.root / top / "guarantees-links"
    folder.mkdir(parents=True, exist_ok=True)
    for name, goal in {"file": outside / "secret.txt", "folder": outside, "up": folder.parent}.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(goal)
    here = posixpath.normpath(posixpath.join(top, "guarantees-links"))
    paths = [f"{here}/file", f"{here}/folder/secret.txt", f"{here}/up/guarantees-links/file", "../outside/secret.txt"]
    paths += [f"{here}/../../../outside/secret.txt", str(outside / "secret.txt"), f"{target.workspace.state.name}/x"]
    try:
        for path in paths:
            _expect_no_file(target, path)
    finally:
        rmtree(folder)
    return f"{len(paths)} paths through links, `..` and from the root of the disk were refused"


def _expect_no_file(target: Target, path: str) -> None:
    try:
        with target.base.kernel.host.open(path) as file:
            file.read()
    except (Failed, OSError):
        return
    raise PromiseBroken(f"a tool can read {path!r} through the host")


ATTACKS: Final = (
    Attack(
        id="denied-call", promise="A call that a policy denies, or leaves to a person, does not happen by itself.",
        applies=_no_denial, run=_deny_forbidden,
    ),
    Attack(
        id="denied-path-spelling", promise="A path that a policy denies stays denied if it is written in another way.",
        applies=_no_denied_path, run=_spell_paths,
    ),
    Attack(
        id="path-through-link", promise="A tool that reaches files through the host leaves neither root nor workspace.",
        applies=_reaches_no_files, run=_follow_links,
    ),
    Attack(
        id="own-hook-crashes", promise="If a hook of this workspace crashes, the call does not happen.",
        applies=_no_hook, run=_break_hooks(_crash),
    ),
    Attack(
        id="own-hook-nonsense", promise="If a hook of this workspace answers nonsense, the call does not happen.",
        applies=_no_hook, run=_break_hooks(_answer_nonsense),
    ),
    Attack(
        id="own-policy-crashes", promise="If a policy of this workspace crashes, the call does not happen.",
        applies=_no_binding_policy, run=_break_policies,
    ),
    Attack(
        id="hook-program-crashes", promise="If the program of a hook ends with an error, the call does not happen.",
        applies=no_call, run=_fail_program("crash"),
    ),
    Attack(
        id="hook-program-hangs", promise="If the program of a hook does not answer in time, the call does not happen.",
        applies=no_call, run=_fail_program("hang"),
    ),
    Attack(
        id="hook-program-nonsense", promise="If the program of a hook answers nonsense, the call does not happen.",
        applies=no_call, run=_fail_program("nonsense"),
    ),
    Attack(
        id="hook-program-twice", promise="If the program of a hook gives two answers, the call does not happen.",
        applies=no_call, run=_fail_program("twice"),
    ),
    Attack(
        id="outside-scope", promise="A caller cannot use an ability outside its scope.", applies=no_call,
        run=_outside_scope,
    ),
    Attack(
        id="outside-client", promise="A client cannot use an ability that it is not shown.", applies=_no_narrow_client,
        run=_outside_client,
    ),
    Attack(
        id="unknown-ability", promise="A call of an unknown ability does not happen, and is recorded.", run=_unknown
    ),
)  # fmt: skip
