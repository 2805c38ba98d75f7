"""The checks of ``deedbook doctor``: interpreter, plugins, workspace, records, disk and system.

Each check reports what it found and, in one line, how to fix a fault. Checks only read, except for one temporary file
in the state folder.
"""

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Final

from deedbook.charter.bindings import bind
from deedbook.charter.cachekeys import cache_key
from deedbook.charter.compiler import compile_charter
from deedbook.charter.store import Store
from deedbook.continuation.resume import has_open_run
from deedbook.contract import HandlerSpec
from deedbook.contract.features import Check, first_faults
from deedbook.format.errors import DeedbookError, DomainError, describe
from deedbook.format.files import Folder
from deedbook.format.heads import Head, find_gaps, list_heads
from deedbook.format.reader import list_sessions, read
from deedbook.format.release import VERSION
from deedbook.format.schema import Schemas, data_folder
from deedbook.format.terminal import MOST_OF_A_KIND, few, pluralise
from deedbook.maintenance.liveness import SESSIONS
from deedbook.maintenance.processes import describe_outdated, find_outdated
from deedbook.plugins.features import Features
from deedbook.plugins.groups import FEATURE
from deedbook.plugins.host import ReadingHost
from deedbook.plugins.plugins import Catalogue, Offer, known_owners, load
from deedbook.plugins.policy_kinds import installed_kinds
from deedbook.policy.callers import route_data
from deedbook.policy.charter import Charter
from deedbook.policy.defaults import suggest_cover
from deedbook.policy.gates import APPROVAL_GATE
from deedbook.policy.requests import approvers
from deedbook.programs.supervisor import System
from deedbook.programs.workers import Workers
from deedbook.workspace.declarations import Workspace
from deedbook.workspace.lockfile import LOCK, Lock, current_platform
from deedbook.workspace.site import Site
from deedbook_author.policy_coverage import find_unguarded, lint_own_policies

from .registry import find_missing_programs
from .trial import find_fatal

_UNENDED: Final = frozenset({"interrupted", "suspended"})
_PYTHON: Final = ((3, 11), (3, 15))
_LEAST_SPACE: Final = 256 * 1024 * 1024
_EARLIEST: Final = datetime(2025, 1, 1, tzinfo=UTC)
_NETWORKED: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"})
_UNINSTALL: Final = "pip uninstall it, or remove it from the workspace; nothing that uses it can start"
_MISSING_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named '([^'.]+)")
_OPTIONAL: Final = (("cel_expr_python", "conditions in CEL", "pip install 'deedbook-policy-standard[cel]'"),)


def examine(root: Path | None, catalogue: Catalogue, read: Callable[[], Workspace]) -> Iterator[Check]:
    """Yield every check once; *root* is the workspace's folder, if there is one, and *read* reads the workspace."""
    yield from _interpreter()
    yield from _check_installed(catalogue)
    if root is None:
        yield Check("workspace", "note", "none here or above", "deedbook init")
    else:
        yield from dict.fromkeys(_workspace(catalogue, read))  # the kernel and a feature may report the same fault
    yield from _system()


def _remedy(error: DomainError) -> str:
    """Return how to fix a fault of the sources or of what they name."""
    match error.code:
        case "PLUGIN_MISSING":
            return "pip install the distribution that offers it, or correct the name"
        case "PLUGIN_BROKEN" if module := _MISSING_MODULE.search(error.message):
            return f"pip install the distribution that provides the module {module[1]}"
        case "PLUGIN_BROKEN":
            return "pip install --force-reinstall its distribution, or tell its author"
        case "SCHEMA_REFUSED" if " plugin '" in (error.place or ""):
            return "tell the author of the plugin"
        case "SECRET_MISSING":
            return "set the environment variable, or remove what needs the secret"
        case _:
            return f"edit {error.place.partition(' ')[0]}" if error.place else "edit .system"


# --- what is installed ------------------------------------------------------------------------------------------------


