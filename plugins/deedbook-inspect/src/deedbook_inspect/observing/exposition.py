"""Figures in the text format of Prometheus (version 0.0.4); pure.

`prometheus-client` writes the format; this module builds its metric families from `Figures`. Names follow the
conventions of Prometheus: counters end in ``_total``, times are in seconds. Labels are names from YAML, words of the
format, or names of models; never arguments, never ids. The tables of the figures bound their number.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import attrs
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from deedbook.format.families import DeclaredTypes

from .figures import Figures
from .histograms import BOUNDS, Histogram

__all__ = ["format_figures"]

_NANO: Final = 1_000_000_000
_OPEN: Final = "open"
_ABILITY: Final = ("kind", "ability")
_MODEL: Final = ("provider", "model", "role")
_UNPRINTABLE: Final = re.compile("[\ud800-\udfff\r]")
_BUCKETS: Final = (*(f"{bound / 1000:g}" for bound in BOUNDS), "+Inf")
"""The upper bounds of the buckets in seconds, as the label ``le`` spells them."""

_Names = tuple[str, ...]
_Sample = tuple[tuple[str, ...], float]


def format_figures(state: Figures) -> str:
    """Return the exposition; each line ends with a line feed."""
    registry = CollectorRegistry()
    registry.register(_FiguresCollector(state))
    return generate_latest(registry).decode()


@attrs.frozen(eq=False)
class _FiguresCollector(Collector):
    """Yields the metric families of some figures, for a registry of its own."""

    state: Figures

    def collect(self) -> Iterator[Metric]:
        yield from _counters(self.state)
        yield from _model_counters(self.state)
        yield from _gauges(self.state)
        yield from _histograms(self.state)


def _counters(state: Figures) -> Iterator[Metric]:
    layers = DeclaredTypes(state.declared)
    yield _build_counter(
        "deedbook_events_total",
        "Events recorded.",
        ("event_type", "layer"),
        (((key[0], layers.layer(key[0]) or ""), count.total()) for key, count in state.types.rows()),
    )
    yield _build_counter(
        "deedbook_sessions_total",
        "Sessions begun, by how they stand.",
        ("outcome",),
        (((name,), count) for name, count in sorted(state.sessions.items())),
    )
    yield _build_counter(
        "deedbook_ability_calls_total",
        "Calls of abilities, by outcome.",
        (*_ABILITY, "outcome"),
        (((*key, name), count) for key, calls in state.calls.rows() for name, count in _list_ended(calls.outcomes)),
    )
    yield _build_counter(
        "deedbook_ability_errors_total",
        "Calls without a result, by code.",
        (*_ABILITY, "code"),
        ((key, count.total()) for key, count in state.errors.rows()),
    )
    yield _build_counter(
        "deedbook_denials_total",
        "Calls denied, by who decided.",
        (*_ABILITY, "code", "by", "name"),
        ((key, count.total()) for key, count in state.denials.rows()),
    )
    yield _build_counter(
        "deedbook_hook_decisions_total",
        "Answers of hooks.",
        ("hook", "event", "decision"),
        _list_decisions(state.hooks.rows()),
    )
    yield _build_counter(
        "deedbook_policy_decisions_total",
        "Answers of policies.",
        ("policy", "enforcement", "decision"),
        _list_decisions(state.policies.rows()),
    )
    yield _build_counter(
        "deedbook_schema_violations_total",
        "Values that did not fit their schema.",
        ("subject",),
        (((name,), count) for name, count in sorted(state.violations.items())),
    )
    yield _build_counter(
        "deedbook_approvals_total",
        "Requests to persons, by what became of them.",
        ("outcome",),
        (((name,), count) for name, count in sorted(state.approvals.items()) if name != "waiting"),
    )


def _model_counters(state: Figures) -> Iterator[Metric]:
    rows = list(state.models.rows())
    yield _build_counter(
        "deedbook_model_calls_total",
        "Calls of models, by outcome.",
        (*_MODEL, "outcome"),
        (((*key, name), count) for key, usage in rows for name, count in _list_ended(usage.outcomes)),
    )
    yield _build_counter(
        "deedbook_model_tokens_total",
        "Tokens of models; cached ones are input, too.",
        (*_MODEL, "type"),
        (
            ((*key, name), count)
            for key, usage in rows
            for name, count in (
                ("input", usage.input_tokens),
                ("output", usage.output_tokens),
                ("cached_input", usage.cached_tokens),
            )
            if count is not None
        ),
    )
    yield _build_counter(
        "deedbook_model_cost_dollars_total",
        "US dollars, as recorded or by the prices given.",
        (*_MODEL, "source"),
        (
            ((*key, name), nano / _NANO)
            for key, usage in rows
            for name, nano in (("recorded", usage.recorded_cost), ("priced", usage.priced_cost))
        ),
    )
    yield _build_counter(
        "deedbook_model_unpriced_answers_total",
        "Answers whose cost is not known.",
        _MODEL,
        ((key, usage.unpriced) for key, usage in rows),
    )


def _gauges(state: Figures) -> Iterator[Metric]:
    """Yield the figures that may decrease: an open call ends, an interrupted session is closed."""
    yield _build_gauge(
        "deedbook_sessions",
        "Sessions, by how they stand.",
        ("state",),
        (((name,), count) for name, count in sorted(state.sessions.items())),
    )
    yield _build_gauge(
        "deedbook_ability_calls_open",
        "Calls without outcome in sessions that are being written.",
        _ABILITY,
        ((key, calls.outcomes[_OPEN]) for key, calls in state.calls.rows() if calls.outcomes[_OPEN]),
    )
    yield _build_gauge(
        "deedbook_approvals_waiting", "Requests that wait for a person.", (), [((), state.approvals["waiting"])]
    )


def _histograms(state: Figures) -> Iterator[Metric]:
    yield _build_histogram(
        "deedbook_ability_call_duration_seconds",
        "From the intent of a call to its outcome.",
        _ABILITY,
        ((key, calls.time) for key, calls in state.calls.rows() if calls.time.count),
    )
    yield _build_histogram(
        "deedbook_model_call_duration_seconds",
        "From the request to the answer of a model.",
        _MODEL,
        ((key, usage.time) for key, usage in state.models.rows() if usage.time.count),
    )
    yield _build_histogram(
        "deedbook_approval_wait_seconds",
        "From a request to a person until the answer.",
        (),
        [((), state.approval_wait)],
    )


def _list_ended(outcomes: Counter[str]) -> list[tuple[str, int]]:
    return sorted((name, count) for name, count in outcomes.items() if name != _OPEN)


def _list_decisions(rows: Iterable[tuple[tuple[str, ...], Counter[str]]]) -> Iterator[_Sample]:
    for key, decisions in rows:
        for decision, count in sorted(decisions.items()):
            yield (*key, decision), count


def _build_counter(name: str, help_text: str, labels: _Names, samples: Iterable[_Sample]) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=labels)
    for values, number in samples:
        family.add_metric(_clean(values), number)
    return family


def _build_gauge(name: str, help_text: str, labels: _Names, samples: Iterable[_Sample]) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for values, number in samples:
        family.add_metric(_clean(values), number)
    return family


def _build_histogram(
    name: str, help_text: str, labels: _Names, histograms: Iterable[tuple[tuple[str, ...], Histogram]]
) -> Metric:
    family = HistogramMetricFamily(name, help_text, labels=labels)
    for values, histogram in histograms:
        buckets = list(zip(_BUCKETS, map(float, histogram.count_cumulative()), strict=True))
        family.add_metric(_clean(values), buckets, histogram.sum / 1000)
    return family


def _clean(values: Iterable[str]) -> list[str]:
    """Return the values of labels with a question mark for each character that UTF-8 or a line cannot hold."""
    return [_UNPRINTABLE.sub("?", value) for value in values]
