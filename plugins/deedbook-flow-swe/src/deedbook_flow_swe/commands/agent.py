"""`deedbook swe agent`: the process of one agent, which the runner asks over an inbox."""

import signal
from pathlib import Path
from threading import Event

import click

from deedbook.format.errors import BindingError, fault
from deedbook_flow_swe.services.places import INBOX


@click.command("agent", short_help="Run one agent as a process of its own.")
@click.argument("name")
@click.option("--inbox", type=click.Path(), default=INBOX, show_default=True, help="The folder of all inboxes.")
def agent(name: str, inbox: str) -> None:
    """Answer the requests to the agent NAME until the process is ended.

    The process has no ledger and no key. It sees what the runner sends, and the runner performs what it asks for.
    """
    from deedbook_flow_swe.services.steps import AGENT_NAME
    from deedbook_flow_swe.services.worker import AgentWorker

    if not AGENT_NAME.fullmatch(name):
        raise BindingError(fault("USAGE", f"{name!r} is no name of an agent, such as planner-agent"))
    stopped = Event()
    click.echo(f"answers requests to {name} in {Path(inbox) / name}", err=True)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: stopped.set())
    AgentWorker(name, Path(inbox) / name, lambda line: click.echo(line, err=True)).serve(stopped.is_set)
