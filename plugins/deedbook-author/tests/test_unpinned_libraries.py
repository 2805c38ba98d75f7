"""`deedbook lock` says which libraries it does not pin."""

import json

import pytest
from commandline import Place


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path / "workspace")
    abilities = {"echo": {"summary": "Echo.", "handler": {"tool": "echo"}}}
    made.system("deedbook.yaml", json.dumps({"schema_version": "v1", "lock": "required", "abilities": abilities}))
    return made


def test_lock_names_the_libraries_that_it_does_not_pin(place):
    told = next(
        line for line in place.here("lock", status=0).err.splitlines() if line.startswith("not pinned are Python")
    )
    assert " attrs 2" in told
    assert " httpx " in told  # deedbook-operate needs it
    assert "deedbook-tool-standard" not in told
    assert " pytest " not in told
