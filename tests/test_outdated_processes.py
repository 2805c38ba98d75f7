"""A process keeps the rules of its start; what explains and checks says so, and says which charter runs where."""

import json

import pytest
from commandline import Place

from deedbook.format.files import Folder
from deedbook.kernel import open_kernel
from deedbook.maintenance.processes import read_processes

RULES = {"kind": "rules", "default": "allow", "rules": [{"match": {"abilities": ["echo"]}, "then": "deny"}]}
OPEN = {"schema_version": "v1", "abilities": {"echo": {"summary": "Echo.", "handler": {"tool": "echo"}}}}
PROFILES = {"profiles": {"local": {}, "other": {}}}


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path / "workspace")
    made.system("deedbook.yaml", json.dumps({**OPEN, **PROFILES}))
    return made


def charter_of(place):
    with Folder.at(place.path / ".deedbook") as state:
        return next(iter(read_processes(state).processes.values())).charter[:12]


def test_process_that_keeps_its_rules_after_an_edit_is_named(place):
    with open_kernel(place.path) as kernel, kernel.session() as session:
        assert "all is well" in place.here("doctor", status=0).out
        assert place.here("explain", "echo", "text=hi", status=0).err == ""
        place.system("deedbook.yaml", json.dumps({**OPEN, **PROFILES, "policies": {"never": RULES}}))
        old = kernel.active_charter.charter.digest[:12]
        explained = place.here("explain", "echo", "text=hi", status=3)
        assert f"decides by charter {old}; the files differ: they give " in explained.err
        assert "This answer is about the files" in explained.err
        examined = place.here("doctor", status=1)
        assert f"decides by charter {old}; the files differ: they give " in examined.out
        assert f"the last start decided by charter {old}; the files give " in examined.out
        assert "which the next start puts in force" in examined.out
        assert "all is well" not in examined.out
        assert place.here("call", "echo", "text=hi").status == 3  # a new process decides by the files
        examined = place.here("doctor", status=1)
        assert f"decides by charter {old}; the files differ" in examined.out
        assert "the next start" not in examined.out
        assert session.call("echo", {"text": "hi"}).value == {"text": "hi"}
        assert f", charter {old}\n" in place.here("processes", status=0).out
    assert place.here("explain", "echo", "text=hi", status=3).err == ""
    assert "all is well" in place.here("doctor", status=0).out


def test_process_under_another_profile_of_the_same_files_is_no_fault(place):
    with open_kernel(place.path, profile="other") as kernel, kernel.session():
        assert charter_of(place) == kernel.active_charter.charter.digest[:12]
        assert "all is well" in place.here("doctor", status=0).out
