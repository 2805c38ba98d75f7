"""The contracts of what decides: hooks, at any event of the life cycle, and policy kinds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import pytest

from deedbook.charter.instances import instances, unfold
from deedbook.contract import PATHS, Decision, Event, PolicyTarget, Principal, SubjectCase
from deedbook.contract.facts import FACTS
from deedbook.contract.lifecycle import EVENTS
from deedbook.contract.pointers import InvalidPointerError, find_value
from deedbook.format.canonical import encode
from deedbook.format.errors import Err, Ok, Result, SessionRefused, fault
from deedbook.format.schema import foreign
from deedbook.plugins.groups import FEATURE
from deedbook.plugins.plugins import discover, load
from deedbook.plugins.policy_kinds import Kind
from deedbook.sessions.session import Session

from .contract import SUBJECT, PluginContract, tree
from .examples import ANYTHING, GateCase
from .lab import Lab
from .watching import Audit, Watch

_FLOW = "flow-of-the-contract"


class _GateContract(PluginContract):
    """What hooks and policies have in common: *cases*, at least one, are asked in their order in one session."""

    cases: Sequence[GateCase] = ()

    @pytest.fixture
    def subject(self, plugin: type[Any], watch: Watch, deedbook_audit: Audit) -> type[Any]:
        """Return the class, watched; a pure one is asked again with files, sockets and processes forbidden."""
        return watch.gate(plugin, deedbook_audit)

    def answers(self, lab: Lab) -> Iterator[tuple[GateCase, Mapping[str, Any], Result[Any]]]:
        """Ask every case, and yield it with the recorded answer and with what came of it."""
        raise NotImplementedError

    def test_answers_as_its_cases_say_and_is_recorded(self, workshop: Callable[..., Lab]) -> None:
        """Each case is decided as it says, for its reason; the decision is in the ledger (which is verified)."""
        assert self.cases, "give at least one GateCase"
        lab = workshop()
        faults = [fault for case, answer, _ in self.answers(lab) if (fault := case.fault(answer))]
        assert not faults, "\n".join(faults)

    def test_is_pure_if_it_says_so(self, workshop: Callable[..., Lab], watch: Watch) -> None:
        """The same question has the same answer, and asking opens no file, no socket and no process."""
        assert list(self.answers(workshop())), "give at least one GateCase"
        assert not watch.faults, f"{self.name} {watch.faults}"

    def test_equal_settings_give_equal_answers(self, workshop: Callable[..., Lab]) -> None:
        """Constructed twice, it decides the same in two fresh workspaces."""
        one, other = ([dict(answer) for _, answer, _ in self.answers(workshop())] for _ in range(2))
        assert one == other

    def test_writes_nothing(self, workshop: Callable[..., Lab]) -> None:
        """What only decides leaves the workspace as it was."""
        lab = workshop()
        before = tree(lab.path)
        assert list(self.answers(lab)), "give at least one GateCase"
        assert tree(lab.path) == before, f"{self.name} wrote into the workspace"

    def test_keeps_its_secrets(self, workshop: Callable[..., Lab], watch: Watch) -> None:
        """The values are in no file of the workspace and its records, in no answer, and do not print."""
        if not self.secrets:
            pytest.skip("it uses no secrets")
        lab = workshop()
        said = [(answer, result) for _, answer, result in self.answers(lab)]
        assert not self.leaks(lab, watch.made, said)

    # --- asking -------------------------------------------------------------------------------------------------------

    def _abilities(self, lab: Lab) -> None:
        for case in self.cases:
            lab.tool(case.ability, partial(_pass_through, case.result), effects=case.effects, tags=list(case.tags))

    def _sessions(self, lab: Lab) -> Iterator[tuple[GateCase, Session]]:
        session: Session | None = None
        for case in self.cases:
            who = Principal("somebody", "contract", frozenset(case.roles))
            if session is None or session.principal != who:
                session = lab.session(principal=who)
            yield case, session


class PolicyContract(_GateContract):
    """The contract of a policy kind; `settings` is the body of a policy in YAML.

    Each case is a call, or, with ``about``, a subject of the kind.
    """

    kind: ClassVar[str] = "policy"

    def test_says_of_a_policy_only_what_the_kernel_can_show(self, plugin: type[Any]) -> None:
        """What it says of a policy before any call is of the types that the contract names, with pointers that lead."""
        kind, body = Kind(self.name, plugin), dict(self.settings)
        targets = [_target(case) for case in self.cases]
        wrong = kind.check(body, targets)
        assert not wrong, f"{self.name}: `check` refuses its own settings: {wrong[0].message}"
        unknown = sorted(name for name in kind.reads(body) - FACTS.keys() if not _is_offered_fact(name))
        assert not unknown, f"{self.name} reads {unknown[0]!r}, which is no fact; facts: {', '.join(sorted(FACTS))}"
        kind.reachable(body, targets)
        for each in kind.lint(body, targets):
            assert _leads(each.pointer, body), f"{self.name}: `lint` points to {each.pointer}, which is not there"

    def test_never_fails_at_a_body_that_is_malformed(self, plugin: type[Any]) -> None:
        """GateCase about a body that its schema refuses, `check` and `reads` answer, and raise nothing."""
        kind = Kind(self.name, plugin)
        values: list[Any] = [None, 1, "x", [1], {}]
        bodies = [{name: value} for name in self.settings for value in values]
        for bad in (*self.bad_settings, *bodies):
            kind.check(bad, [])
            kind.reads(bad)

    def test_has_a_case_for_every_subject(self, plugin: type[Any]) -> None:
        """Each subject that the kind declares has a schema that the kernel accepts, and a case."""
        if not plugin.spec.subjects:
            pytest.skip("it judges only calls")
        for name, declared in plugin.spec.subjects.items():
            foreign(dict(declared.schema), place=f"subject {name} of {self.name}")
        missing = sorted(plugin.spec.subjects.keys() - {case.about for case in self.cases})
        assert not missing, f"no case is about {', '.join(missing)}; add GateCase(about={missing[0]!r}, subject={{…}})"

    def test_answers_about_every_value_of_its_subjects(self, plugin: type[Any], workshop: Callable[..., Lab]) -> None:
        """About values that the schemas of its subjects accept it gives one of its answers, and never fails."""
        if not plugin.spec.subjects:
            pytest.skip("it judges only calls")
        with workshop().kernel() as kernel:
            for name, bound in kernel.bindings.subjects[SUBJECT].items():
                for value in instances(unfold(dict(plugin.spec.subjects[name].schema))):
                    facts = {fact: value for fact, value in _FACTS.items() if fact in bound.gate.reads}
                    found = bound.gate.ask(_case(name, value, facts))
                    assert type(found) is Decision, f"{name} {value!r}: {type(found).__name__}, not a Decision"
                    may = ", ".join(sorted(bound.gate.may))
                    assert found.outcome in bound.gate.may, f"{name} {value!r}: {found.outcome}; it may answer {may}"
                    encode(dict(found.signals))

    def declare(self, lab: Lab, settings: Mapping[str, Any], **more: Any) -> None:
        """Declare one policy of the kind."""
        self._abilities(lab)
        if any(case.about for case in self.cases):
            lab.flow(_FLOW, self._decide, gives={"type": "object"})
        lab.settings(policies={SUBJECT: {"kind": SUBJECT, **settings, **more}})

    def answers(self, lab: Lab) -> Iterator[tuple[GateCase, Mapping[str, Any], Result[Any]]]:
        """Call what each case is about, or let a flow ask about a subject."""
        for case, session in self._sessions(lab):
            before = len(lab.all("policy.check", session))
            if case.about:
                result = session.call(_FLOW, {"about": case.about, "value": dict(case.subject)})
            else:
                result = session.call(case.ability, case.args)
            made = lab.all("policy.check", session)[before:]
            (event,) = (each for each in made if ("subject" in each.payload) == bool(case.about))
            yield case, _answer(event, "policy"), result

    @staticmethod
    def _decide(args: Any, run: Any) -> Any:
        return {"decided": run.decide(SUBJECT, args["about"], args["value"]).decision.outcome}


def _is_offered_fact(name: str) -> bool:
    """Return whether an installed feature offers the fact *name*."""
    offer = discover().get(FEATURE, name.partition(".")[0])
    return offer is not None and name in getattr(getattr(load(offer), "spec", None), "facts", {})


class HookContract(_GateContract):
    """The contract of a hook at one *event*; a hook that answers several has a test class for each."""

    kind: ClassVar[str] = "hook"
    event: str = "PreToolUse"

    def declare(self, lab: Lab, settings: Mapping[str, Any], **more: Any) -> None:
        """Define the hook at its event, and what the event is about."""
        if EVENTS[self.event].call:
            self._abilities(lab)
            more = {"match": {"kind": ["tool"]}, **more}
        else:
            lab.flow(_FLOW, self._fire)
            for number, case in enumerate(self.cases if self.event == "SkillStart" else ()):
                lab.skill(f"skill-{number}", triggers=case.prompt)
        told = {"with": dict(settings)} if settings else {}
        lab.settings(hooks={SUBJECT: {"event_type": self.event, "handler": {"hook": SUBJECT}, **told, **more}})

    def test_gives_what_its_cases_say(self, workshop: Callable[..., Lab]) -> None:
        """After a transform it is the other arguments, or the other prompt, that go on; observers narrow results."""
        lab = workshop()
        for case, _, result in self.answers(lab):
            if case.gives is not ANYTHING:
                found = result.value if isinstance(result, Ok) else result
                assert not isinstance(found, Err), f"{case!r}: {found.error}"
                assert encode(found) == encode(case.gives), f"{found!r} went on; expected {case.gives!r}"

    def answers(self, lab: Lab) -> Iterator[tuple[GateCase, Mapping[str, Any], Result[Any]]]:
        """Let the event happen for each case."""
        for case in self.cases:
            yield case, *self._run_case(lab, case)

    def _run_case(self, lab: Lab, case: GateCase) -> tuple[Mapping[str, Any], Result[Any]]:
        try:
            session = lab.kernel().session(principal=Principal("somebody", "contract", frozenset(case.roles)))
        except SessionRefused as problem:
            return _answer(self._find_fired(lab, _only(lab))[-1], "hook"), problem.refusal
        result = self._act(lab, session, case)
        session.end(ok=case.ok, reason="asked")
        event = self._find_fired(lab, session.id)[-1]
        if self.event in ("UserPromptSubmit", "SkillStart", *_FIRED) and isinstance(result, Ok):
            output = event.payload.get("output")
            result = Ok(output["prompt"] if isinstance(output, Mapping) and "prompt" in output else output)
        return _answer(event, "hook"), result

    def _act(self, lab: Lab, session: Session, case: GateCase) -> Result[Any]:
        if self.event == "PreAbilityCreate":
            return self._create(lab, session, case)
        if EVENTS[self.event].call:
            return session.call(case.ability, case.args)
        if self.event in _FIRED:
            return session.call(_FLOW, dict(case.subject))
        if self.event in ("SessionStart", "SessionStop"):
            return Ok(None)
        result = session.run(case.prompt)
        return result if isinstance(result, Err) else Ok(result.value.text)

    def _create(self, lab: Lab, session: Session, case: GateCase) -> Result[Any]:
        """Ask for a task; what goes on is its input."""
        with lab.tasks(session) as tasks:
            made = tasks.create(case.ability, case.args)
        if isinstance(made, Err) or made.value.task is None:
            return made if isinstance(made, Err) else Err(made.value.unavailable or fault("TASK_UNAVAILABLE", ""))
        return Ok(made.value.task.args)

    def _fire(self, args: Any, run: Any) -> Any:
        if self.event in _FIRED:
            return dict(run.fire(self.event, args))
        return {"reply": "done"}

    def _find_fired(self, lab: Lab, session: str) -> list[Event]:
        found = [each for each in lab.all("hook.fired", session) if each.payload["event"] == self.event]
        assert found, f"{self.event} has not happened: {lab.types(session)}"
        return found


_FIRED = tuple(name for name, event in EVENTS.items() if event.subject)


def _target(case: GateCase) -> PolicyTarget:
    return PolicyTarget(
        id=case.ability,
        kind="tool",
        effects=case.effects,
        tags=frozenset(case.tags),
        scopes=frozenset(),
        paths=PATHS,
        takes=({"type": "object"},),
    )


_FACTS: Mapping[str, Any] = {
    "session.calls": {},
    "session.usage": {},
    "session.started": "2026-01-01T00:00:00.000Z",
    "context.state": None,
}


def _case(name: str, value: Any, facts: Mapping[str, Any]) -> SubjectCase:
    return SubjectCase(
        name=name,
        value=value,
        principal=Principal("somebody", "contract"),
        role=None,
        skill=None,
        enforcement="enforce",
        session="contract",
        now="2026-01-01T00:00:00.000Z",
        facts=facts,
    )


def _leads(pointer: str, value: Any) -> bool:
    """Return whether a JSON pointer leads to something in *value*."""
    nothing = object()
    try:
        return find_value(value, pointer, nothing) is not nothing
    except InvalidPointerError:
        return False


def _pass_through(result: Any, args: Any, _: Any) -> Any:
    return args if result is ANYTHING else result


def _answer(event: Event, who: str) -> Mapping[str, Any]:
    (answer,) = (each for each in event.payload["asked"] if each[who] == SUBJECT)
    found: Mapping[str, Any] = answer
    return found


def _only(lab: Lab) -> str:
    """Return the id of the session that was refused last."""
    places = lab.state.glob("sessions/*/.events.jsonl")
    return max(places, key=lambda place: place.stat().st_mtime_ns).parent.name
