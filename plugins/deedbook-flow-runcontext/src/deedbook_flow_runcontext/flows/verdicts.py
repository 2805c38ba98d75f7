"""The verdict router: propose the content of a task to the memory that its verdict leads to.

A verdict leads to a tier, and a tier to a zone and a key of the memory, by the settings. The router calls the ability
``propose``, so the memory gate checks every proposal. A tier that is ``null`` stores nothing.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from deedbook import Failed, HandlerSpec, Host, Object, Run
from deedbook_flow_runcontext.findings import quote_names

from .modes import ContextRecords, Records, ResultRecords, build_chain, build_clarification, build_report

NOTE: Final = "verdict_routing"
"""The type of the record of one routing: ``{task_id, verdict, tier}``, and where it was stored."""
TIERS: Final = ("TIER_A", "TIER_B", "TIER_C")

_VERDICTS: Final = {"ACCEPT": "TIER_A", "REVISE": "TIER_B", "REJECT": "TIER_C"}
_PLACES: Final = {
    "TIER_A": {"zone": "observation", "prefix": "tier_a"},
    "TIER_B": {"zone": "observation", "prefix": "tier_b"},
    "TIER_C": {"zone": "observation", "prefix": "tier_c"},
}
_PLACE: Final = {
    "type": ["object", "null"],
    "required": ["zone", "prefix"],
    "properties": {"zone": {"type": "string", "minLength": 1}, "prefix": {"type": "string", "minLength": 1}},
    "additionalProperties": False,
}
_SETTINGS: Final = {
    "type": "object",
    "required": ["propose"],
    "properties": {
        "propose": {"type": "string", "minLength": 1, "description": "The ability that proposes to the memory."},
        "verdicts": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"enum": list(TIERS)},
            "default": _VERDICTS,
            "description": "The tier of each verdict.",
        },
        "tiers": {
            "type": "object",
            "properties": dict.fromkeys(TIERS, _PLACE),
            "additionalProperties": False,
            "default": _PLACES,
            "description": "The zone of each tier, and the beginning of its keys; null stores nothing.",
        },
    },
    "additionalProperties": False,
}
_TAKES: Final = {
    "type": "object",
    "required": ["task_id", "verdict", "content"],
    "properties": {
        "task_id": {"type": "string", "minLength": 1},
        "verdict": {"type": "string", "minLength": 1},
        "content": {},
        "reason": {"type": "string"},
        "provenance": {"type": "object"},
    },
    "additionalProperties": False,
}
_GIVES: Final = {
    "type": "object",
    "required": ["task_id", "verdict", "tier", "stored"],
    "properties": {
        "task_id": {"type": "string"},
        "verdict": {"type": "string"},
        "tier": {"enum": list(TIERS)},
        "stored": {"type": ["object", "null"]},
    },
    "additionalProperties": False,
}


@attrs.frozen
class VerdictRouter:
    """Routes by two mappings: the tier of each verdict, and the place of each tier."""

    propose: str
    verdicts: Mapping[str, str]
    tiers: Mapping[str, Object | None]

    def route(self, run: Run, args: Object, records: Records) -> None:
        """Propose the content, and record where it went; raises `Failed` if the memory refuses it."""
        verdict = args["verdict"]
        if verdict not in self.verdicts:
            known = quote_names(sorted(self.verdicts))
            raise Failed("VERDICT_UNKNOWN", f'the verdict "{verdict}" leads to no tier; known are {known}')
        tier = self.verdicts[verdict]
        stored = self._store(run, tier, args)
        records.write(NOTE, {"task_id": args["task_id"], "verdict": verdict, "tier": tier, "stored": stored})

    def _store(self, run: Run, tier: str, args: Object) -> dict[str, Any] | None:
        place = self.tiers.get(tier)
        if place is None:
            return None
        more = {name: args[name] for name in ("reason", "provenance") if name in args}
        key = f"{place['prefix']}/{args['task_id']}"
        run.call(self.propose, {"zone": place["zone"], "key": key, "value": args["content"], **more})
        return {"zone": place["zone"], "key": key}


class _Router:
    def __init__(self, settings: Object, host: Host) -> None:  # noqa: ARG002 - the contract gives every plugin a host
        tiers = {**_PLACES, **settings.get("tiers", {})}
        self._router = VerdictRouter(settings["propose"], settings.get("verdicts", _VERDICTS), tiers)


class RouteVerdict(_Router):
    """The flow ``route-verdict``: the routing is a note ``verdict_routing`` of its context."""

    spec = HandlerSpec(settings=_SETTINGS, takes=_TAKES, effects="none", files="none")

    def __call__(self, args: Object, run: Run) -> None:
        """Route in the context."""
        context = run.context
        intent = f"store the content of task {args['task_id']} by its verdict, {args['verdict']}"
        context.clarify(build_clarification(intent, task_id=args["task_id"], verdict=args["verdict"]))
        context.plan(build_chain({"route": self._router.propose}))
        context.begin_execution()
        records = ContextRecords(run)
        self._router.route(run, args, records)
        (made,) = records.read(NOTE)
        calls = [f"{self._router.propose}:route"] if made["stored"] else []
        context.verify(build_report(str(made["tier"]), completed=["route"], calls=calls))
        context.complete({"verdict": "pass", "schema_version": "v1"})


class RouteVerdictResult(_Router):
    """The flow ``route-verdict-result``: returns the routing and has no context."""

    spec = HandlerSpec(settings=_SETTINGS, takes=_TAKES, gives=_GIVES, effects="none", files="none")

    def __call__(self, args: Object, run: Run) -> dict[str, Any]:
        """Return the routing."""
        records = ResultRecords()
        self._router.route(run, args, records)
        return dict(records.read(NOTE)[0])
