"""``deedbook completion``: completion of commands and names in a shell."""

import click

from .completing import VARIABLE

SHELLS = ("bash", "zsh", "fish")
_WHERE = {
    "bash": 'eval "$(deedbook completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(deedbook completion zsh)"    # in ~/.zshrc, after compinit',
    "fish": "deedbook completion fish > ~/.config/fish/completions/deedbook.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the completion script of SHELL: commands, options, abilities, sessions, profiles, principals."""
    from click.shell_completion import get_completion_class

    from .output import message, say

    made = get_completion_class(shell)
    assert made is not None
    say(made(ctx.find_root().command, {}, "deedbook", VARIABLE).source())
    message(f"# {_WHERE[shell]}")
    return 0
