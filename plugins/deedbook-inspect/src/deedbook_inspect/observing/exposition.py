"""Figures in the text format of Prometheus (version 0.0.4); pure.

Names follow its conventions: counters end in ``_total``, times are in seconds. Labels are names from YAML, words of the
format, or names of models; never arguments, never ids. The tables of the figures bound their number.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from deedbook.format.families import DeclaredTypes

from .figures import Figures
from .histograms import BOUNDS, Histogram

__all__ = ["CONTENT_TYPE", "format_figures"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NANO: Final = 1_000_000_000
_OPEN: Final = "open"
_ESCAPED: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_UNPRINTABLE: Final = re.compile("[\ud800-\udfff\r]")

_Sample = tuple[Mapping[str, str], float]


def format_figures(state: Figures) -> Iterator[str]:
    """Yield the lines of the exposition, without line ends."""
    for name, help_text, samples in _counters(state):
        yield from _format_head(name, "counter", help_text)
        for labels, value in samples:
            yield f"{name}{_format_labels(labels)} {_format_number(value)}"
    for name, help_text, samples in _gauges(state):
        yield from _format_head(name, "gauge", help_text)
        for labels, value in samples:
            yield f"{name}{_format_labels(labels)} {_format_number(value)}"
    for name, help_text, histograms in _histograms(state):
        yield from _format_head(name, "histogram", help_text)
        for labels, histogram in histograms:
            yield from _format_buckets(name, labels, histogram)


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
            for name, count in _list_ended(calls.outcomes)
        ),
    )
    yield (
        "deedbook_ability_errors_total",
        "Calls without a result, by code.",
        _build_samples(state.errors.rows(), "kind", "ability", "code"),
    )
    yield (
        "deedbook_denials_total",
        "Calls denied, by who decided.",
        _build_samples(state.denials.rows(), "kind", "ability", "code", "by", "name"),
    )
    yield "deedbook_hook_decisions_total", "Answers of hooks.", _build_decisions(state.hooks.rows(), "hook", "event")
    yield (
        "deedbook_policy_decisions_total",
        "Answers of policies.",
        _build_decisions(state.policies.rows(), "policy", "enforcement"),
    )
    yield from _model_counters(state)
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


def _model_counters(state: Figures) -> Iterator[tuple[str, str, Iterable[_Sample]]]:
    rows = [(dict(zip(("provider", "model", "role"), key, strict=True)), usage) for key, usage in state.models.rows()]
    yield (
        "deedbook_model_calls_total",
        "Calls of models, by outcome.",
        (({**labels, "outcome": name}, count) for labels, usage in rows for name, count in _list_ended(usage.outcomes)),
    )
    yield (
        "deedbook_model_tokens_total",
        "Tokens of models; cached ones are input, too.",
        (
            ({**labels, "type": name}, count)
            for labels, usage in rows
            for name, count in (
                ("input", usage.input_tokens),
                ("output", usage.output_tokens),
                ("cached_input", usage.cached_tokens),
            )
            if count is not None
        ),
    )
    yield (
        "deedbook_model_cost_dollars_total",
        "US dollars, as recorded or by the prices given.",
        (
            ({**labels, "source": name}, nano / _NANO)
            for labels, usage in rows
            for name, nano in (("recorded", usage.recorded_cost), ("priced", usage.priced_cost))
        ),
    )
    yield (
        "deedbook_model_unpriced_answers_total",
        "Answers of which nobody knows what they cost.",
        ((labels, usage.unpriced) for labels, usage in rows),
    )


def _gauges(state: Figures) -> Iterator[tuple[str, str, Iterable[_Sample]]]:
    """Yield the figures that may decrease: an open call ends, an interrupted session is closed."""
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


def _list_ended(outcomes: Counter[str]) -> list[tuple[str, int]]:
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
            (dict(zip(("provider", "model", "role"), key, strict=True)), usage.time)
            for key, usage in state.models.rows()
            if usage.time.count
        ),
    )
    yield "deedbook_approval_wait_seconds", "From a request to a person until the answer.", [({}, state.approval_wait)]


def _build_samples(rows: Iterable[tuple[tuple[str, ...], Counter[str]]], *names: str) -> Iterator[_Sample]:
    for key, count in rows:
        yield dict(zip(names, key, strict=True)), count.total()


def _build_decisions(rows: Iterable[tuple[tuple[str, ...], Counter[str]]], *names: str) -> Iterator[_Sample]:
    for key, counted in rows:
        for decision, count in sorted(counted.items()):
            yield {**dict(zip(names, key, strict=True)), "decision": decision}, count


def _format_head(name: str, kind: str, help_text: str) -> Iterator[str]:
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"


def _format_buckets(name: str, labels: Mapping[str, str], histogram: Histogram) -> Iterator[str]:
    *counts, every = histogram.count_cumulative()
    for bound, count in zip(BOUNDS, counts, strict=True):
        yield f"{name}_bucket{_format_labels({**labels, 'le': _format_number(bound / 1000)})} {count}"
    yield f"{name}_bucket{_format_labels({**labels, 'le': '+Inf'})} {every}"
    yield f"{name}_sum{_format_labels(labels)} {_format_number(histogram.sum / 1000)}"
    yield f"{name}_count{_format_labels(labels)} {every}"


def _format_labels(labels: Mapping[str, str]) -> str:
    """Return labels in braces; characters that UTF-8 or a line cannot hold are replaced."""
    if not labels:
        return ""
    parts = (f'{name}="{_UNPRINTABLE.sub("?", value).translate(_ESCAPED)}"' for name, value in labels.items())
    return f"{{{','.join(parts)}}}"


def _format_number(value: Any) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