def _interpreter() -> Iterator[Check]:
    version = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    fits = _PYTHON[0] <= sys.version_info[:2] < _PYTHON[1]
    yield Check("python", "ok" if fits else "note", version, "" if fits else "Python 3.11 to 3.14 are tested")
    if sys.platform not in ("linux", "darwin"):
        yield Check("platform", "fault", sys.platform, "use Linux or macOS")
    for module, what, fix in _OPTIONAL:
        try:
            import_module(module)
        except ImportError:
            yield Check("extra", "note", f"{what}: not installed", fix)
        else:
            yield Check("extra", "ok", f"{what}: installed")
    yield _yaml()


def _yaml() -> Check:
    try:
        import_module("_ruamel_yaml")
    except ImportError:
        return Check("yaml", "note", "read without the C parser, four times slower", "pip install ruamel.yaml.clib")
    return Check("yaml", "ok", "read with the C parser")


def _check_installed(catalogue: Catalogue) -> Iterator[Check]:
    owners = sorted({f"{offer.distribution} {offer.version}" for offer in catalogue.offers.values()})
    yield Check("plugins", "ok", f"{len(catalogue.offers)}, from {len(owners)} distributions: {', '.join(owners)}")
    for (kind, name), rivals in catalogue.clashes.items():
        names = " and ".join(f"{rival.distribution} {rival.version}" for rival in rivals)
        yield Check("plugins", "fault", f"{kind} {name!r} is offered by {names}", "pip uninstall all but one of them")
    for said in catalogue.hidden:
        yield Check("plugins", "note", said, "pip uninstall one of the two")
    for place in catalogue.unreadable:
        yield Check("plugins", "note", f"metadata cannot be read: {place}", "pip install --force-reinstall it")


# --- the workspace ----------------------------------------------------------------------------------------------------


def _workspace(catalogue: Catalogue, read: Callable[[], Workspace]) -> Iterator[Check]:
    try:
        workspace = read()
        deadly = list(find_fatal(_named_offers(workspace, catalogue)))
        if deadly:  # the further checks would import them in this process
            yield from (Check("import", "fault", f"{offer}: {what}", _UNINSTALL) for offer, what in deadly)
            return
        charter = compile_charter(workspace, catalogue, kernel=VERSION)
    except DeedbookError as problem:
        yield from (Check("workspace", "fault", str(each), _remedy(each)) for each in problem.errors)
        return
    yield Check("workspace", "ok", f"{workspace.root}, profile {workspace.profile}, {workspace.enforcement}")
    yield from _check_binding(workspace, charter, catalogue)
    yield from _check_requirements(charter, catalogue)
    yield from _inline(charter)
    for why in charter.set_aside:
        yield Check("skill", "note", f"set aside: {why}", "correct it; `deedbook skills lint` names every one")
    for place, message in find_missing_programs(workspace.abilities.values()):
        yield Check("program", "note", f"{place}: {message}", f"edit {place}, or install the program")
    for each in lint_own_policies(charter.document, installed_kinds(catalogue), workspace.policies):
        yield Check("policy", "fault" if each.guards_nothing else "note", str(each), f"edit {each.place}")
    yield from _uncovered(charter)
    yield from _unanswerable(charter)
    yield _lock(workspace, charter, catalogue)
    yield from _in_force(workspace, charter)
    yield from _find_outdated(workspace, charter)
    yield from _find_interrupted(workspace.state)
    yield from first_faults(list(_find_lost(workspace.state)))
    yield from _check_features(workspace, catalogue)
    yield from _disk(workspace.state)


def _named_offers(workspace: Workspace, catalogue: Catalogue) -> list[Offer]:
    """Return the installed plugins that the workspace names, without importing them."""
    profile = workspace.profiles.get(workspace.profile)
    named = [pair for each in workspace.abilities.values() for pair in each.handler.items()]
    named += [("hook", str(each.handler["hook"])) for each in workspace.hooks.values() if "hook" in each.handler]
    named += [("policy", each.kind) for each in workspace.policies.values()]
    named += [("skill", each.loader) for each in workspace.loaders]
    named += [("provider", model.provider) for model in (profile.models.values() if profile else ())]
    offers = (catalogue.get(kind, str(name)) for kind, name in dict.fromkeys(named))
    return [offer for offer in offers if offer]


