"""Signals are checked against what they may see, and only an exact true is true."""

import pytest
from cases import for_each

from deedbook_policy_standard.signals import Invalid, SignalLanguage, Unclear, compile_signal

FINDING = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "severity": {"enum": ["P0", "P1", "P2", "P3"]},
        "confidence": {"enum": [0, 25, 50, 75, 100]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
VARIABLES = {
    "review_aggregate": {
        "type": "object",
        "properties": {
            "p0_unresolved": {"type": "integer"},
            "verdict": {"type": "string", "enum": ["pass", "fail"]},
            "findings": {"type": "array", "items": {"$ref": "#/$defs/finding"}},
            "by_reviewer": {"type": "object", "additionalProperties": {"$ref": "#/$defs/finding"}},
        },
        "$defs": {"finding": FINDING},
    },
    "request": {"type": "string"},
}
P0 = {"title": "t", "severity": "P0", "confidence": 75, "tags": ["x"]}


def aggregate(**more):
    return {"review_aggregate": {"p0_unresolved": 0, "verdict": "pass", "findings": [P0], **more}, "request": "r"}


@for_each(
    ("text", "expected"),
    [
        ("review_aggregate.p0_unresolved == 0", True),
        ("review_aggregate.p0_unresolved == 1", False),
        ("review_aggregate.findings.all(f, f.severity == 'P0')", True),
        ("review_aggregate.findings.filter(f, f.confidence > 50).exists(f, f.title == 't')", True),
        ("review_aggregate.findings.map(f, f.tags).flatten() == ['x']", True),
        ("review_aggregate.findings.sortBy(f, f.confidence)[0].title == 't'", True),
        ("review_aggregate.findings.exists(i, f, i == 0 && f.severity in ['P0'])", True),
        ("review_aggregate.findings.transformList(i, f, f.title).join('-') == 't'", True),
        ("math.greatest(review_aggregate.p0_unresolved, 3) == 3", True),
        ("sets.intersects(review_aggregate.findings[0].tags, ['x', 'y'])", True),
        ("request.upperAscii().split('').reverse() == ['R']", True),
        ("review_aggregate.by_reviewer['ada'].severity == 'P0'", False),
        ("has(review_aggregate.by_reviewer) || request == 'r'", True),
        ("1 / review_aggregate.p0_unresolved == 1", False),
    ],
)
def test_a_signal_is_true_only_if_it_is_exactly_true(text, expected):
    assert compile_signal(text, VARIABLES)(aggregate()) is expected


@for_each(
    ("text", "at", "said"),
    [
        ("review_aggregate.p0_unresolvd == 0", 17, 'did you mean "p0_unresolved"?'),
        ("review_aggregat.p0_unresolved == 0", 0, 'did you mean "review_aggregate"?'),
        ("review_aggregate.findings.all(f, f.sevrity == 'P0')", 35, 'f has no sevrity; did you mean "severity"?'),
        ("review_aggregate.findings.exists(i, f, f.sevrity == 'P0')", 41, "f has no sevrity"),
        ("review_aggregate.findings.exists(i, f, i.severity == 'P0')", 41, "i is a number, which has no severity"),
        ("review_aggregate.findings.filter(f, f.confidence > 1).all(g, g.sevrity == 'P0')", 63, "g has no sevrity"),
        ("review_aggregate.findings.map(f, f.tags).all(g, g.sevrity == 'P0')", 50, "g is an array"),
        ("review_aggregate.findings.map(f, f.confidence > 1, f.sevrity).size() > 1", 53, "f has no sevrity"),
        ("review_aggregate.findings.sortBy(f, f.sevrity).size() > 0", 38, "f has no sevrity"),
        ("review_aggregate.findings.reverse()[0].sevrity == 'P0'", 39, "has no sevrity"),
        ("review_aggregate.by_reviewer.exists(k, v, v.sevrity == 'P0')", 44, "v has no sevrity"),
        ("review_aggregate.by_reviewer.exists(k, k.sevrity == 'P0')", 41, "k is a string, which has no sevrity"),
        ("review_aggregate.findings.all(f, f.severity == 'P9')", 47, "f.severity is never 'P9'"),
        ("review_aggregate.findings.all(f, f.severity == 1)", 44, "never equal"),
        ("review_aggregate.verdict", 0, "a condition is true or false"),
        ("request", 0, "a condition is true or false"),
        ("review_aggregate.p0_unresolved = 0", 31, "token recognition error"),
    ],
)
def test_a_misspelt_signal_fails_with_its_offset(text, at, said):
    with pytest.raises(Invalid) as caught:
        compile_signal(text, VARIABLES)
    flaw = caught.value.flaws[0]
    assert (said in flaw.message, flaw.at) == (True, at), flaw


def test_signals_share_one_view():
    language = SignalLanguage(VARIABLES)
    signals = [language.compile(f"review_aggregate.p0_unresolved < {number}") for number in range(3)]
    view = language.view(aggregate(p0_unresolved=1))
    assert [signal.holds(view) for signal in signals] == [False, False, True]


def test_holds_tells_an_error_from_false():
    language = SignalLanguage(VARIABLES)
    signal = language.compile("review_aggregate.p0_unresolved == 0")
    with pytest.raises(Unclear, match="Key not found"):
        signal.holds(language.view({"review_aggregate": {}}))
    assert signal({"review_aggregate": {}}) is False
    assert signal({}) is False


def test_a_value_that_is_no_boolean_is_not_true():
    signal = compile_signal("request", {"request": {}})
    assert signal({"request": True}) is True
    assert not any(signal({"request": value}) for value in (1, "true", [True], None, 2**70, {"a": object()}))
