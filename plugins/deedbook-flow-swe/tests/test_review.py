"""What the policy about reviews is asked: findings, what the task touches, and whether its patterns were reviewed."""

from types import SimpleNamespace

from deedbook_flow_swe.contract import Output
from deedbook_flow_swe.running.review import find_classes, find_reviewed

MODEL = "---\nschema_version: v1\nintegration_patterns: [{}]\n---\n"


def test_patterns_of_cleared_tasks_are_reviewed():
    texts = {
        "tasks/a/security/threat-model.md": MODEL.format("cursor-pagination, webhook"),
        "tasks/a/security/CLEARED.md": "---\ngate: CLEARED.md\n---\n",
        "tasks/b/security/threat-model.md": MODEL.format("queue"),
        "tasks/b/security/BLOCKED.md": "---\ngate: BLOCKED.md\n---\n",
        "tasks/c/security/threat-model.md": "no front matter",
        "tasks/c/security/CLEARED.md": "---\ngate: CLEARED.md\n---\n",
    }
    assert find_reviewed(texts) == {"cursor-pagination", "webhook"}
    assert find_reviewed({}) == frozenset()


def test_class_of_findings_is_the_first_word_of_the_schema_of_their_output():
    outputs = (Output(name="a", path="a.json", schema="owasp_checklist_v1"), Output(name="b", path="b", schema="x_v1"))
    values = {"a": {"findings": [{"id": "S-001"}]}, "b": {"findings": []}}
    assert find_classes(SimpleNamespace(outputs=outputs), values) == {"owasp"}
    assert find_classes(SimpleNamespace(outputs=outputs), {"b": [{"findings": [1]}, {}]}) == {"x"}