def _check_binding(workspace: Workspace, charter: Charter, catalogue: Catalogue) -> Iterator[Check]:
    """Construct every plugin that the workspace uses, then discard them."""
    site = Site.of(workspace)
    try:
        with Folder.at(workspace.root) as root:
            host = ReadingHost(
                root,
                site.file_roots,
                site.hidden,
                site.secret_values(),
                None,
                Workers,  # which starts nothing before it is asked to
                site.secrets,
                partial(route_data, charter.document, {}),
                catalogue,
            )
            bind(charter, catalogue, host, Schemas.load(data_folder("schemas")))
    except DeedbookError as problem:
        yield from (Check("binding", "fault", str(each), _remedy(each)) for each in problem.errors)
    else:
        yield Check("binding", "ok", f"{len(charter.document['plugins'])} plugins load and take their settings")


def _check_requirements(charter: Charter, catalogue: Catalogue) -> Iterator[Check]:
    """Report the modules that a handler imports at its first call, and that are not installed; imports none of them."""
    for kind, name in (key.split("/", 1) for key in charter.document["plugins"]):
        offer = catalogue.get(kind, name)
        spec = load(offer).spec if offer and kind in ("tool", "provider", "flow") else None
        for module, fix in spec.requires.items() if isinstance(spec, HandlerSpec) else ():
            if not _is_installed(module):
                yield Check("requires", "fault", f"{kind} {name!r} needs the module {module}: not installed", fix)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a parent package is missing, or is no package
        return False


def _inline(charter: Charter) -> Iterator[Check]:
    """Report hooks of third parties that run in the kernel's own process: they are trusted like the kernel itself."""
    plugins = charter.document["plugins"]
    for name, hook in sorted(charter.document["hooks"].items()):
        owner = plugins.get("/".join(hook["plugin"]), {}).get("distribution", "") if hook.get("plugin") else ""
        if owner and not owner.startswith("deedbook") and hook.get("isolation", "inline") == "inline":
            yield Check(
                "isolation", "note", f"hook {name} of {owner} runs in the kernel's process",
                f"isolation: worker in {hook['place']}, unless you trust it as you trust the kernel",
            )  # fmt: skip


def _uncovered(charter: Charter) -> Iterator[Check]:
    """Report abilities with calls that no policy covers and that are not simply allowed."""
    for each in find_unguarded(charter.document):
        if each.outcome != "allow":
            effects = charter.document["abilities"][each.name]["effects"]
            yield Check("policy", "note", str(each), suggest_cover(each.name, effects))


def _unanswerable(charter: Charter) -> Iterator[Check]:
    """Report rules that ask a person where no one could answer; a client that asks its own user needs no approver."""
    document = charter.document
    by_client = any(client["asks"] == "agent" for client in document["clients"].values())
    asking = [] if approvers(document["principals"]) or by_client else list(_asking_places(document))
    if asking:
        found = f"a person is asked ({', '.join(few(asking, 3))}), but there is no approver"
        yield Check("approval", "note", found, "declare a principal with roles: [approver] and a key under principals:")


