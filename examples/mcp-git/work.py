"""A stock MCP client at work on a git repository: the official SDK, and nothing of Deedbook."""

import sys

import anyio
from mcp import Client, StdioServerParameters

SERVER = StdioServerParameters(command="deedbook", args=["mcp", "serve", "--client", "desk", "--wait", "60"])
WORK = (
    ("git_status", {}),
    ("git_add", {"files": ["notes.txt"]}),
    ("git_reset", {}),
    ("git_commit", {"message": "Notes"}),
    ("git_log", {"max_count": 1}),
)


async def waits(_progress: float, _total: float | None, message: str | None) -> None:
    """Say what the server says while a call is under way."""
    say("...", message or "")


def say(name: str, text: str) -> None:
    """Print one line."""
    sys.stdout.write(f"{name:10}  {' '.join(text.split())}\n")


async def main() -> None:
    """Do the work, one call after the other."""
    async with Client(SERVER) as client:
        for name, args in WORK:
            tool = f"git__{name}"
            result = await client.call_tool(tool, {"repo_path": "repo", **args}, progress_callback=waits)
            say(name, " ".join(block.text for block in result.content))


anyio.run(main)
