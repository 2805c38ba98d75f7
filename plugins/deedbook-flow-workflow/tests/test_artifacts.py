"""Files of artifacts: their names, what they hold, and what is refused."""

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format.schema import Schemas, data_folder
from deedbook_flow_workflow.artifacts import build_name, check_file, find_template_flaws, fits_pattern, make_slug
from deedbook_flow_workflow.artifacts import render_file as render
from deedbook_flow_workflow.definition import Artifact

SCHEMAS = Schemas.load(data_folder("schemas"))
ARTIFACT = Artifact(
    pattern="{date}-{slug}.md", folder="docs/lessons", schema="learning_v1", template="# {{ title }}", place="t.md:3"
)
LESSON = {"schema_version": "v1", "title": "A", "lesson": "B"}
GOOD = "docs/lessons/2026-01-31-a.md"

PRODUCED = {
    "finding_v1": {
        "schema_version": "v1", "id": "f1", "reviewer": "style", "severity": "critical", "autofix_class": "safe_auto",
        "confidence": 75, "title": "x",
    },
    "findings_v1": {"findings": []},
    "review_aggregate_v1": {
        "schema_version": "v1", "findings": [], "suppressed": [], "pre_existing": [], "verdict": "pass",
    },
    "brainstorm_v1": {"schema_version": "v1", "topic": "x", "ideas": [{"id": "i1", "title": "y"}]},
    "plan_v1": {
        "schema_version": "v1", "steps": [{"id": "s1", "description": "x"}], "risks": [], "needs_advisor": False,
    },
    "solution_v1": {"schema_version": "v1", "problem": "x", "solution": "y"},
    "learning_v1": LESSON,
    "pulse_report_v1": {
        "schema_version": "v1", "period": {"from": "2026-01-01", "to": "2026-01-31"}, "status": "on_track",
        "summary": "x",
    },
}  # fmt: skip


def faults(path: str = GOOD, raw: bytes | None = None, **more: Any) -> list[tuple[str, str]]:
    artifact = attrs.evolve(ARTIFACT, **more)
    content = render(artifact, LESSON) if raw is None else raw
    schema = SCHEMAS.document(artifact.schema)
    return [(error.code, str(error.place)) for error in check_file(artifact, schema, path, content)]


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "slug"),
    [("Fix the Door!", "fix-the-door"), ("Übermäßig", "ubermaig"), ("../../etc", "etc"), ("日本", "untitled")],
)
def test_slug_is_a_safe_part_of_a_name(text, slug):
    assert make_slug(text) == slug


@given(st.text(max_size=100))
def test_any_text_makes_a_slug_that_fits(text):
    assert fits_pattern("{slug}.md", build_name("{slug}.md", {"slug": make_slug(text)}))


def test_name_fits_the_pattern_that_made_it():
    pattern = "{cycle}-{phase}.{generation}_{date}T{time}-{session}.json"
    values = {
        "cycle": "check",
        "phase": "look",
        "generation": 2,
        "date": "2026-01-31",
        "time": "235959",
        "session": "a1",
    }
    name = build_name(pattern, values)
    assert name == "check-look.2_2026-01-31T235959-a1.json"
    assert fits_pattern(pattern, name)
    assert not fits_pattern(pattern, name.replace("2026", "26"))


@pytest.mark.parametrize(
    ("values", "why"), [({}, "needs a value for {slug}"), ({"slug": "../x"}, "cannot stand for {slug}")]
)
def test_name_without_a_value_that_fits_is_refused(values, why):
    with pytest.raises(ValueError, match=why.replace("{", "[{]")):
        build_name("{slug}.md", values)


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", PRODUCED)
@pytest.mark.parametrize("ending", ["md", "json"])
def test_file_of_each_shipped_schema_fits_what_made_it(schema, ending):
    artifact = attrs.evolve(ARTIFACT, schema=schema, pattern=f"{{date}}-{{slug}}.{ending}", template="Written.")
    raw = render(artifact, PRODUCED[schema])
    path = f"docs/lessons/2026-01-31-a.{ending}"
    assert list(check_file(artifact, SCHEMAS.document(schema), path, raw)) == []


