"""The kernel: a workspace opened, with all that it holds given back, whatever goes wrong."""

import asyncio
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import pytest

from deedbook import DeedbookError, HandlerSpec, deny, open_kernel
from deedbook.format.errors import BindingError, LedgerError, SessionRefused, fault
from deedbook.format.reader import list_sessions, read
from deedbook.format.release import VERSION
from deedbook_testing import Lab


def descriptors():
    gc.collect()  # earlier tests may have left some to the collector
    return len(os.listdir("/proc/self/fd"))


def code(function, *args, **more):
    with pytest.raises(DeedbookError) as caught:
        function(*args, **more)
    return caught.value.error.code


# --- opening ----------------------------------------------------------------------------------------------------------


def test_kernel_opens_from_any_folder_below_the_workspace(lab):
    below = lab.path / "src" / "deep"
    below.mkdir(parents=True)
    with open_kernel(below) as kernel:
        assert kernel.site.root == lab.path


def test_where_there_is_no_workspace_there_is_no_kernel(tmp_path):
    assert code(open_kernel, tmp_path) == "WORKSPACE_NOT_FOUND"


def test_profile_that_is_not_declared_is_named_with_those_that_are(lab):
    lab.settings(profiles={"local": {}, "prod": {}})
    with pytest.raises(DeedbookError, match="prod"):
        lab.kernel(profile="prodd")


def test_principal_that_is_not_declared_is_named_with_those_that_are(lab):
    lab.settings(principals={"ada": {"roles": ["writer"]}})
    kernel = lab.kernel()
    assert kernel.principal("ada").roles == frozenset({"writer"})
    with pytest.raises(DeedbookError, match="ada"):
        kernel.principal("adda")


def test_secret_without_a_value_is_a_fault_only_where_a_plugin_wants_it(lab, monkeypatch):
    monkeypatch.delenv("LAB_TOKEN", raising=False)
    lab.settings(secrets={"token": {"env": "LAB_TOKEN"}})
    lab.kernel()

    class Wants:
        spec = HandlerSpec(gives={"type": "object"})

        def __init__(self, settings, host):
            self.token = host.secret("token")

        def __call__(self, args, ctx):
            return self.token.reveal()

    lab.offer("tool", "wants", Wants)
    lab.settings(abilities={"wants": {"summary": "Wants.", "handler": {"tool": "wants"}}})
    assert code(lab.kernel) == "SECRET_MISSING"


def test_a_key_pasted_in_place_of_a_secrets_name_is_neither_told_nor_stored(lab):
    pasted = "sk-PASTED-0123456789"

    class Wants:
        spec = HandlerSpec(settings={"type": "object"}, gives={"type": "object"})

        def __init__(self, settings, host):
            self.token = host.secret(settings["key"])

        def __call__(self, args, ctx):
            return {}

    lab.offer("tool", "wants", Wants)
    lab.settings(abilities={"wants": {"summary": "Wants.", "handler": {"tool": "wants"}, "with": {"key": pasted}}})
    with pytest.raises(DeedbookError, match="looks like a key") as caught:
        lab.kernel()
    assert pasted not in str(caught.value)
    files = [file for file in lab.path.rglob("*") if file.is_file() and ".system" not in file.parts]
    assert files
    assert not [file for file in files if pasted.encode() in file.read_bytes()]


def test_every_fault_of_a_workspace_is_told_at_once(lab):
    lab.settings(
        abilities={name: {"summary": "x.", "handler": {"tool": f"missing-{name}"}} for name in ("a", "b")},
        policies={"p": {"kind": "missing-kind"}},
    )
    with pytest.raises(DeedbookError) as caught:
        lab.kernel()
    assert {error.code for error in caught.value.errors} == {"PLUGIN_MISSING"}
    assert len(caught.value.errors) == 3


def test_state_folder_of_another_workspace_is_refused(lab, tmp_path):
    shared = str(tmp_path / "shared-state")
    lab.settings(state=shared)
    lab.kernel()
    other = Lab(tmp_path / "other")
    other.settings(state=shared)
    assert code(other.kernel) == "STATE_IN_USE"


# --- what it holds ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc here")
def test_kernel_and_sessions_give_back_every_descriptor(lab):
    lab.tool("act", lambda args, ctx: None, effects="write")
    catalogue = lab.catalogue()

    def live():
        with open_kernel(lab.path, catalogue=catalogue) as kernel:
            for _ in range(3):
                with kernel.session() as session:
                    session.call("act", {})

    live()
    before, threads = descriptors(), threading.active_count()
    live()
    assert (descriptors(), threading.active_count()) == (before, threads)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc here")
def test_kernel_that_cannot_be_opened_gives_back_every_descriptor(lab):
    lab.tool("act", lambda args, ctx: None)
    lab.hook("broken", "PreToolUse", lambda call: None, match={"kinds": ["tool"]})
    catalogue = lab.catalogue()
    code(open_kernel, lab.path, catalogue=catalogue)
    before = descriptors()
    code(open_kernel, lab.path, catalogue=catalogue)
    assert descriptors() == before


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc here")
def test_session_that_is_refused_or_cannot_begin_gives_back_every_descriptor(lab):
    lab.hook("gate", "SessionStart", lambda *given: deny("no"))
    kernel = lab.kernel()
    with pytest.raises(SessionRefused):
        kernel.session()
    before = descriptors()
    with pytest.raises(SessionRefused):
        kernel.session()
    assert descriptors() == before


