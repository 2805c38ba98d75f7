"""Figures as they are told: as JSON with a schema; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from deedbook.format.families import DeclaredTypes

from .figures import Calls, Figures, Spent
from .tables import LIMIT, OTHER, Table

__all__ = ["as_json"]

_NANO: Final = 1_000_000_000


def as_json(state: Figures) -> dict[str, Any]:
    """Return figures as ``output_stats_v1`` has them, in an order that does not depend on the ledgers'."""
    declared = DeclaredTypes(state.declared)
    models = [_model(key, spent) for key, spent in state.models.rows()]
    return {
        "schema_version": "v1",
        "ledgers": state.ledgers,
        "events": state.events,
        "first": state.first or None,
        "last": state.last or None,
        "layers": _layers(state.types, declared),
        "types": [
            {"type": key[0], "layer": declared.layer(key[0]), "events": count.total()}
            for key, count in state.types.rows()
        ],
        "sessions": _sorted(state.sessions),
        "abilities": [_ability(key, calls) for key, calls in state.calls.rows()],
        "errors": _counted(state.errors, "kind", "ability", "code"),
        "denials": _counted(state.denials, "kind", "ability", "code", "by", "name"),
        "hooks": _decided(state.hooks, "hook", "event"),
        "policies": _decided(state.policies, "policy", "enforcement"),
        "models": models,
        "roles": _roles(state, models),
        "approvals": {**_sorted(state.approvals), "wait_ms": state.waited.as_json()},
        "violations": _sorted(state.violations),
        "names": {"limit": LIMIT, "other": OTHER},
    }


def _sorted(counted: Counter[str]) -> dict[str, int]:
    return {name: counted[name] for name in sorted(counted) if counted[name]}


def _layers(types: Table[Counter[str]], declared: DeclaredTypes) -> dict[str, int]:
    layers: Counter[str] = Counter()
    for key, count in types.rows():
        layers[declared.layer(key[0]) or "none"] += count.total()
    return _sorted(layers)


def _ability(key: tuple[str, ...], calls: Calls) -> dict[str, Any]:
    return {
        "kind": key[0],
        "ability": key[1],
        "calls": calls.outcomes.total(),
        "outcomes": _sorted(calls.outcomes),
        "late": calls.late,
        "denied": calls.denied,
        "latency_ms": calls.time.as_json(),
    }


def _model(key: tuple[str, ...], spent: Spent) -> dict[str, Any]:
    return {
        **dict(zip(("provider", "model", "role"), key, strict=True)),
        "calls": spent.outcomes.total(),
        "outcomes": _sorted(spent.outcomes),
        "input_tokens": spent.read,
        "output_tokens": spent.written,
        "cached_input_tokens": spent.cached,
        "cost_usd": {
            "recorded": spent.recorded / _NANO,
            "priced": spent.priced / _NANO,
            "unpriced_answers": spent.unpriced,
        },
        "latency_ms": spent.time.as_json(),
    }


def _counted(table: Table[Counter[str]], *names: str) -> list[dict[str, Any]]:
    return [{**dict(zip(names, key, strict=True)), "count": count.total()} for key, count in table.rows()]


def _decided(table: Table[Counter[str]], *names: str) -> list[dict[str, Any]]:
    return [{**dict(zip(names, key, strict=True)), "decisions": _sorted(count)} for key, count in table.rows()]


def _roles(state: Figures, models: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what each role asked for, with what its models spent."""
    spent: dict[str, Counter[str]] = {}
    for each in models:
        told = spent.setdefault(each["role"], Counter())
        told["input"] += each["input_tokens"]
        told["output"] += each["output_tokens"]
        told["cost"] += round((each["cost_usd"]["recorded"] + each["cost_usd"]["priced"]) * _NANO)
    none: Counter[str] = Counter()
    return [
        {
            "role": role,
            "model_calls": asked.models,
            "other_calls": asked.others,
            "denied": asked.denied,
            "input_tokens": spent.get(role, none)["input"],
            "output_tokens": spent.get(role, none)["output"],
            "cost_usd": spent.get(role, none)["cost"] / _NANO,
        }
        for (role,), asked in state.roles.rows()
    ]
