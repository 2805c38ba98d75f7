"""The tool `linter-findings`: reports of linters as findings, and what was there before a change."""

import json

import pytest

from deedbook import Failed
from deedbook.format.schema import Schemas, data_folder
from deedbook_testing import Example, ToolContract
from deedbook_tool_standard.diffs import read_added_lines
from deedbook_tool_standard.linter_findings import LinterFindings

RUFF = {
    "reviewer": "ruff",
    "file": "/filename",
    "title": "/message",
    "rule": "/code",
    "line": "/location/row",
    "end_line": "/end_location/row",
    "column": "/location/column",
    "severity": {"at": "/code", "values": {"F*": "P2", "F82*": "P1"}, "default": "P3"},
    "autofix_class": {"at": "/fix/applicability", "values": {"safe": "safe_auto"}, "default": "manual"},
    "confidence": 75,
}
ITEM = {
    "code": "F401", "filename": "/w/src/a.py", "message": "`os` imported but unused",
    "location": {"row": 3, "column": 8}, "end_location": {"row": 3, "column": 10}, "fix": {"applicability": "safe"},
}  # fmt: skip
DIFF = """diff --git a/src/a.py b/src/a.py
--- a/src/a.py
+++ b/src/a.py
@@ -1,2 +1,3 @@
 one
--- old
+++ b/other.py
+import os
@@ -9 +10,0 @@ def f():
-gone
diff --git a/new.py b/new.py
--- /dev/null
+++ b/new.py
@@ -0,0 +1 @@
+x
\\ No newline at end of file
diff --git a/old.py b/old.py
--- a/old.py
+++ /dev/null
@@ -1 +0,0 @@
-x
"""


class TestTool(ToolContract):
    name = "linter-findings"
    settings = RUFF
    bad_settings = ({**RUFF, "file": "filename"}, {**RUFF, "severity": "high"})
    examples = (
        Example({"report": []}, gives={"findings": []}),
        Example({"report": [ITEM], "root": "/w"}, holds=lambda result: result["findings"][0]["file"] == "src/a.py"),
        Example({"report": {}}, fails="SCHEMA_VIOLATION"),
    )


def read(*items, settings=RUFF, **args):
    made = LinterFindings(settings, None)({"report": list(items), "root": "/w", **args}, None)
    assert Schemas.load(data_folder("schemas")).validator("findings_v1").valid(made)
    return made["findings"]


def test_item_becomes_a_finding_with_its_place_and_class():
    [found] = read(ITEM)
    assert found.pop("evidence")[0].startswith("sha256:")
    assert found == {
        "schema_version": "v1", "id": "ruff-1", "reviewer": "ruff", "severity": "P2", "autofix_class": "safe_auto",
        "confidence": 75, "title": "`os` imported but unused", "file": "src/a.py", "rule": "F401", "line": 3,
        "column": 8,
    }  # fmt: skip


def test_longest_glob_decides_and_the_default_is_for_what_has_no_word():
    assert [each["severity"] for each in read({**ITEM, "code": "F821"}, {**ITEM, "code": None})] == ["P1", "P3"]
    assert "rule" not in read({**ITEM, "code": None})[0]


def test_same_item_has_the_same_evidence_in_every_report():
    assert read(ITEM)[0]["evidence"] == read({**ITEM, "code": "F821"}, ITEM)[1]["evidence"]


def test_long_message_is_kept_whole_in_the_detail():
    [found] = read({**ITEM, "message": f"{'a' * 600}\nmore"})
    assert (len(found["title"]), found["detail"]) == (500, f"{'a' * 600}\nmore")


def test_finding_outside_the_added_lines_was_there_before():
    other = {**ITEM, "filename": "other.py"}
    spans = {**ITEM, "location": {"row": 1}, "end_location": {"row": 2}}
    found = read(ITEM, {**ITEM, "location": {"row": 9}, "end_location": None}, other, spans, diff=DIFF)
    assert [each.get("pre_existing", False) for each in found] == [False, True, True, False]


def test_finding_without_a_line_is_of_the_change_if_its_file_has_added_lines():
    found = read({**ITEM, "location": {}}, {**ITEM, "location": {}, "filename": "old.py"}, diff=DIFF)
    assert [each.get("pre_existing", False) for each in found] == [False, True]


def test_added_lines_are_read_from_hunks_and_not_from_what_they_hold():
    assert read_added_lines(DIFF) == {"src/a.py": {2, 3}, "new.py": {1}}
    assert read_added_lines("") == {}


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ({"report": {"results": []}}, "SCHEMA_VIOLATION", "the report has no list at its root"),
        ({"report": [1]}, "SCHEMA_VIOLATION", "item 1 of the report of ruff: expected a text at /message, its title"),
        ({"report": [{**ITEM, "filename": " "}]}, "SCHEMA_VIOLATION", "expected a text at /filename, its file"),
        ({"report": [{**ITEM, "message": "x\n" * 20_000}]}, "SCHEMA_VIOLATION", "more than 20000 characters"),
        ({"report": [ITEM], "root": "/v"}, "PATH_REFUSED", "/w/src/a.py does not lie in /v"),
        ({"report": [{**ITEM, "filename": "../a.py"}]}, "PATH_REFUSED", "leads outside"),
        ({"report": [{}] * 10_001}, "TOO_MANY", "at most 10000"),
        ({"report": [], "diff": "+++ b/a\n@@ -1 +1,2 @@\n+x"}, "ARGUMENT_REFUSED", "ends within the hunk"),
        ({"report": [], "diff": '+++ "b/a\\"b"'}, "ARGUMENT_REFUSED", "cannot be compared"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isupper() else "",
)
def test_report_that_cannot_be_read_is_refused(args, code, message):
    with pytest.raises(Failed) as problem:
        LinterFindings(RUFF, None)(args, None)
    assert (problem.value.code, message in str(problem.value)) == (code, True), str(problem.value)


def test_absolute_path_needs_the_folder_that_it_lies_in():
    with pytest.raises(Failed, match="give its folder as root"):
        LinterFindings(RUFF, None)({"report": [ITEM]}, None)


def test_list_inside_a_report_is_found_by_its_pointer():
    settings = {**RUFF, "items": "/results"}
    made = LinterFindings(settings, None)({"report": {"results": [ITEM]}, "root": "/w"}, None)
    assert len(made["findings"]) == 1
    assert json.dumps(made)
