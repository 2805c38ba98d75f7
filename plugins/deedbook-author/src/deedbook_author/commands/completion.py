"""Print the completion script for bash, zsh or fish."""

from typing import Final

import click

from deedbook.cli.completing import VARIABLE
from deedbook.cli.output import data_command, message, say

SECTION: Final = "Begin"
SHELLS: Final = ("bash", "zsh", "fish")


@data_command
@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the completion script of SHELL: commands, options, abilities, sessions, profiles, principals."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    say(made(ctx.find_root().command, {}, "deedbook", VARIABLE).source())
    message(f"# {_where(shell)}")
    return 0


def _where(shell: str) -> str:
    """Return where the script belongs."""
    match shell:
        case "bash":
            return 'eval "$(deedbook completion bash)"    # in ~/.bashrc'
        case "zsh":
            return 'eval "$(deedbook completion zsh)"    # in ~/.zshrc, after compinit'
        case _:
            return "deedbook completion fish > ~/.config/fish/completions/deedbook.fish"
