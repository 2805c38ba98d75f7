"""`deedbook swe agent`: the process of one agent, which the runner asks over an inbox."""

import signal
from pathlib import Path
from threading import Event

import click

from deedbook_flow_swe.services.inbox import INBOX


@click.command("agent", short_help="Run one agent as a process of its own.")
@click.argument("name")
@click.option("--inbox", type=click.Path(path_type=Path), default=Path(INBOX), show_default=True, help="All inboxes.")
def agent(name: str, inbox: Path) -> None:
    """Answer the requests to the agent NAME until the process is ended.

    The process has no ledger and no key. It sees what the runner sends, and the runner performs what it asks for.
    """
    from deedbook_flow_swe.services.worker import AgentWorker

    stopped = Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stopped.set())
    AgentWorker(name, inbox / name, lambda line: click.echo(line, err=True)).serve(stopped.is_set)
