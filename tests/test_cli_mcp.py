"""``deedbook mcp``: the group itself; what its commands do is tested beside what does it."""

import re
import subprocess
import sys

from commandline import Place


def test_help_names_every_command_and_imports_nothing_heavy():
    told = "mcp.command(['--help'], standalone_mode=False); print(*sys.modules)"
    code = f"import sys; from deedbook_tool_mcp.commands import mcp; {told}"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^  serve +Show abilities", out, re.MULTILINE)
    assert not {"mcp.types", "mcp.client", "anyio", "asyncio", "starlette"} & set(out.split())


def test_unknown_command_is_told_with_what_was_meant(told: Place):
    ran = told.here("mcp", "serv", status=2)
    assert "there is no command 'serv'; did you mean \"serve\"?" in ran.err
