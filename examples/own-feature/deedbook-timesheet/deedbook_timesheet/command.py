"""Show how much time is booked on each project."""

from collections import Counter
from typing import Any

import click

from deedbook.format.reader import read
from deedbook_inspect.reading import Ledgers

from .feature import BOOKED

SECTION = "Record"


@click.command("timesheet")
@click.pass_obj
def command(asked: Any) -> None:
    """Show how much time is booked on each project, from the ledgers of all sessions."""
    minutes: Counter[str] = Counter()
    for ledger in Ledgers(asked.workspace).list_all():
        for event in read(ledger.place):
            if event.type == BOOKED:
                minutes[event.payload["project"]] += event.payload["minutes"]
    for project, total in sorted(minutes.items()):
        click.echo(f"{project}: {total // 60} h {total % 60:02} min")
