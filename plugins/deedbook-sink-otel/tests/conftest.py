"""What the tests share: a collector, and the command in this process."""

import io
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import attrs
import pytest

from deedbook.cli import program as cli

sys.path.insert(0, str(Path(__file__).parent))

from otel_collector import Collector


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@attrs.frozen
class Ran:
    """What the command came to."""

    status: int
    out: str
    err: str


@pytest.fixture
def otel(lab: Any, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give the command ``deedbook otel``, in this process."""

    def run(*args: str, status: int = 0, endpoint: str = "") -> Ran:
        given = [*args, "--endpoint", endpoint or collector.url, "--timeout", "0.9"]
        monkeypatch.setattr(sys, "argv", ["deedbook", "-C", str(lab.path), "otel", *given])
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
            ended = cli._status(cli.GlobalOptions())
        ran = Ran(ended, out.getvalue(), err.getvalue())
        assert ran.status == status, ran
        return ran

    return run
