"""`deedbook swe compose`: the services of a pipeline as a Compose file."""

import click

from deedbook.cli.common import GlobalOptions, profile_option
from deedbook.cli.output import say

from .lookup import find_definition, find_workspace


@click.command("compose", short_help="Print a Compose file for a pipeline.")
@click.option("--pipeline", metavar="ID", help="The pipeline, if there are several.")
@profile_option
@click.pass_obj
def compose(options: GlobalOptions, pipeline: str | None, profile: str | None) -> int:
    """Print a Compose file with a service for the runner, for each agent, and for the executor.

    Only the runner has the workspace, the secrets and a network.
    """
    from deedbook_flow_swe.services.compose import Layout, build_compose
    from deedbook_flow_swe.yaml_text import render_yaml

    workspace = find_workspace(options, profile)
    definition = find_definition(workspace, pipeline)
    layout = Layout(
        agents=list(dict.fromkeys(each.agent for each in definition.phases)),
        data=definition.data,
        variables=workspace.secrets.values(),
    )
    say(render_yaml(build_compose(layout)).rstrip())
    return 0
