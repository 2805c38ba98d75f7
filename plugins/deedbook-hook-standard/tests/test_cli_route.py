"""`deedbook route`: where a prompt would lead, as a person sees it, and nothing is recorded."""

from shutil import rmtree

import pytest
from commandline import starter


@pytest.fixture
def shop(tmp_path):
    """Give a workspace with two abilities, a client for one of them, and a document."""
    place = starter(tmp_path / "workspace")
    rmtree(place.path / ".system")
    place.system(
        "deedbook.yaml",
        """\
        schema_version: v1
        abilities:
          echo: {summary: Echo a text back., handler: {tool: echo}, routing_hints: {intents: [repeat]}}
          file-read: {summary: Read a text file., handler: {tool: file-read}}
        agents: {parrot: {expose: {abilities: [echo]}}}
        """,
    )
    place.system("ROUTING.md", "# Reports\n\nThey are in [reports](../reports/README.md).\n")
    return place


def test_route_shows_abilities_and_knowledge_with_reasons(shop):
    ran = shop.here("route", "repeat the reports", status=0)
    kinds = [line.split()[:3] for line in ran.out.splitlines()]
    assert kinds == [["ability", "echo", "trigger"], ["knowledge", ".system/ROUTING.md#reports", "trigger"]]
    assert 'the prompt says "repeat"' in ran.out
    assert not (shop.path / ".deedbook").exists()


def test_route_as_json_fits_its_schema(shop):
    found = shop.here("route", "repeat the reports", "--json", status=0).fits("output_route_v1")
    (reports,) = found["knowledge"]
    assert (reports["links"], reports["words"]) == (["reports/README.md"], 1)
    assert shop.here("route", "xyzzy", "--json", status=0).fits("output_route_v1")["abilities"] == []


def test_route_for_a_client_shows_what_is_exposed_to_it(shop):
    ran = shop.here("route", "--client", "parrot", "file-read: repeat", "--json", status=0)
    assert [each["id"] for each in ran.json["abilities"]] == ["echo"]


def test_route_says_when_nothing_fits_and_how_to_change_that(shop):
    assert shop.here("route", "xyzzy", status=0).out.startswith("nothing matches; describe prompts in routing_hints")


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (["route"], 2, "Missing argument"),
        (["route", "x", "-n", "0"], 2, "0 is not in the range"),
        (["route", "x", "--client", "parot"], 2, 'did you mean "parrot"'),
    ],
)
def test_route_called_wrongly_says_what_is_wrong(shop, words, status, why):
    assert why in shop.here(*words, status=status).err


def test_document_with_a_hidden_character_is_refused_and_not_printed(shop):
    shop.system("ROUTING.md", "# Reports\n\nTriggers: re\u202eports\n\ntext\n")
    ran = shop.here("route", "re\u202eports", status=1)
    assert "ROUTING.md:3:13: the character U+202E" in ran.err
    assert "\u202e" not in ran.out + ran.err
