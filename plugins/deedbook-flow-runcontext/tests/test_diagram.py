"""Diagrams: hostile names stay inside their labels, gates and risks are visible."""

import re

from hypothesis import given
from hypothesis import strategies as st
from planning import plan

from deedbook_flow_runcontext.diagram import draw_mermaid, escape_label

LINE = re.compile(
    r'flowchart TD|  classDef risky stroke-width:3px|  subgraph g[0-9]+\["group [0-9]+"\]|  end'
    r'|    s[0-9]+(\["[^"\]\[{}]*"\]|\{\{"[^"\]\[{}]*"\}\})(:::risky)?|  s[0-9]+ -(-|\.-)> s[0-9]+'
    r'|  %% excluded: [^"\[\]{}]*'
)


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=5, unique=True), st.text(max_size=30))
def test_every_line_has_the_form_of_the_grammar_whatever_the_names(names, reason):
    steps = [{"id": name, "description": "", "depends_on": names[:at]} for at, name in enumerate(names)]
    excluded = [{"name": reason or "x", "reason": reason, "missing_tools": []}]
    made = {"steps": steps, "risks": [], "needs_advisor": False, "skills_excluded": excluded, "schema_version": "v2"}
    assert all(LINE.fullmatch(line) for line in draw_mermaid(made).split("\n"))


def test_gates_risks_and_optional_steps_are_drawn_apart():
    made = plan(
        {"id": "gate", "halt_on_failure": True},
        {"id": "act", "tags": ["destructive"], "depends_on": ["gate"]},
        {"id": "look", "optional": True},
        {"id": "tell", "depends_on": ["look"]},
    )
    text = draw_mermaid(made)
    assert 's0{{"gate"}}' in text
    assert 's1["act<br/>destructive"]:::risky' in text
    assert "  s2 -.-> s3" in text


def test_escape_keeps_one_line_and_no_markup():
    assert escape_label('a"b\n<i>\x1b') == "a#34;b #60;i#62;#27;"
