"""Workflow files for tests, written into a lab."""

import json


def document(front, body=""):
    """Return a Markdown file with *front* as its front matter; JSON is also YAML."""
    lines = "".join(f"{key}: {json.dumps(value)}\n" for key, value in front.items())
    return f"---\n{lines}---\n{body}\n"


def write_cycle(lab, *phases, name="check", **cycle):
    """Write a cycle with *phases*, which are phases' front matters; the first one is the entry phase."""
    ids = [phase["id"] for phase in phases]
    front = {"schema_version": "v1", "id": name, "phases": ids, "entry_phase": ids[0], **cycle}
    lab.write(f"workflows/cycles/{name}.md", document(front))
    for phase in phases:
        made = {"schema_version": "v1", "advance_signal": "true", "flow": "examine", **phase}
        lab.write(f"workflows/phases/{phase['id']}.md", document(made, phase["id"]))


def write_persona(lab, name, *allowed, writes=None):
    """Write the persona *name* (ROLE/ID), which may use *allowed*, and says that it *writes* these globs."""
    front = {"name": name.rpartition("/")[2], "description": f"Is {name}.", "allowed-tools": list(allowed)}
    if writes is not None:
        front["metadata"] = {"deedbook": {"writes": writes}}
    lab.write(f"workflows/personas/{name}.md", document({"schema_version": "v1", **front}, name))


def write_policy(lab, name, kind, *rules, **more):
    """Write a policy with *rules*."""
    front = {"schema_version": "v1", "id": name, "title": name, "kind": kind, "rules": list(rules), **more}
    lab.write(f"workflows/policies/{name}.md", document(front))


def finding(**more):
    """Return a finding with a place."""
    return {
        "id": "f1", "reviewer": "tool", "severity": "P1", "autofix_class": "manual", "confidence": 50,
        "title": "Open door", "file": "a.py", "line": 3, "schema_version": "v1", **more,
    }  # fmt: skip
