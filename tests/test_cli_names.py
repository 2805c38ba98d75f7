"""What commands say of a ledger that is not of the kind they are for."""

import pytest
from commandline import Place


@pytest.fixture
def desk(tmp_path):
    """Give a workspace with one tool, and one session."""
    made = Place(tmp_path / "desk")
    made.write(
        ".system/deedbook.yaml",
        """
        schema_version: v1
        abilities: {echo: {summary: Echo., handler: {tool: echo}}}
        """,
    )
    made.here("call", "echo", "--args", '{"text": "x"}', status=0)
    return made


def test_workspace_ledger_is_not_forked_and_the_refusal_says_so(desk):
    for name in ("workspace", ".deedbook/workspace"):
        refused = desk.here("fork", name, "--at", "1", status=1)
        assert "the workspace ledger is not forked" in refused.err
        assert "[FORK_REFUSED]" in refused.err