def _asking_places(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the places of rules and abilities of a charter that ask a person."""
    for policy in document["policies"].values():
        rules = policy["settings"].get("rules", ()) if policy["rules"] else ()
        placed = zip(policy["rules"], rules, strict=False)
        yield from (place for place, rule in placed if isinstance(rule, dict) and rule.get("then") == "ask")
        if policy["settings"].get("default") == "ask":
            yield policy["place"]
    for ability in document["abilities"].values():
        if APPROVAL_GATE in ability["tags"]:
            yield ability["place"]
    if document["enforcement"] == "enforce":
        uncovered = (each.name for each in find_unguarded(document) if each.outcome == "ask")
        yield from (document["abilities"][name]["place"] for name in uncovered)


def _lock(workspace: Workspace, charter: Charter, catalogue: Catalogue) -> Check:
    try:
        with Folder.at(workspace.root) as root:
            pins = Lock.read(root)
    except DeedbookError as problem:
        return Check("lock", "fault", str(problem), "deedbook lock")
    wanted, mode = workspace.lock == "required", f"lock: {workspace.lock}"
    if pins is None or current_platform() not in pins.charters:
        return Check(
            "lock", "fault" if wanted else "ok", f"{mode}; nothing is pinned", "deedbook lock" if wanted else ""
        )
    differing = [*pins.refuse_sources(workspace.digests, profile=pins.profile, kernel=pins.kernel)]
    differing += _find_unpinned(pins, charter, catalogue)
    if not differing:
        return Check("lock", "ok", f"{mode}; {LOCK} pins these sources and plugins")
    said = f"{mode}; {'; '.join(dict.fromkeys(each.message for each in differing))}"
    return Check("lock", "fault" if wanted else "note", said, "review what changed, then run: deedbook lock")


def _find_outdated(workspace: Workspace, charter: Charter) -> Iterator[Check]:
    """Yield the running processes that decide by another charter than that of the files."""
    try:
        found = find_outdated(workspace.state, charter)
    except (DeedbookError, OSError):  # another check reports what cannot be read
        return
    for each in found:
        mend = f"end process {each.pid} and start it again, so that it decides by the files"
        yield Check("process", "fault", describe_outdated(each, charter), mend)


def _in_force(workspace: Workspace, charter: Charter) -> Iterator[Check]:
    """Check the charter of the last start, as the state folder records it: its bytes and its authentication."""
    key = cache_key(workspace.root, workspace.state)
    if key.secret is None and not key.absent:
        mend = "let only your own user read the key and write its folder, or set XDG_CONFIG_HOME to another folder"
        yield Check("start", "note", f"every start compiles the charter again: {key.why}", mend)
    try:
        with Folder.at(workspace.state) as state:
            store = Store(state, key)
            digest = store.current()
            if digest is None:
                if state.kinds("charters"):
                    why = "charters/current.json does not say which charter is in force; the next start writes it again"
                    yield Check("charter", "note", why)
                return
            store.load(digest)
            authentic = key.secret is None or store.authenticates(digest)
    except FileNotFoundError:
        return
    except (DeedbookError, OSError) as problem:
        yield Check("charter", "fault", describe(problem), "deedbook verify")
        return
    if not authentic:
        why = "your key does not authenticate charters/current.json; the next start compiles the sources again"
        yield Check("charter", "note", why)
    else:
        now = f"; the files give {charter.digest[:12]}, which the next start puts in force"
        differs = digest != charter.digest
        yield Check("charter", "ok", f"the last start decided by charter {digest[:12]}{now if differs else ''}")


def _find_unpinned(pins: Lock, charter: Charter, catalogue: Catalogue) -> Iterator[DomainError]:
    """Yield an error for each plugin in use whose code is not pinned."""
    for key in charter.document["plugins"]:
        kind, _, name = key.partition("/")
        offer = catalogue.get(kind, name)
        refused = pins.refuse_code(offer, offer.digest) if offer else None
        if refused:
            yield refused


def _check_features(workspace: Workspace, catalogue: Catalogue) -> Iterator[Check]:
    """Yield the checks of installed features, and a note for each first-party feature that is not installed."""
    for name, owner in known_owners("doctor").items():
        if catalogue.get(FEATURE, name) is None:
            yield Check(name, "note", "not checked", f"pip install {owner}")
    for name in catalogue.names(FEATURE):
        try:
            yield from Features(catalogue, [name]).each("examine", workspace=workspace)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - a plugin may raise anything; the other checks still run
            yield Check(name, "fault", f"cannot be checked: {describe(problem)}", "pip install --force-reinstall it")


def _find_lost(state: Path) -> Iterator[Check]:
    """Yield the sessions that lack events which the workspace ledger recorded."""
    heads: dict[str, list[Head]] = {}
    try:
        for head in list_heads(state):
            heads.setdefault(head.session, []).append(head)
        found = [gap for known in heads.values() for gap in find_gaps(state, known)]
    except (DeedbookError, OSError) as problem:
        yield Check("ledger", "fault", describe(problem), "deedbook verify")
    else:
        yield from (Check("ledger", "fault", str(gap), f"deedbook verify {gap.session}") for gap in found)


def _find_interrupted(state: Path) -> Iterator[Check]:
    """Yield the sessions without an end that no process writes, except those reported for a torn end.

    A session whose run can be resumed is reported with the command for that.
    """
    try:
        with Folder.at(state) as folder:
            found = [each for each in list_sessions(folder) if each.state in _UNENDED and not each.torn]
            resumable = {each.id: each.waits for each in found if each.state == "suspended" or _has_run(state, each.id)}
    except (DeedbookError, OSError):  # a missing state folder has none; other errors are reported above
        return
    for session in islice(resumable, MOST_OF_A_KIND):
        why = f": {resumable[session]}" if resumable[session] else ""
        yield Check("session", "note", f"{session} has a run that can go on{why}", f"deedbook resume {session}")
    if (more := len(resumable) - MOST_OF_A_KIND) > 0:
        yield Check("session", "note", f"{more} more sessions have a run that can go on", "deedbook sessions")
    if left := [each.id for each in found if each.id not in resumable]:
        told = f"{pluralise(len(left), 'session')} without an end, written by no process: {', '.join(few(left))}"
        fix = f"deedbook sessions close {left[0] if len(left) == 1 else 'ID, for each'}"
        yield Check("session", "note", told, fix)


def _has_run(state: Path, session: str) -> bool:
    """Return whether an interrupted session has a run that can be resumed; an unreadable session has none."""
    try:
        return has_open_run(list(read(state / SESSIONS / session)))
    except (DeedbookError, OSError, ValueError):
        return False


# --- the machine ------------------------------------------------------------------------------------------------------


def _disk(state: Path) -> Iterator[Check]:
    """Check the file system of the state: free space, a durable write, and an exclusive file lock."""
    place = next(folder for folder in (state, *state.parents) if folder.is_dir())
    free = shutil.disk_usage(place).free
    fix = "" if free > _LEAST_SPACE else f"free some space on the disk of {place}"
    yield Check("disk", "fault" if fix else "ok", f"{free // 2**20} MiB free at {place}", fix)
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"deedbook")
            file.flush()
            os.fdatasync(file.fileno())
            yield Check("disk", "ok", "a durable write succeeds")
            yield _locks(file.fileno())
    except OSError as problem:
        why = f"nothing can be written to {place}: {problem.strerror}"
        yield Check("disk", "fault", why, f"let {place} be writable, or set state: in .system/deedbook.yaml")
    kind = _file_system(place)
    if kind in _NETWORKED:
        why = f"{place} is on {kind}, where locks and syncs are not reliable"
        yield Check("disk", "fault", why, "set state: to a folder on a local disk")


def _locks(fd: int) -> Check:
    other = os.open(f"/dev/fd/{fd}", os.O_RDWR)
    try:
        flock(fd, LOCK_EX | LOCK_NB)
        flock(other, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return Check("locks", "ok", "a file lock excludes a second holder")
    finally:
        os.close(other)
    return Check(
        "locks", "fault", "a file lock does not exclude a second holder", "set state: to a folder on a local disk"
    )


def _file_system(place: Path) -> str:
    """Return the kind of file system that *place* is on, or an empty text if the system does not tell."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return ""
    here = place.resolve()
    kinds = [(len(point), kind) for point, kind in mounts if here.is_relative_to(point)]
    return max(kinds, default=(0, ""))[1]


def _system() -> Iterator[Check]:
    now = datetime.now(UTC)
    early = now < _EARLIEST
    fix = "set the clock" if early else ""
    yield Check("clock", "fault" if early else "ok", f"{now:%Y-%m-%dT%H:%M:%SZ}", fix)
    if sys.platform == "linux":
        yield from _kernel()


def _kernel() -> Iterator[Check]:
    """Report the system kernel's features for confining programs."""
    release = platform.release()
    yield Check("kernel", "ok", f"Linux {release}; orphans of workers are adopted and killed (child subreaper)")
    limit = Path("/proc/sys/user/max_user_namespaces")
    allowed = limit.exists() and limit.read_text(encoding="ascii").strip() != "0"
    said = "user namespaces are allowed" if allowed else "user namespaces are not allowed"
    yield Check("kernel", "ok" if allowed else "note", said)
    scoped = System().can_confine()
    said = "keeps programs from signalling or inspecting others (Landlock)" if scoped else "cannot scope signals"
    yield Check("kernel", "ok" if scoped else "note", f"Linux {said}")
