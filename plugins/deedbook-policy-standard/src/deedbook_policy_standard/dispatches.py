"""Policy kinds about the dispatch of personas: ``role-permissions``, which also judges calls, and ``mode-dispatch``."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final

from deedbook.contract import Call, Decision, GateSpec, Host, Object, PolicyProblem, PolicyTarget, SubjectCase

from .subject_rules import SubjectPolicy, settings_schema, subject_spec
from .subjects import DISPATCH
from .write_paths import PersonaTable, table_problems

_PERSONAS: Final[Object] = {
    "description": "Where personas may write, by their names or globs over them; the first that fits counts",
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["writes"],
        "properties": {
            "writes": {
                "description": "Folders, and globs over paths; an empty list: nowhere",
                "type": "array",
                "items": {"type": "string", "minLength": 1},
            },
            "place": {"description": "Where that is declared; decisions name it", "type": "string", "minLength": 1},
        },
        "additionalProperties": False,
    },
}
_ONLY_LISTED: Final[Object] = {
    "description": "Whether skills that the table does not have are not judged at all",
    "type": "boolean",
    "default": False,
}
_NOT_JUDGED: Final = Decision("advisory")  # an answer that gates nothing, and lifts no ask either


class RolePermissions(SubjectPolicy):
    """Says which personas may be dispatched, by rules, and where they may write, by the table ``personas``.

    A persona acts under the skill of its name. Its calls with effects ``write`` or ``irreversible`` are allowed if
    every path among their arguments is where it may write, and denied otherwise; a call without such a path is also
    denied. About a skill that the table does not have, ``default`` decides, unless ``only_listed`` is true. Calls
    without a skill, of flows (whose own calls are judged), and without such effects get an advisory answer, which gates
    nothing.
    """

    subject: ClassVar[str] = "dispatch"
    spec: ClassVar[GateSpec] = subject_spec(
        settings_schema(
            "Which personas are dispatched, and where they may write",
            keys={"personas": _PERSONAS, "only_listed": _ONLY_LISTED},
        ),
        "dispatch",
        DISPATCH,
        calls=True,
    )

    def __init__(self, settings: Object, host: Host) -> None:
        super().__init__(settings, host)
        self._table = PersonaTable(settings["personas"]) if "personas" in settings else None
        self._unlisted = settings.get("default", "deny")
        self._only_listed = settings.get("only_listed", False)

    def __call__(self, call: Call) -> Decision:
        """Judge where a persona writes."""
        if self._table is None or call.skill is None or call.kind == "flow" or call.effects in ("none", "read"):
            return _NOT_JUDGED
        row = self._table.find(call.skill)
        if row is None and self._only_listed:
            return _NOT_JUDGED
        if row is None:
            why = f"{call.skill} is not among the personas of this policy; the default is {self._unlisted}"
            return Decision(self._unlisted, "" if self._unlisted == "allow" else why)
        why = row.refusal(call)
        return Decision("deny" if why else "allow", why, None, {"rule": row.place})

    def decide(self, case: SubjectCase) -> Decision:
        """Judge a dispatch by the rules; one that wants to write where its persona may not is denied."""
        decision = super().decide(case)
        wanted = case.value.get("writes", ())
        if self._table is None or not wanted or decision.outcome == "deny":
            return decision
        row = self._table.find(case.value["persona"])
        refused = [path for path in wanted if row is None or not row.covers(path)]
        if not refused:
            return decision
        where = "it has no row in personas" if row is None else f"it may write to {row.description}"
        return Decision("deny", f"{case.value['persona']} wants to write to {refused[0]}; {where}", None,
                        {} if row is None else {"rule": row.place})  # fmt: skip

    @classmethod
    def reachable(cls, body: Object, abilities: Sequence[PolicyTarget]) -> Iterable[int | None]:
        """Return the rules that can decide; none in a policy that only limits where the listed personas write."""
        return super().reachable(body, abilities) if body["rules"] or not body.get("only_listed") else ()

    @classmethod
    def more_problems(cls, body: Object) -> Iterator[PolicyProblem]:
        """Yield the folders and globs that fit no path."""
        return table_problems(body.get("personas", {}))


class ModeDispatch(SubjectPolicy):
    """Says what a dispatch delivers and how it meets people, by mode: ``deliverables`` and ``ux`` of a rule.

    Both are signals of its decision.
    """

    subject: ClassVar[str] = "dispatch"
    spec: ClassVar[GateSpec] = subject_spec(
        settings_schema(
            "What is delivered and how people are met, by the mode of the session",
            {
                "deliverables": {
                    "description": "What is delivered, such as findings, patch, report",
                    "type": "array",
                    "items": {"type": "string", "minLength": 1, "maxLength": 200},
                },
                "ux": {
                    "description": "How people are met, such as dialogue or silent",
                    "type": "string",
                    "minLength": 1,
                },
            },
        ),
        "dispatch",
        DISPATCH,
    )

    @classmethod
    def signals(cls, rule: Object) -> Object:
        """Return what is delivered and how people are met, as far as the rule says."""
        found: dict[str, Any] = {name: rule[name] for name in ("deliverables", "ux") if name in rule}
        return found
