"""Commands that distributions add to ``deedbook``: found and described without importing them, loaded when called."""

import pytest
from commandline import Place

HELLO = '''
    """Say hello to a place.

    More than one line does not disturb the help.
    """

    import click
    from pathlib import Path

    SECTION = "Greetings"
    Path("imported").touch()


    @click.command("hello")
    @click.argument("name")
    @click.pass_obj
    def Plugin(asked, name):
        """Say hello."""
        click.echo(f"hello {name} from {asked.workspace}")
'''


@pytest.fixture
def hello(place: Place) -> Place:
    """Give a workspace beside which a distribution offers ``deedbook hello``."""
    place.offer("commands", "hello", HELLO)
    return place


def test_command_of_a_third_party_runs_with_its_arguments_and_the_workspace(hello: Place):
    assert hello.run("-C", ".", "hello", "Ada", status=0).out == "hello Ada from .\n"


def test_help_lists_it_in_its_section_without_importing_it(hello: Place):
    out = hello.run("--help", status=0).out
    assert "\nGreetings:\n  hello       Say hello to a place.\n" in out
    assert not (hello.path / "imported").exists()


def test_empty_name_is_refused_for_it_as_for_the_kernels_own(hello: Place):
    ran = hello.run("hello", "", status=2)
    assert "it is empty" in ran.err


def test_name_of_the_kernels_own_wins(place: Place):
    place.offer("commands", "call", HELLO)
    assert "the door" in place.run("call", "--help", status=0).out


def test_name_that_two_distributions_offer_is_refused_with_both(hello: Place):
    hello.offer("commands", "hello", HELLO, distribution="other")
    ran = hello.run("hello", "Ada", status=1)
    assert ran.err == (
        "error: deedbook hello is offered by offered-hello and other-hello; uninstall all but one [PLUGIN_BROKEN]\n"
    )
    assert "uninstall all but one" in hello.run("--help", status=0).out


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ('"""Break."""\nraise SystemExit(7)\n', "SystemExit: 7"),
        ('"""Break."""\nPlugin = 5\n', "is no click command"),
    ],
)
def test_command_that_does_not_load_is_one_line_and_hurts_no_other(place: Place, source: str, why: str):
    place.offer("commands", "broken", source)
    ran = place.run("broken", status=1)
    assert why in ran.err
    assert ran.err.startswith("error: ")
    assert len(ran.err.splitlines()) == 1
    assert place.run("abilities", status=0)


def test_subcommand_is_added_to_an_open_group(place: Place):
    place.offer("commands", "ledger.hello", HELLO)
    assert "hello" in place.run("ledger", "--help", status=0).out
    assert place.run("ledger", "hello", "Ada", status=0).out == "hello Ada from .\n"
