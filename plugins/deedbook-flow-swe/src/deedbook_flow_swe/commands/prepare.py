"""Prepare the environment of the programs in the sandbox: made outside, locked by its digest."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from stat import S_IMODE, S_IROTH, S_IXOTH

import click

from deedbook.cli.common import GlobalOptions, json_option
from deedbook.cli.output import as_json, say
from deedbook.contract import Failed
from deedbook.format.errors import BindingError, fault

_SECONDS = 1800.0
_OUTPUT = 16 << 20
_OTHERS = S_IROTH | S_IXOTH
_OWN = ("/data", "/dev", "/proc", "/tmp", "/workspace")  # noqa: S108 - folders that a sandbox has for itself


@click.command("prepare", short_help="Make the environment of the programs in the sandbox.")
@click.argument("requirements", type=click.Path(exists=True))
@click.argument("folder", type=click.Path())
@json_option
@click.pass_obj
def prepare(options: GlobalOptions, requirements: str, folder: str) -> int:
    """Install the list REQUIREMENTS into the new FOLDER, and print its digest for the abilities with `tool: sandbox`.

    REQUIREMENTS is a file for pip in which every distribution has one version and its hashes. Only wheels are
    installed, so nothing of theirs runs here. Every user may read FOLDER.
    """
    from deedbook_tool_sandbox.bubblewrap import digest_of

    if not folder:
        raise BindingError(fault("USAGE", "FOLDER: it is empty; name a new folder"))
    if not Path(requirements).is_file():
        raise BindingError(fault("USAGE", f"{requirements} is no file; name a list of distributions for pip"))
    place = Path(folder).resolve()
    _check(place)
    try:
        _install(Path(requirements).resolve(), place)
        _open_to_all(place)
    except BaseException:
        rmtree(place, ignore_errors=True)
        raise
    digest = digest_of(place)
    if options.json:
        as_json({"schema_version": "v1", "path": str(place), "digest": digest})
    else:
        say("add this to `with:` of the abilities that run in the sandbox:")
        say(f"  environment: {{path: {place}, digest: {digest}}}")
    return 0


def _check(place: Path) -> None:
    if place.exists():
        raise BindingError(
            fault("USAGE", f"{place} exists already; name a new folder, and keep the old one until then")
        )
    if find_spec("pip") is None:
        raise BindingError(fault("USAGE", "pip is not installed beside Deedbook; install it, it fetches the wheels"))
    if any(place.is_relative_to(own) for own in _OWN):
        why = f"{place} is where the sandbox has folders of its own; name another place, such as below /opt"
        raise BindingError(fault("USAGE", why))
    if (closed := find_closed(place)) is not None:
        why = f"{closed} is closed to other users, and the sandbox runs as one; name another place, such as below /opt"
        raise BindingError(fault("USAGE", why))


def find_closed(place: Path) -> Path | None:
    """Return a folder above *place* that other users may not pass; ``None`` if there is none, and for root.

    A sandbox that root starts reaches the folder before it becomes another user.
    """
    if os.geteuid() == 0:
        return None
    return next((above for above in place.parents if above.exists() and not above.stat().st_mode & S_IXOTH), None)


def _install(requirements: Path, place: Path) -> None:
    """Make a virtual environment without pip, and install the wheels into it; raises `BindingError`."""
    from deedbook.programs.workers import Workers

    python = str(place / "bin" / "python3")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-input", "--no-compile"]
    steps = [
        [sys.executable, "-m", "venv", "--without-pip", str(place)],
        [*pip, "--disable-pip-version-check", "--require-hashes", "--only-binary=:all:", "-r", str(requirements)],
    ]
    with Workers() as workers:
        for argv in steps:
            try:
                ran = workers.run(argv, env=dict(os.environ), cwd=Path.cwd(), seconds=_SECONDS, limit=_OUTPUT)
            except Failed as problem:
                raise BindingError(fault("USAGE", f"{requirements}: {problem}")) from None
            if ran.status:
                said = ran.err.decode("utf-8", "backslashreplace").strip().splitlines()
                why = next((line for line in said if line.startswith("ERROR")), said[-1] if said else "no reason given")
                raise BindingError(fault("USAGE", f"{requirements}: it cannot be installed: {why}"))


def _open_to_all(place: Path) -> None:
    """Let every user read the folder, and only its owner change it."""
    for path in (place, *place.rglob("*")):
        if path.is_symlink():
            continue
        mode = S_IMODE(path.stat().st_mode)
        wanted = mode | _OTHERS if path.is_dir() or mode & 0o100 else mode | S_IROTH
        path.chmod(wanted & ~0o022)
