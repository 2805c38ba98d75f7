"""The policy kinds that the runner asks about what was learned; each answer is recorded with what it was based on.

Both are pure: ``deedbook verify`` asks them again with the recorded facts.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from deedbook.contract import Decision, GateSpec, Host, Object, Subject, SubjectCase, deny
from deedbook.format.errors import BindingError, fault, raise_all

from .evidence import KINDS, Criteria, Mention, assess, build_row, is_confirmed
from .revision import find_in_force
from .routing import digest_policy, find_faults
from .workspace_events import EVIDENCE_FACT, ROUTING_FACT

ROUTING: Final = "swe-routing"
ROUTING_SUBJECT: Final = "routing"
PROMOTION: Final = "swe-promotion"
PATTERN_SUBJECT: Final = "pattern"

_NAME: Final = {"type": "string", "minLength": 1}
_ANSWERS: Final = frozenset({"allow", "deny"})
_SEVERAL: Final = {"type": "integer", "minimum": 1, "maximum": 1000}


def _object(required: Object, optional: Object | None = None) -> Object:
    members = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": members, "additionalProperties": False}


def name_policy(kind: str, pipeline: str) -> str:
    """Return the id of the policy of a kind that the runner of a pipeline asks."""
    return f"{kind}-{pipeline}"


def list_policies(pipeline: str, routing: Object | None) -> Iterator[tuple[str, Object]]:
    """Yield the policies of a pipeline with this *routing*: the kind and the settings of each."""
    yield PROMOTION, {}
    if routing is not None:
        yield ROUTING, {"pipeline": pipeline, "policy": dict(routing)}


class RoutingInForce:
    """Says which routing policy is in force for a task that begins: the charter's, or the last revision of it.

    ``{pipeline, policy}``: a pipeline, and its policy (``routing_policy_v1``). The signals of the answer are
    ``policy``, ``digest``, and ``revision``: the event of the workspace ledger, or ``null``.
    """

    spec: ClassVar[GateSpec] = GateSpec(
        settings=_object({"pipeline": _NAME, "policy": {"type": "object"}}),
        reads=frozenset({ROUTING_FACT}),
        pure=True,
        calls=False,
        subjects={ROUTING_SUBJECT: Subject(schema=_object({"task_id": _NAME}), answers=_ANSWERS)},
    )

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the shape of every plugin
        faults = (f"policy{pointer}: {why}" for pointer, why in find_faults(settings["policy"]))
        raise_all(BindingError, (fault("BINDING_INVALID", each) for each in faults))
        self._pipeline: str = settings["pipeline"]
        self._policy: Object = settings["policy"]

    def decide(self, case: SubjectCase) -> Decision:
        """Return the policy in force; denies if the workspace ledger cannot be read."""
        fact: Any = case.facts[ROUTING_FACT]
        if "broken" in fact:
            return deny(f"{fact['broken']}; verify the workspace ledger")
        policy, revision = find_in_force(self._policy, fact.get("revisions", {}).get(self._pipeline))
        since = "the charter's policy" if revision is None else f"revised by event {revision} of the workspace ledger"
        signals = {"policy": dict(policy), "digest": digest_policy(policy), "revision": revision}
        return Decision("allow", since, signals=signals)


class PatternPromotion:
    """Judges whether a pattern that the retrospective proposes is promoted.

    ``{tasks, integrations, failures}``: `evidence.Criteria`. The subject is the reward of the task (``reward_v1``) and
    one of the patterns that it names. ``evidence`` in the signals is the document ``pattern_evidence_v1``.
    """

    spec: ClassVar[GateSpec] = GateSpec(
        settings=_object({}, {"tasks": _SEVERAL, "integrations": _SEVERAL, "failures": _SEVERAL}),
        reads=frozenset({EVIDENCE_FACT}),
        pure=True,
        calls=False,
        subjects={
            PATTERN_SUBJECT: Subject(
                schema=_object({"reward": {"type": "object"}, "pattern": _NAME, "kind": {"enum": list(KINDS)}}),
                answers=_ANSWERS,
            )
        },
    )

    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the shape of every plugin
        self._criteria = Criteria(**settings)

    def decide(self, case: SubjectCase) -> Decision:
        """Return whether the pattern is promoted; a generated task promotes none."""
        fact: Any = case.facts[EVIDENCE_FACT]
        if "broken" in fact:
            return deny(f"{fact['broken']}; verify the workspace ledger")
        reward, kind, pattern = case.value["reward"], case.value["kind"], case.value["pattern"]
        known = [each for each in fact.get("patterns", ()) if (each["kind"], each["pattern"]) == (kind, pattern)]
        rows = [*(row for each in known for row in each["rows"]), build_row(reward, case.session)]
        found = assess(pattern, kind, rows, self._criteria, promoted=any(each["promoted"] for each in known))
        mentions = [Mention.parse(each) for each in reward["patterns"]]
        mention = next((each for each in mentions if (each.kind, each.pattern) == (kind, pattern)), None)
        signals = {"evidence": found.as_json()}
        if reward["generated"]:
            return Decision("deny", "a generated task is no evidence", signals=signals)
        if mention is None or not mention.proposed:
            return Decision("deny", f"the retrospective does not propose it; {found.reason}", signals=signals)
        confirmed = is_confirmed(found, mention)
        return Decision("allow" if confirmed else "deny", f"{found.state}: {found.reason}", signals=signals)
