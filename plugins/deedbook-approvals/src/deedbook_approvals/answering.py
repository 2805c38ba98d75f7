"""Answer a request with the approver's own key. The door checks the answer again; neither relies on the other."""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from deedbook.approvals.keys import KeyRing
from deedbook.approvals.results import choose_approver, load_key
from deedbook.call.pending_calls import charter_changed_error, refuse_approver
from deedbook.call.queue import LAST, ApprovalQueue, ApprovalRequest, open_queue, refuse_state
from deedbook.charter.cachekeys import cache_key
from deedbook.charter.locks import Store, find_current, is_superseded
from deedbook.contract import Object
from deedbook.format import canonical
from deedbook.format.errors import ApprovalError, BindingError, fault, recordable
from deedbook.format.events import Entry, label, new_id, timestamp
from deedbook.format.files import Folder
from deedbook.format.ownership import UntrustedError
from deedbook.format.release import VERSION
from deedbook.ledger.ledger import WorkspaceLedger
from deedbook.plugins.plugins import Catalogue, discover
from deedbook.policy.requests import approvers, sign_answer
from deedbook.workspace.own_ledger import open_own_ledger
from deedbook.workspace.workspace import read_workspace

MAX_NOTE: Final = 500
"""How many characters an approver's note may have."""


def answer(
    path: str | Path,
    name: str,
    *,
    approve: bool,
    approver: str | None = None,
    note: str = "",
    catalogue: Catalogue | None = None,
) -> ApprovalRequest:
    """Answer the request *name* of the workspace at *path* with the approver's private key, durably.

    *name* is an id or its beginning. ``last`` is refused: another request could arrive before it is signed. Without
    *approver*, the only approver with a private key here answers; *catalogue* replaces the installed plugins. Raises
    `DeedbookError` with the obstacle.
    """
    if len(note) > MAX_NOTE:
        why = f"the note has {len(note)} characters; at most {MAX_NOTE} are signed. Shorten it"
        raise ApprovalError(fault("USAGE", why, place="--note"))
    if name == LAST:
        raise ApprovalError(fault("USAGE", "name the request by its id; another one may be the last now"))
    workspace = read_workspace(path)
    with open_queue(workspace.state) as waiting:
        pending = waiting.find(name)
        request = waiting.request(pending)
        refuse_state(pending, timestamp(time.time()), wanted="waiting")
        principals = _principals(path, request, catalogue or discover())
        ring = KeyRing.of(os.environ)
        who = approver or choose_approver(approvers(principals), ring)
        refuse_approver(principals, request, who)
        key = load_key(principals, who, ring)
        with open_own_ledger(workspace) as ledger:
            said = {
                "answer": "approve" if approve else "deny",
                "approver": who,
                "ledger": ledger.session_id,
                "at": ledger.now(),
                "nonce": new_id(),
                "note": recordable(note),
            }
            _append(ledger, waiting, pending, sign_answer(request, key, said), who)
    return pending


def find_stale(
    path: str | Path, requests: Iterable[ApprovalRequest], catalogue: Catalogue | None = None
) -> frozenset[str]:
    """Return the ids of those *requests* whose charter the workspace at *path* no longer has.

    Such a request can be neither answered nor performed. No plugin is imported, so a request counts as stale only if
    that is certain.
    """
    offers, known, found = catalogue, dict[tuple[str, str], bool](), set[str]()
    for each in requests:
        charter, profile = (str(each.requested.payload.get(name)) for name in ("charter", "profile"))
        if (charter, profile) not in known:
            offers = offers or discover()
            known[charter, profile] = _is_outdated(path, charter, profile, offers)
        if known[charter, profile]:
            found.add(each.id)
    return frozenset(found)


def _is_outdated(path: str | Path, digest: str, profile: str, catalogue: Catalogue) -> bool:
    try:
        workspace = read_workspace(path, profile)
    except UntrustedError:
        return False
    except BindingError:  # the profile no longer exists
        return True
    with Folder.at(workspace.state) as state:
        return is_superseded(digest, workspace, catalogue, Store(state), VERSION)


def _append(
    ledger: WorkspaceLedger, waiting: ApprovalQueue, pending: ApprovalRequest, payload: Object, who: str
) -> None:
    """Record the answer, unless another one was recorded first."""

    def check() -> None:
        waiting.refresh()
        refuse_state(pending, timestamp(time.time()), wanted="waiting")

    raw = canonical.encode_payload(dict(payload))
    entry = Entry(label("approval.answered", "user", who), ledger.span(), pending.requested.span, raw)
    ledger.append([entry], durable=True, check=check)


def _principals(path: str | Path, request: Object, catalogue: Catalogue) -> Any:
    """Return the principals of the charter of the request, if it is still in force."""
    workspace = read_workspace(path, request["profile"])
    with Folder.at(workspace.root) as root, Folder.at(workspace.state) as state:
        charter = find_current(
            request["charter"],
            workspace,
            catalogue,
            root,
            Store(state, cache_key(workspace.root, workspace.state)),
            VERSION,
        )
    if charter is None:
        raise ApprovalError(charter_changed_error(request["approval"]))
    return charter.document["principals"]
