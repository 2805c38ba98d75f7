"""``deedbook ledger``: commands on ledgers themselves; distributions add them."""

import click

from .common import OpenGroup


@click.group("ledger", cls=OpenGroup)
def command() -> None:
    """Sign, import, correct and erase: what is done with ledgers themselves."""