@given(st.text(min_size=1, max_size=50).filter(lambda text: "\r" not in text), st.sampled_from(["md", "json"]))
def test_any_text_survives_in_a_file(text, ending):
    artifact = attrs.evolve(ARTIFACT, pattern=f"{{slug}}.{ending}", template="Written.")
    text = text.encode("utf-8", "ignore").decode()
    raw = render(artifact, {**LESSON, "title": "t", "lesson": f"x{text}"})
    schema = {"type": "object", "properties": {"lesson": {"const": f"x{text}"}}}
    assert list(check_file(artifact, schema, f"docs/lessons/a.{ending}", raw)) == []


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("lessons/2026-01-31-a.md", "PATH_REFUSED"),
        ("docs/lessons/../2026-01-31-a.md", "PATH_REFUSED"),
        ("docs/lessons/deep/2026-01-31-a.md", "PATH_REFUSED"),
        ("docs/lessons/lesson.md", "SOURCE_INVALID"),
        ("docs/lessons/2026-01-31-A.md", "SOURCE_INVALID"),
    ],
)
def test_file_in_another_place_is_refused(path, code):
    assert [found for found, _ in faults(path)] == [code]


@pytest.mark.parametrize(
    ("raw", "code", "place"),
    [
        (b"---\nschema_version: v1\ntitle: A\n---\n", "SCHEMA_VIOLATION", f"{GOOD}:1:1"),
        (b"---\nschema_version: v1\ntitle: A\nlesson: 5\n---\n", "SCHEMA_VIOLATION", f"{GOOD}:4:9"),
        (b"# A\n", "SCHEMA_VIOLATION", f"{GOOD}:1:1"),
        (b"---\na: &x 1\n---\n", "SOURCE_INVALID", f"{GOOD}:2:4"),
        (b"\xff", "SOURCE_INVALID", f"{GOOD}:1:1"),
    ],
)
def test_file_that_does_not_hold_a_value_of_its_schema_is_refused(raw, code, place):
    assert faults(raw=raw)[0] == (code, place)


def test_json_file_is_checked_too():
    path, raw = "docs/lessons/a.json", json.dumps({**LESSON, "titel": "A"}).encode()
    assert faults(path, raw, pattern="{slug}.json") == [("SCHEMA_VIOLATION", f"{path}: /titel")]
    assert faults(path, b'{"a": NaN}', pattern="{slug}.json")[0][0] == "INTAKE_REFUSED"


# --- templates --------------------------------------------------------------------------------------------------------


def test_template_may_loop_and_choose():
    template = (
        "{% for each in evidence %}\n- {{ each|upper }}\n{% endfor %}\n{% if context %}{{ context }}{% endif %}\n"
    )
    assert list(find_template_flaws(template)) == []
    artifact = attrs.evolve(ARTIFACT, template=template)
    assert render(artifact, {**LESSON, "evidence": ["a", "b"], "context": "C"}).endswith(b"---\n- A\n- B\nC\n")


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("{{ title", 1), ("a\n{% set x = 1 %}", 2), ("{% include 'x' %}", 1), ("{{ ''.__class__.mro() }}", 1),
        ("{{ x|attr('y') }}", 1), ("{% macro a() %}{% endmacro %}", 1), ("{{ 9 ** 9 ** 9 }}", 1), ("{{ [0] * 9 }}", 1),
        ("{% for a in b %}{% for c in d %}{% for e in f %}{% endfor %}{% endfor %}{% endfor %}", 1),
    ],
)  # fmt: skip
def test_template_that_does_more_is_refused(template, line):
    assert line in [at for _, at in find_template_flaws(template)]
