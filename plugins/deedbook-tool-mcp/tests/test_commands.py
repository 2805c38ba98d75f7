"""What the distribution adds to the command line."""

from deedbook.cli.mcp import BROUGHT, PLUGIN
from deedbook.plugins import command as found
from deedbook_tool_mcp.commands import PLACES, command


def test_the_kernel_finds_it_under_the_name_that_it_expects():
    assert found("mcp", PLUGIN) is command


def test_it_brings_what_the_kernels_help_promises():
    assert set(PLACES) == set(BROUGHT)
    for name in PLACES:
        assert command.get_command(None, name).name == name
