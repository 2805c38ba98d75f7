"""``deedbook run``: take one request from the prompt to the answer."""

import mimetypes
import re
import sys
from hashlib import sha256
from pathlib import Path

import click

from . import completing
from .common import GlobalOptions, json_option, principal_option, profile_option, wait_option

MAX_BYTES = 1024 * 1024
IMAGES = ("image/gif", "image/jpeg", "image/png", "image/webp")


@click.command("run")
@click.argument("prompt", nargs=-1, required=True, metavar="PROMPT")
@profile_option
@principal_option
@click.option(
    "--flow",
    metavar="ID",
    shell_complete=completing.abilities,
    help="Take the request to this flow of the charter, without choosing a skill.",
)
@click.option(
    "--mode",
    type=click.Choice(("interactive", "autofix", "report-only", "headless")),
    default="interactive",
    help="What hooks, policies and flows see as the mode of the session.",
)
@click.option("--image", "images", multiple=True, metavar="FILE", help="An image that the models see; may be repeated.")
@wait_option
@json_option
@click.pass_obj
def command(  # noqa: PLR0913 - one for each option
    options: GlobalOptions,
    prompt: tuple[str, ...],
    profile: str | None,
    principal: str | None,
    flow: str | None,
    mode: str,
    images: tuple[str, ...],
    wait: float,
) -> int:
    """Take a request through hooks, skill and roles to an answer; PROMPT may be `-` for standard input.

    A run that needs a person, or is interrupted, is suspended: `deedbook resume SESSION` goes on with it.
    """
    from .execution import execute, reply_ending, session_starter

    text = _text(prompt)
    if images:
        text = "\n".join((text, "", *(_image_mark(options.workspace, image) for image in images)))
    begin = session_starter("run", principal, wait, mode)
    return execute(options, begin, lambda session: reply_ending(session.run(text, flow)), profile=profile)


def _text(words: tuple[str, ...]) -> str:
    """Return the request; refuse several arguments, an empty request, and bytes that are not text."""
    if len(words) > 1:
        raise click.UsageError(f'the request is {len(words)} arguments; put it in quotes: deedbook run "…"')
    text = _read() if words[0] == "-" else words[0]
    try:
        size = len(text.encode())
    except UnicodeEncodeError as problem:
        raise click.UsageError(f"the request is not UTF-8 at character {problem.start + 1}") from None
    if size > MAX_BYTES:
        raise click.UsageError(f"the request is longer than {MAX_BYTES} bytes; put the text into a file and name that")
    if not text.strip():
        raise click.UsageError("the request is empty")
    return text


def _image_mark(workspace: str, name: str) -> str:
    """Return the line of a request that stands for an image: its media type, path in the workspace, and SHA-256."""
    from deedbook.workspace.sources import find_workspace

    root, place = find_workspace(Path(workspace)).resolve(), Path(name).resolve()
    media_type = mimetypes.guess_type(place.name)[0]
    path = place.relative_to(root).as_posix() if place.is_relative_to(root) else ""
    if media_type not in IMAGES:
        raise click.UsageError(f"--image {name}: models take {', '.join(IMAGES)}")
    if not path or re.search(r"[<>\n]", path):
        raise click.UsageError(f"--image {name}: put it into the workspace {root}, at a path without < > and line ends")
    try:
        return f'![{media_type}](<{path}> "sha256:{sha256(place.read_bytes()).hexdigest()}")'
    except OSError as problem:
        raise click.UsageError(f"--image {name}: {problem.strerror}") from None


def _read() -> str:
    """Read standard input without the final line break, which belongs to the pipe."""
    raw = sys.stdin.buffer.read(MAX_BYTES + 3) if sys.stdin else b""
    return raw.decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")
