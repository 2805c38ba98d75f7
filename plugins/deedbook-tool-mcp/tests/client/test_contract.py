"""The tool keeps the contract that third parties keep, over a real server."""

import sys

import pytest

from deedbook_testing import Example, ToolContract

from ..conftest import ROGUE, tool


class TestMcp(ToolContract):
    name = "mcp"
    bad_settings = ({}, {"server": "x", "command": []}, {"server": "x", "command": ["a"], "url": "http://x"})
    ability = {"effects": "write", "schema_in": {"type": "object"}}
    examples = (Example({"text": "x"}),)
    rooms = (
        "deedbook.cli", "deedbook.contract.features", "deedbook.format", "deedbook.plugins", "deedbook.policy",
        "deedbook.programs", "deedbook.workspace",
    )  # fmt: skip
    """The distribution also holds the commands and the feature of servers, which stand on the kernel's rooms."""

    @pytest.fixture(autouse=True)
    def here(self, rogue):
        rogue.lists(tool("say"))
        command = [sys.executable, str(ROGUE), str(rogue.plan)]
        self.settings = {"server": "rogue", "command": command, "tool": "say", "pinned": tool("say")}

    def test_ability_without_effects_is_refused_since_no_word_of_a_server_is_taken(self, lab):
        entry = {"summary": "x", "handler": {"tool": "mcp"}, "with": self.settings}
        lab.settings(abilities={"x": entry})
        with pytest.raises(Exception, match="say what a call of it does"):
            lab.kernel()