def broken(fd):
    raise OSError(5, "input/output error")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc here")
def test_session_whose_first_line_cannot_be_made_durable_does_not_begin(lab):
    lab.settings(profile="p", profiles={"p": {"durability": "always"}})
    kernel = lab.kernel()
    with kernel.session():
        pass
    before = descriptors()
    with pytest.raises(LedgerError):
        kernel.session(fdatasync=broken)
    assert descriptors() == before


def test_session_whose_head_cannot_be_written_down_does_not_begin(lab, monkeypatch):
    def full(*_):
        raise LedgerError(fault("LEDGER_BROKEN", "the disk is full"))

    kernel = lab.kernel()
    monkeypatch.setattr("deedbook.maintenance.identity.Identity.head", full)
    with pytest.raises(LedgerError):
        kernel.session()
    (one,) = list_sessions(kernel.state)
    assert one.state == "interrupted"


def test_closing_a_kernel_twice_is_fine(lab):
    kernel = lab.kernel()
    kernel.close()
    kernel.close()


def test_closed_kernel_says_that_it_is_closed(lab):
    kernel = lab.kernel()
    session = kernel.session()
    kernel.close()
    assert code(kernel.session) == "KERNEL_CLOSED"
    assert code(kernel.recover) == "KERNEL_CLOSED"
    with pytest.raises(LedgerError, match="end sessions before the kernel"):
        session.end(ok=True, reason="late")


def test_session_is_only_of_a_principal_or_a_client(lab):
    lab.settings(principals={"ci": {"roles": ["builder"]}})
    kernel = lab.kernel()
    with pytest.raises(BindingError, match=r"not str: kernel\.principal\('ci'\)"):
        kernel.session(principal="ci")
    with pytest.raises(BindingError, match="not NoneType"):
        kernel.session(principal=None)
    assert kernel.session(principal=kernel.principal("ci")).principal.id == "ci"


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda kernel: open_kernel(None), "path must be str or PathLike, not NoneType"),
        (lambda kernel: open_kernel(".", profile=5), "profile must be str or None, not int"),
        (lambda kernel: kernel.session(5), "purpose must be str, not int"),
        (lambda kernel: kernel.session(wait="1"), "wait must be int or float or None, not str"),
        (lambda kernel: kernel.principal(5), "name must be str, not int"),
        (lambda kernel: kernel.client(None, via="python"), "name must be str, not NoneType"),
        (lambda kernel: kernel.session().call(5, {}), "ability must be str, not int"),
        (lambda kernel: kernel.session().call(["echo"], {}), "ability must be str, not list"),
        (lambda kernel: kernel.session().before(None, {}), "ability must be str, not NoneType"),
        (lambda kernel: asyncio.run(kernel.session().acall([], {})), "ability must be str, not list"),
        (lambda kernel: kernel.session().submit(5), "prompt must be str, not int"),
        (lambda kernel: kernel.session().run(None), "prompt must be str, not NoneType"),
    ],
)
def test_value_of_a_wrong_type_is_a_type_error_that_names_the_argument(lab, call, what):
    with pytest.raises(TypeError, match=f"^{what}$"):
        call(lab.kernel())


def test_unknown_purpose_is_refused_before_anything_is_recorded(lab):
    kernel = lab.kernel()
    with pytest.raises(DeedbookError, match="purpose='runs' is none of open, run, call; did you mean"):
        kernel.session("runs")
    assert not list(lab.state.glob("sessions/*"))


def test_sessions_of_one_kernel_live_at_the_same_time_each_with_its_own_ledger(lab):
    lab.tool("act", lambda args, ctx: args["n"])
    kernel = lab.kernel()
    with kernel.session() as one, kernel.session() as two:
        assert [session.call("act", {"n": n}).value for n, session in enumerate((one, two, one))] == [0, 1, 2]
    assert [event.payload["result"] for event in lab.all("tool.result", one)] == [0, 2]
    assert [event.payload["result"] for event in lab.all("tool.result", two)] == [1]


def test_sessions_begin_in_many_threads_and_all_heads_are_written_down(lab):
    kernel = lab.kernel()

    def live(_):
        with kernel.session() as session:
            return session.id

    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(live, range(24)))
    assert len(set(ids)) == 24
    heads = [event.payload for event in read(lab.state / "workspace") if event.type == "ledger.session"]
    assert {head["session_id"] for head in heads if head["state"] == "ended"} == set(ids)
    assert [each.state for each in list_sessions(kernel.state)] == ["ended"] * 24


def test_charter_is_recorded_once_and_again_when_it_changed(lab):
    lab.tool("act", lambda args, ctx: None)
    lab.kernel().close()
    lab.kernel().close()
    lab.settings(enforcement="observe")
    lab.kernel().close()
    charters = [event.payload for event in read(lab.state / "workspace") if event.type == "ledger.charter"]
    assert len(charters) == 2
    assert charters[0]["previous"] is None
    assert charters[1]["previous"] == charters[0]["digest"]
    assert charters[1]["looser"]


def test_session_names_the_charter_that_is_kept_under_its_digest(lab):
    with lab.session():
        pass
    digest = lab.payload("session.start")["charter"]
    kept = [place for place in lab.state.rglob("*") if digest in place.name]
    assert kept


def test_reading_the_version_of_the_kernel_needs_no_workspace():
    assert version("deedbook") == VERSION
