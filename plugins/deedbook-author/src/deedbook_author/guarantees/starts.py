"""Attacks on starts: forged and exchanged charters, missing and changed plugins, a state that cannot be written."""

import json
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from shutil import rmtree
from typing import Final

import attrs

from deedbook.charter.store import Store
from deedbook.format import canonical
from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.format.reader import read
from deedbook.format.release import VERSION
from deedbook.plugins.plugins import Catalogue, Installation
from deedbook.plugins.standing import read_standing
from deedbook.policy.charter import Charter
from deedbook.workspace.site import SETTINGS
from deedbook.workspace.workspace import load_profile
from deedbook_author.locking import lock

from .attacks import Attack, NotApplicable, PromiseBroken, expect
from .scratch import Scratch
from .target import Target


def _start(target: Target, copy: Scratch, catalogue: Catalogue | None = None) -> Charter:
    """Start a copy and stop; return the charter in force."""
    with closing(target.open_raw(copy, catalogue)) as kernel:
        return kernel.bindings.charter


# --- charters ---------------------------------------------------------------------------------------------------------


def _forge_charter(target: Target) -> str:
    """Store a looser charter under its right digest, and name it as the one in force."""
    copy = target.variant()
    right = _start(target, copy)
    other = "observe" if right.document["enforcement"] == "enforce" else "enforce"
    forged = Charter.of({**right.document, "enforcement": other, "policies": {}})
    charters = copy.state / "charters"
    (charters / forged.digest).mkdir()
    (charters / forged.digest / "charter.json").write_bytes(forged.raw)
    told = canonical.parse((charters / "current.json").read_bytes())
    (charters / "current.json").write_text(json.dumps({**told, "charter": forged.digest}), encoding="utf-8")
    found = _start(target, copy)
    expect(found.digest == right.digest, "a start took a charter from the state folder that it had not compiled")
    return f"the start compiled the sources again: charter {found.digest[:12]}"


def _poison_charter(target: Target) -> str:
    """Change the stored charter in place, under the digest of the right one."""
    copy = target.variant()
    right = _start(target, copy)
    place = copy.state / "charters" / right.digest / "charter.json"
    text = place.read_bytes().replace(b'"enforcement":"enforce"', b'"enforcement":"observe"')
    place.write_bytes(text.replace(b'"policies":{', b'"policies ":{', 1))
    try:
        found = _start(target, copy)
    except DeedbookError as problem:
        return f"the start was refused: {problem.error}"
    expect(found.raw == right.raw, "a start took a stored charter whose bytes were changed")
    return "the start compiled the sources again"


def _no_denial(target: Target) -> str:
    if target.document["enforcement"] != "enforce":
        return "policies are only observed: see denied-call"
    return "" if target.denied_calls else "no policy denies any of the calls that could be built"


def _exchange_charter(target: Target) -> str:
    """Remove every policy from the sources and the stored charters while a session is open."""
    copy, call = target.variant(), target.denied_calls[0]
    opened = target.open(copy)
    with opened.session(call.principal) as session:
        before = opened.attempt_in(session, call.ability, call.args)
        if not before.is_refused:
            raise NotApplicable("the denied call is not refused even before: see denied-call")
        for folder in (copy.root / ".system/policies", copy.state / "charters"):
            rmtree(folder, ignore_errors=True)
        copy.edit(lambda settings: settings.update(policies={}, enforcement="observe"))
        after = opened.attempt_in(session, call.ability, call.args)
    expect(after.is_refused, f"{call} was denied at first, and performed after the sources changed: {after}")
    return f"after every policy was removed from the sources: {after}"


def _record_change(target: Target) -> str:
    """Change the sources between two starts."""
    copy = target.variant()
    first = _start(target, copy)
    other = "observe" if first.document["enforcement"] == "enforce" else "enforce"
    copy.edit(lambda settings: settings.update(enforcement=other))
    second = _start(target, copy)
    recorded = [each.payload["digest"] for each in read(copy.state / "workspace") if each.type == "ledger.charter"]
    expect(recorded[-1:] == [second.digest] != [first.digest], f"the workspace ledger names other charters: {recorded}")
    return f"the workspace ledger names the charter before, {first.digest[:12]}, and after, {second.digest[:12]}"


def _no_lock(target: Target) -> str:
    if target.workspace.lock == "required":
        return ""
    return f"{SETTINGS} has lock: auto: the next start takes a change and records it; lock: required refuses it"


def _change_source(target: Target) -> str:
    copy = target.variant()
    copy.edit(lambda settings: settings.update(lock="required"))
    workspace = load_profile(copy.root, copy.original.profile, target.catalogue)
    with Folder.at(copy.root) as root, Folder.at(copy.state, create=True) as state:
        lock(workspace, target.catalogue, Store(state), root, kernel=VERSION, editable=True)
    _start(target, copy)
    copy.edit(lambda settings: settings.update(enforcement="observe"))
    try:
        _start(target, copy)
    except DeedbookError as problem:
        return f"the start was refused: {problem.error}"
    raise PromiseBroken("a workspace with lock: required started with a source that `deedbook lock` has not pinned")


# --- plugins ----------------------------------------------------------------------------------------------------------


