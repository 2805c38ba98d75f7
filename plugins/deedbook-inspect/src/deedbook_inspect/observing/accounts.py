"""Figures as JSON with a schema; pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from deedbook.format.families import DeclaredTypes

from .figures import AbilityCalls, Figures, ModelUsage
from .tables import LIMIT, OTHER, Table

__all__ = ["build_document"]

_NANO: Final = 1_000_000_000


def build_document(state: Figures) -> dict[str, Any]:
    """Return figures as ``output_stats_v1``, in an order that does not depend on the ledgers' order."""
    declared = DeclaredTypes(state.declared)
    models = [_model_as_json(key, usage) for key, usage in state.models.rows()]
    return {
        "schema_version": "v1",
        "ledgers": state.ledgers,
        "events": state.events,
        "first": state.first or None,
        "last": state.last or None,
        "layers": _count_layers(state.types, declared),
        "types": [
            {"type": key[0], "layer": declared.layer(key[0]), "events": count.total()}
            for key, count in state.types.rows()
        ],
        "sessions": _sort_counts(state.sessions),
        "abilities": [_ability_as_json(key, calls) for key, calls in state.calls.rows()],
        "errors": _list_counts(state.errors, "kind", "ability", "code"),
        "denials": _list_counts(state.denials, "kind", "ability", "code", "by", "name"),
        "hooks": _list_decisions(state.hooks, "hook", "event"),
        "policies": _list_decisions(state.policies, "policy", "enforcement"),
        "models": models,
        "roles": _list_roles(state, models),
        "approvals": {**_sort_counts(state.approvals), "wait_ms": state.approval_wait.as_json()},
        "violations": _sort_counts(state.violations),
        "names": {"limit": LIMIT, "other": OTHER},
    }


def _sort_counts(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in sorted(counts) if counts[name]}


def _count_layers(types: Table[Counter[str]], declared: DeclaredTypes) -> dict[str, int]:
    layers: Counter[str] = Counter()
    for key, count in types.rows():
        layers[declared.layer(key[0]) or "none"] += count.total()
    return _sort_counts(layers)


def _ability_as_json(key: tuple[str, ...], calls: AbilityCalls) -> dict[str, Any]:
    return {
        "kind": key[0],
        "ability": key[1],
        "calls": calls.outcomes.total(),
        "outcomes": _sort_counts(calls.outcomes),
        "late": calls.late,
        "denied": calls.denied,
        "latency_ms": calls.time.as_json(),
    }


def _model_as_json(key: tuple[str, ...], usage: ModelUsage) -> dict[str, Any]:
    return {
        **dict(zip(("provider", "model", "role"), key, strict=True)),
        "calls": usage.outcomes.total(),
        "outcomes": _sort_counts(usage.outcomes),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_input_tokens": usage.cached_tokens,
        "cost_usd": {
            "recorded": usage.recorded_cost / _NANO,
            "priced": usage.priced_cost / _NANO,
            "unpriced_answers": usage.unpriced,
        },
        "latency_ms": usage.time.as_json(),
    }


def _list_counts(table: Table[Counter[str]], *names: str) -> list[dict[str, Any]]:
    return [{**dict(zip(names, key, strict=True)), "count": count.total()} for key, count in table.rows()]


def _list_decisions(table: Table[Counter[str]], *names: str) -> list[dict[str, Any]]:
    return [{**dict(zip(names, key, strict=True)), "decisions": _sort_counts(count)} for key, count in table.rows()]


def _list_roles(state: Figures, models: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls of each role, with the usage of its models."""
    usage: dict[str, Counter[str]] = {}
    for each in models:
        totals = usage.setdefault(each["role"], Counter())
        totals["input"] += each["input_tokens"]
        totals["output"] += each["output_tokens"]
        totals["cost"] += round((each["cost_usd"]["recorded"] + each["cost_usd"]["priced"]) * _NANO)
    none: Counter[str] = Counter()
    return [
        {
            "role": role,
            "model_calls": role_calls.models,
            "other_calls": role_calls.others,
            "denied": role_calls.denied,
            "input_tokens": usage.get(role, none)["input"],
            "output_tokens": usage.get(role, none)["output"],
            "cost_usd": usage.get(role, none)["cost"] / _NANO,
        }
        for (role,), role_calls in state.roles.rows()
    ]
