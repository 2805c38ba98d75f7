"""Print the report of the conformance kit; a folder as argument keeps the workspace with its ledgers."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from deedbook_adapter_agent_hooks import check_sdk

from .report import render, run_kit


def main(args: list[str]) -> int:
    """Run the kit; return 0 if nothing failed, 1 if something did, 2 for a folder that cannot be used."""
    check_sdk()
    if args and Path(args[0]).exists():
        sys.stderr.write(f"{args[0]} exists; give the name of a new folder\n")
        return 2
    with TemporaryDirectory() as scratch:
        report = run_kit(Path(args[0]) if args else Path(scratch))
    sys.stdout.write(render(report) + report.unsound)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
