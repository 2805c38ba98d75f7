"""What ``deedbook doctor`` says about the sandbox."""

import attrs
import pytest

from deedbook.workspace.workspace import read_workspace
from deedbook_tool_sandbox.bubblewrap import Bubblewrap
from deedbook_tool_sandbox.doctor import _limits, check_sandbox
from deedbook_tool_sandbox.feature import SandboxCheck

LIMITS = {
    "cpus": "cgroup", "files": "landlock 7", "memory": "cgroup", "network": "namespace", "processes": "cgroup",
    "root": "read-only", "user": "65534",
}  # fmt: skip


def test_version_and_limits_are_those_of_a_real_sandbox(call):
    version, limits, *notes = check_sandbox(needed=False)
    assert version.found.startswith("bubblewrap 0.")
    assert limits.level == "ok"
    real = call("pass")["limits"]
    assert limits.found == "in force: " + ", ".join(f"{name} ({how})" for name, how in sorted(real.items()))
    assert all(note.level == "note" for note in notes)


def test_weaker_limits_are_notes():
    assert [check.level for check in _limits(LIMITS)] == ["ok"]
    weaker = list(_limits({**LIMITS, "memory": "polled", "cpus": "affinity", "files": "mounts"}))
    assert [check.level for check in weaker] == ["ok", "note", "note"]
    assert "no control group limits cpus, memory" in weaker[1].found
    assert "Landlock is absent" in weaker[2].found


@pytest.mark.parametrize(("needed", "level"), [(False, "note"), (True, "fault")])
def test_missing_bubblewrap_is_a_fault_only_where_it_is_needed(monkeypatch, needed, level):
    monkeypatch.setattr("deedbook_tool_sandbox.bubblewrap.which", lambda *_, **__: None)
    monkeypatch.setattr("deedbook_tool_sandbox.bubblewrap.find_spec", lambda _: None)
    (check,) = check_sandbox(needed=needed)
    assert check.level == level
    assert "bubblewrap is not installed" in check.found
    assert "pip install 'deedbook-tool-sandbox[bwrap]'" in check.fix


def test_sandbox_that_cannot_be_made_is_named_with_the_reason(monkeypatch):
    broken = attrs.evolve(Bubblewrap.find(None), program="/bin/false")
    monkeypatch.setattr(Bubblewrap, "find", lambda *_, **__: broken)
    *_, check = check_sandbox(needed=True)
    assert check.level == "fault"
    assert check.found.startswith("no sandbox can be made: ")
    assert "namespaces" in check.fix


def test_feature_asks_whether_the_workspace_needs_it(monkeypatch, lab, declare):
    asked = []
    monkeypatch.setattr("deedbook_tool_sandbox.doctor.check_sandbox", lambda *, needed: asked.append(needed) or ())
    lab.write("deedbook.yaml", "schema_version: v1\n")
    list(SandboxCheck().examine(read_workspace(lab.path)))
    declare()
    list(SandboxCheck().examine(read_workspace(lab.path)))
    assert asked == [False, True]
