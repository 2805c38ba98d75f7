"""The effects that `deedbook abilities` lists: those that policies see, as long as the kept charter is current."""

import json
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


# --- one of them ------------------------------------------------------------------------------------------------------


def shown(place: Place, name: str) -> dict[str, str]:
    rows = (
        re.split(" {2,}", line, maxsplit=1) for line in place.here("abilities", "show", name, status=0).out.splitlines()
    )
    return {row[0]: row[1] for row in rows}


def test_show_says_what_an_ability_is_takes_and_gives_and_who_guards_it(place: Place):
    told = shown(place, "file-write")
    assert told["summary"] == next(
        each["summary"] for each in place.here("abilities", "--json").json["abilities"] if each["id"] == "file-write"
    )
    assert told["handler"].startswith("tool file-write (deedbook-tool-standard ")
    assert told["effects"] == "write"
    assert told["place"].startswith(".system/registry/low-level/file-write.yaml")
    assert told["policies"] == "baseline"
    assert "deny-dangerous-tools" in told["hooks"].split(" ")
    assert json.loads(told["takes"])["properties"]["path"]
    assert json.loads(told["gives"])


def test_show_as_json_fits_its_schema_and_has_the_time_limit_and_what_yaml_asks_for(place: Place):
    place.system(
        "registry/low-level/short.yaml",
        """\
        schema_version: v1
        id: short
        summary: Echo short texts.
        handler: {tool: echo}
        timeout_ms: 250
        schema_in:
          type: object
          required: [text]
          properties: {text: {type: string, maxLength: 9}}
          additionalProperties: false
        """,
    )
    row = place.here("abilities", "show", "short", "--json", status=0).fits("output_ability_v1")["ability"]
    assert (row["timeout_ms"], row["handler"], row["kind"]) == (250, {"tool": "echo"}, "tool")
    assert row["schema_in"]["properties"]["text"]["maxLength"] == 9
    assert "maxLength" not in row["takes"]["properties"]["text"]
    told = shown(place, "short")
    assert told["time limit"] == "250 ms"
    assert json.loads(told["schema_in"]) == row["schema_in"]


def test_show_of_a_model_fits_the_schema_too(place: Place):
    row = place.here("abilities", "show", "model/standard", "--json", status=0).fits("output_ability_v1")["ability"]
    assert (row["kind"], list(row["handler"])) == ("model", ["provider"])


def test_show_suggests_the_ability_or_the_command_that_was_meant(place: Place):
    assert "there is no ability 'ecko'; did you mean \"echo\"?" in place.here("abilities", "show", "ecko", status=2).err
    assert 'did you mean "show"?' in place.here("abilities", "shwo", status=2).err


def test_the_names_that_show_takes_are_completed(place: Place):
    asking = {"_DEEDBOOK_COMPLETE": "bash_complete", "COMP_WORDS": "deedbook abilities show file-w", "COMP_CWORD": "3"}
    assert place.run(**asking).out.split() == ["plain,file-write"]
