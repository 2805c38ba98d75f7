"""``deedbook completion``: print the completion script of a shell."""

import click

from .completing import VARIABLE

SHELLS = ("bash", "zsh", "fish")


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
