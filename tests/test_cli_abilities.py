"""The effects that `deedbook abilities` lists: those that policies see, as long as the kept charter is current."""

import re

from commandline import Place


def test_abilities_have_the_effects_of_the_charter_as_long_as_it_is_current(place: Place):
    def effects() -> dict[str, str]:
        rows = (re.split(" {2,}", line) for line in place.here("abilities", status=0).out.splitlines())
        return {row[0]: row[2] for row in rows}

    assert effects()["model/standard"] == "as declared", "nobody has asked the plugin yet"
    place.here("run", "hello", status=0)
    known = effects()
    assert (known["echo"], known["file-read"], known["file-write"]) == ("none", "read", "write")
    assert "as declared" not in known.values()
    charters = (place.path / ".deedbook/charters").glob("*/charter.json")
    for charter in charters:
        charter.write_bytes(charter.read_bytes() + b" ")
    assert effects()["model/standard"] == "as declared", "a charter that somebody changed says nothing"


def test_abilities_of_a_changed_workspace_are_as_declared_again(place: Place):
    place.here("run", "hello", status=0)
    place.configure("lock: auto", "lock: auto  # a word")
    assert "as declared" in place.here("abilities", status=0).out
