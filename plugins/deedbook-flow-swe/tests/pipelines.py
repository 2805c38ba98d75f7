"""Pipelines for tests: workspaces to copy, and edits of their files."""

from pathlib import Path
from shutil import copytree

from deedbook.workspace.workspace import survey_workspace

WORKSPACES = Path(__file__).parent / "workspaces"
META = """\
schema_version: v1
id: task-1
title: Retry calls that were limited
request: Calls that get the status 429 are tried again.
project: shop
priority: normal
tags: [http, python]
pipeline: small
generated: false
status: OUTLINE
created: "2026-01-31T09:00:00Z"
submitted_by: local
source: command
digest: "0000000000000000000000000000000000000000000000000000000000000000"
"""
"""The META.yaml of a task of the pipeline `small`."""
SPEC = "---\nschema_version: v1\nintent: Calls are tried again.\nopen_questions: []\n---\nOnly status 429 counts.\n"
"""A spec.md that meets the contract `outline`."""
WORK = """\
---
schema_version: v1
units:
  - {id: unit-001, type: library, size: small, criteria: [AC-001], tests: [tests/test_retry.py]}
  - {id: unit-002, type: auth, size: small, criteria: [AC-002], tests: [tests/test_auth.py]}
---
Two units.
"""
"""A work.md that meets the contract `outline`."""
PATCH = """\
diff --git a/shop.py b/shop.py
--- a/shop.py
+++ b/shop.py
@@ -1 +1 @@
-LIMIT = 1
+LIMIT = 2
"""
"""A patch.diff that meets the contract `build`."""
NOTE = "---\nschema_version: v1\nunit: unit-001\n---\nNothing was assumed.\n"
"""A note.md that meets the contract `build`."""
REPORT = "---\nschema_version: v1\nfindings: []\n---\nNothing found.\n"
"""A report.md that meets the contract `check`."""


def copy_workspace(name, folder):
    """Copy a workspace of this folder to *folder*, and return that."""
    return Path(copytree(WORKSPACES / name, folder))


def write_pipeline(lab, name="small"):
    """Write the pipeline and the agents of a workspace of this folder into a lab, without its abilities."""
    for part in ("swe", "agents"):
        copytree(WORKSPACES / name / ".system" / part, lab.path / ".system" / part, dirs_exist_ok=True)


def replace_text(root, path, old, new):
    """Replace the first *old* in a file below *root*, which has it."""
    text = (root / path).read_text()
    assert old in text, f"{path} has no {old!r}"
    (root / path).write_text(text.replace(old, new, 1))


def registry_of(root):
    """Return the registry of the workspace at *root*, and its faults as ``(place, message)``."""
    workspace, faults = survey_workspace(root)
    found = None if workspace is None else workspace.sections.get("swe")
    return found, [(str(fault.place), fault.message) for fault in faults]


def definition_of(root):
    """Return the definition of the only pipeline of the workspace at *root*, which has no fault."""
    registry, faults = registry_of(root)
    assert faults == []
    (definition,) = registry.definitions.values()
    return definition