def _find_used(target: Target) -> list[tuple[str, str]]:
    """Return the plugins of the charter, by kind and name, without features that act wherever they are installed."""
    pairs = [(kind, name) for kind, _, name in (key.partition("/") for key in sorted(target.document["plugins"]))]
    standing = {("feature", name) for name in read_standing()}
    return [pair for pair in pairs if pair in target.catalogue.offers and pair not in standing]


def _no_plugin(target: Target) -> str:
    return "" if _find_used(target) else "the workspace uses no plugin"


def _remove_plugin(target: Target) -> str:
    """Start without the distribution of each plugin in turn, after a start with it.

    An agent's tools may come from a feature of the same distribution. Without it, the workspace starts and does not
    know them: the door refuses each call.
    """
    copy = target.variant()
    before = _start(target, copy)
    used = _find_used(target)
    owners = sorted({target.catalogue.offers[pair].distribution for pair in used})
    for owner in owners:
        pairs = [pair for pair in used if target.catalogue.offers[pair].distribution == owner]
        offers = {key: offer for key, offer in target.catalogue.offers.items() if offer.distribution != owner}
        try:
            after = _start(target, copy, attrs.evolve(target.catalogue, offers=offers))
        except DeedbookError:
            continue
        kept = sorted(_find_abilities(before, pairs) & after.document["abilities"].keys())
        others = [pair for pair in pairs if pair[0] != "tool"]
        expect(
            not kept and not others,
            f"the workspace starts without {owner}, which offers {' '.join((others or pairs)[0])}; it has {kept}",
        )
    return f"no call was possible without any of {len(owners)} distributions: {', '.join(owners)}"


def _find_abilities(charter: Charter, pairs: Sequence[tuple[str, str]]) -> set[str]:
    """Return the abilities of a charter that one of the plugins performs."""
    return {name for name, each in charter.document["abilities"].items() if tuple(each["plugin"] or ()) in pairs}


def _find_pinned(target: Target) -> list[tuple[str, str]]:
    return [pair for pair in _find_used(target) if target.catalogue.offers[pair].digest is not None]


def _no_pinned(target: Target) -> str:
    return (
        "" if _find_pinned(target) else "every plugin is installed in place (pip install -e), so its code is not pinned"
    )


def _change_plugin(target: Target) -> str:
    """Start with another digest of the files of one plugin, as if they had been changed after the last start."""
    copy, pair = target.variant(), _find_pinned(target)[0]
    first = _start(target, copy)
    owner = target.catalogue.offers[pair].distribution
    changed = Installation(target.catalogue.offers[pair].metadata)
    changed.__dict__["digest"] = "0" * 64
    offers = {
        key: attrs.evolve(offer, installation=changed) if offer.distribution == owner else offer
        for key, offer in target.catalogue.offers.items()
    }
    second = _start(target, copy, attrs.evolve(target.catalogue, offers=offers))
    expect(second.digest != first.digest, f"the charter does not change with the code of {owner}")
    recorded = [each.payload["digest"] for each in read(copy.state / "workspace") if each.type == "ledger.charter"]
    expect(recorded[-1] == second.digest, f"the change of {owner} is not recorded")
    return f"changed code of {owner} made another charter, which is recorded; lock: required refuses it"


# --- the state folder -------------------------------------------------------------------------------------------------


def _may_write_everywhere(_target: Target) -> str:
    return "this user is root, who may write everywhere; run it as another user" if os.geteuid() == 0 else ""


def _forbid_writing(target: Target) -> str:
    copy = target.variant()
    copy.state.mkdir()
    copy.state.chmod(0o500)
    try:
        _start(target, copy)
    except DeedbookError as problem:
        return f"the start was refused: {problem.error.code}: {_without(problem.error.message, copy.root)}"
    finally:
        copy.state.chmod(0o700)
    raise PromiseBroken("a workspace starts although its state folder cannot be written")


def _without(text: str, root: Path) -> str:
    return text.replace(f"{root}/", "")


ATTACKS: Final = (
    Attack(
        id="forged-charter", promise="A start takes no charter from the state folder that it did not compile.",
        run=_forge_charter,
    ),
    Attack(
        id="poisoned-charter", promise="A stored charter whose bytes were changed is not used.", run=_poison_charter
    ),
    Attack(
        id="exchanged-charter", promise="An open session keeps its charter when the sources change.",
        applies=_no_denial, run=_exchange_charter,
    ),
    Attack(
        id="unrecorded-change", promise="Every change of the charter is recorded in the workspace ledger.",
        run=_record_change,
    ),
    Attack(
        id="changed-source", promise="With lock: required, a source that was changed after the lock is refused.",
        applies=_no_lock, run=_change_source,
    ),
    Attack(
        id="missing-plugin", promise="A workspace does not start without a plugin that it uses.", applies=_no_plugin,
        run=_remove_plugin,
    ),
    Attack(
        id="changed-plugin", promise="Changed code of a plugin changes the charter.", applies=_no_pinned,
        run=_change_plugin,
    ),
    Attack(
        id="unwritable-state", promise="A workspace whose state cannot be written does not start.",
        applies=_may_write_everywhere, run=_forbid_writing,
    ),
)  # fmt: skip
