"""Whether the ledgers of a workspace are sound, for tests."""

from pathlib import Path

from click.testing import CliRunner

from deedbook.cli.common import GlobalOptions
from deedbook.cli.program import program


def assert_sound(place: Path) -> None:
    """Run ``deedbook verify`` in this process; raise `AssertionError` with what it says unless all ledgers are sound.

    The command returns its status, which click would not make the exit code of the runner.
    """
    ran = CliRunner().invoke(program, ["-C", str(place), "verify"], obj=GlobalOptions(), standalone_mode=False)
    assert ran.exception is None, repr(ran.exception)
    assert ran.return_value == 0, ran.output
