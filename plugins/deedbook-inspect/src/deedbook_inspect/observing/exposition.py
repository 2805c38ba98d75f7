"""Figures in the text format that Prometheus reads (version 0.0.4); pure.

Names follow its conventions: counters end in ``_total``, times are seconds. Labels are names that somebody gave in
YAML, words of the format, or names of models; never arguments, never ids. How many there may be is bounded by the
tables that are counted in.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from deedbook.format.families import DeclaredTypes

from .figures import Figures
from .histograms import BOUNDS, Histogram

__all__ = ["CONTENT_TYPE", "exposed"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NANO: Final = 1_000_000_000
_OPEN: Final = "open"
_ESCAPED: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_UNSPOKEN: Final = re.compile("[\ud800-\udfff\r]")

_Sample = tuple[Mapping[str, str], float]


def exposed(state: Figures) -> Iterator[str]:
    """Yield the lines of the exposition, without line ends."""
    for name, says, samples in _counters(state):
        yield from _head(name, "counter", says)
        for labels, value in samples:
            yield f"{name}{_labels(labels)} {_number(value)}"
    for name, says, samples in _gauges(state):
        yield from _head(name, "gauge", says)
        for labels, value in samples:
            yield f"{name}{_labels(labels)} {_number(value)}"
    for name, says, timed in _histograms(state):
        yield from _head(name, "histogram", says)
        for labels, histogram in timed:
            yield from _buckets(name, labels, histogram)


def _counters(state: Figures) -> Iterator[tuple[str, str, Iterable[_Sample]]]:
    yield (
        "deedbook_events_total",
        "Events recorded.",
        (
            ({"event_type": key[0], "layer": DeclaredTypes(state.declared).layer(key[0]) or ""}, count.total())
            for key, count in state.types.rows()
        ),
    )
    yield (
        "deedbook_sessions_total",
        "Sessions begun, by how they stand.",
        (({"outcome": name}, count) for name, count in sorted(state.sessions.items())),
    )
    yield (
        "deedbook_ability_calls_total",
        "Calls of abilities, by outcome.",
        (
            ({"ability": key[1], "kind": key[0], "outcome": name}, count)
            for key, calls in state.calls.rows()
            for name, count in _ended(calls.outcomes)
        ),
    )
    yield (
        "deedbook_ability_errors_total",
        "Calls without a result, by code.",
        _told(state.errors.rows(), "kind", "ability", "code"),
    )
    yield (
        "deedbook_denials_total",
        "Calls denied, by who decided.",
        _told(state.denials.rows(), "kind", "ability", "code", "by", "name"),
    )
    yield "deedbook_hook_decisions_total", "Answers of hooks.", _decisions(state.hooks.rows(), "hook", "event")
    yield (
        "deedbook_policy_decisions_total",
        "Answers of policies.",
        _decisions(state.policies.rows(), "policy", "enforcement"),
    )
    yield from _spent(state)
    yield (
        "deedbook_schema_violations_total",
        "Values that did not fit their schema.",
        (({"subject": name}, count) for name, count in sorted(state.violations.items())),
    )
    yield (
        "deedbook_approvals_total",
        "Requests to persons, by what became of them.",
        (({"outcome": name}, count) for name, count in sorted(state.approvals.items()) if name != "waiting"),
    )


def _spent(state: Figures) -> Iterator[tuple[str, str, Iterable[_Sample]]]:
    rows = [(dict(zip(("provider", "model", "role"), key, strict=True)), spent) for key, spent in state.models.rows()]
    yield (
        "deedbook_model_calls_total",
        "Calls of models, by outcome.",
        (({**labels, "outcome": name}, count) for labels, spent in rows for name, count in _ended(spent.outcomes)),
    )
    yield (
        "deedbook_model_tokens_total",
        "Tokens of models; cached ones are input, too.",
        (
            ({**labels, "type": name}, count)
            for labels, spent in rows
            for name, count in (("input", spent.read), ("output", spent.written), ("cached_input", spent.cached))
            if count is not None
        ),
    )
    yield (
        "deedbook_model_cost_dollars_total",
        "US dollars, as recorded or by the prices given.",
        (
            ({**labels, "source": name}, nano / _NANO)
            for labels, spent in rows
            for name, nano in (("recorded", spent.recorded), ("priced", spent.priced))
        ),
    )
    yield (
        "deedbook_model_unpriced_answers_total",
        "Answers of which nobody knows what they cost.",
        ((labels, spent.unpriced) for labels, spent in rows),
    )


def _gauges(state: Figures) -> Iterator[tuple[str, str, Iterable[_Sample]]]:
    """Yield what may become less again: a call that is open ends, an interrupted session is closed."""
    yield (
        "deedbook_sessions",
        "Sessions, by how they stand.",
        (({"state": name}, count) for name, count in sorted(state.sessions.items())),
    )
    yield (
        "deedbook_ability_calls_open",
        "Calls without outcome in sessions that are being written.",
        (
            ({"ability": key[1], "kind": key[0]}, calls.outcomes[_OPEN])
            for key, calls in state.calls.rows()
            if calls.outcomes[_OPEN]
        ),
    )
    yield "deedbook_approvals_waiting", "Requests that wait for a person.", [({}, state.approvals["waiting"])]


def _ended(outcomes: Counter[str]) -> list[tuple[str, int]]:
    return sorted((name, count) for name, count in outcomes.items() if name != _OPEN)


def _histograms(state: Figures) -> Iterator[tuple[str, str, Iterable[tuple[Mapping[str, str], Histogram]]]]:
    yield (
        "deedbook_ability_call_duration_seconds",
        "From the intent of a call to its outcome.",
        (({"ability": key[1], "kind": key[0]}, calls.time) for key, calls in state.calls.rows() if calls.time.count),
    )
    yield (
        "deedbook_model_call_duration_seconds",
        "From the request to the answer of a model.",
        (
            (dict(zip(("provider", "model", "role"), key, strict=True)), spent.time)
            for key, spent in state.models.rows()
            if spent.time.count
        ),
    )
    yield "deedbook_approval_wait_seconds", "From a request to a person until the answer.", [({}, state.waited)]


def _told(rows: Iterable[tuple[tuple[str, ...], Counter[str]]], *names: str) -> Iterator[_Sample]:
    for key, count in rows:
        yield dict(zip(names, key, strict=True)), count.total()


def _decisions(rows: Iterable[tuple[tuple[str, ...], Counter[str]]], *names: str) -> Iterator[_Sample]:
    for key, counted in rows:
        for decision, count in sorted(counted.items()):
            yield {**dict(zip(names, key, strict=True)), "decision": decision}, count


def _head(name: str, kind: str, says: str) -> Iterator[str]:
    yield f"# HELP {name} {says}"
    yield f"# TYPE {name} {kind}"


def _buckets(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterator[str]:
    *counts, every = histogram.cumulative()
    for bound, count in zip(BOUNDS, counts, strict=True):
        yield f"{name}_bucket{_labels({**labels, 'le': _number(bound / 1000)})} {count}"
    yield f"{name}_bucket{_labels({**labels, 'le': '+Inf'})} {every}"
    yield f"{name}_sum{_labels(labels)} {_number(histogram.sum / 1000)}"
    yield f"{name}_count{_labels(labels)} {every}"


def _labels(labels: Mapping[str, str]) -> str:
    """Return labels in braces; what UTF-8 or a line cannot hold is replaced."""
    if not labels:
        return ""
    told = (f'{name}="{_UNSPOKEN.sub("?", value).translate(_ESCAPED)}"' for name, value in labels.items())
    return f"{{{','.join(told)}}}"


def _number(value: Any) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
