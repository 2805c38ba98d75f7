"""What is approved is what runs: a request has the digests of the files that its program is started with."""

import json
from hashlib import sha256

import pytest
from commandline import Place, ended, until

from deedbook.call.named_files import describe_program, find_changed

PAY = "import sys\nopen('paid', 'a').write(sys.argv[1])\n"


@pytest.fixture
def desk(tmp_path):
    """Give a workspace with a payment by a script, which needs a person; ada has a key."""
    place = Place(tmp_path / "workspace")
    place.env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    pay = {
        "summary": "Pay.", "handler": {"tool": "process"}, "effects": "irreversible", "tags": ["approval-gate"],
        "with": {"argv": ["python3", "bin/pay.py", "{to}", "--rates=bin/rates.csv", "/etc/passwd"]},
        "schema_in": {"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}},
        "schema_out": True,
    }  # fmt: skip
    settings = {
        "schema_version": "v1",
        "principals": {"ada": {"key": "ada.pub", "roles": ["approver"]}},
        "abilities": {"pay": pay},
    }
    place.system("deedbook.yaml", json.dumps(settings))
    place.write("bin/pay.py", PAY)
    place.write("bin/rates.csv", "1\n")
    place.run("keys", "new", "ada", "--out", ".system/ada.pub", status=0)
    return place


def parked(place):
    told = place.run("call", "pay", "--args", '{"to": "ada"}', "--json", status=3).fits("output_call_v1")
    return told["denied"][0]["approval"]


def test_approver_sees_the_digest_of_each_file_and_what_has_none(desk):
    identity = parked(desk)
    shown = desk.run("approvals", "show", identity, "--json", status=0).fits("output_approval_v1")["request"]
    digest = sha256(PAY.encode()).hexdigest()
    assert shown["program"] == {
        "files": {"bin/pay.py": digest, "bin/rates.csv": sha256(b"1\n").hexdigest()},
        "unpinned": ["python3", "/etc/passwd"],
    }
    text = desk.run("approvals", "show", identity, status=0).out
    assert f"bin/pay.py {digest}" in text
    assert "python3, /etc/passwd: what runs may be changed after you approve" in text
    desk.run("approvals", "approve", identity, status=0)
    desk.run("approvals", "run", identity, status=0)
    assert (desk.path / "paid").read_text() == "ada"
    desk.run("verify", status=0)


@pytest.mark.parametrize(
    ("path", "change"), [("bin/pay.py", "other"), ("bin/rates.csv", "gone"), ("bin/pay.py", "link")]
)
def test_file_that_changed_after_the_approval_stops_the_call(desk, path, change):
    identity = parked(desk)
    desk.run("approvals", "approve", identity, status=0)
    place, kept = desk.path / path, (desk.path / path).read_bytes()
    place.unlink()
    if change == "other":
        place.write_text("open('robbed', 'w')\n")
    elif change == "link":
        other = desk.path.parent / "elsewhere"
        other.write_bytes(kept)
        place.symlink_to(other)
    ran = desk.run("approvals", "run", identity, status=1)
    assert "[APPROVAL_FILE_CHANGED]" in ran.err
    assert f"{path} changed after request" in ran.err
    assert not (desk.path / "paid").exists()
    desk.run("verify", status=0)
    place.unlink(missing_ok=True)
    place.write_bytes(kept)
    desk.run("approvals", "run", identity, status=0)  # the approval was not used up
    assert (desk.path / "paid").read_text() == "ada"
    desk.run("verify", status=0)


def test_call_with_a_changed_file_does_not_use_the_approval_of_the_old_one(desk):
    identity = parked(desk)
    desk.run("approvals", "approve", identity, status=0)
    desk.write("bin/pay.py", "open('robbed', 'w')\n")
    assert parked(desk) != identity
    assert not (desk.path / "robbed").exists()


def test_file_that_changes_while_a_process_waits_for_the_approval_stops_it(desk):
    process = desk.start_fork("call", "pay", "--args", '{"to": "ada"}', "--wait", "50")
    until(lambda: "waiting" in desk.here("approvals", "list").out)
    desk.write("bin/pay.py", "open('robbed', 'w')\n")
    desk.run("approvals", "approve", desk.request(), status=0)
    assert "[APPROVAL_FILE_CHANGED]" in ended(process).err
    assert not (desk.path / "robbed").exists()
    desk.run("verify", status=0)


class Starter:
    def __init__(self, *argv, folder=""):
        self.argv, self.folder = argv, folder

    def command_line(self, args):
        return list(self.argv), self.folder


def test_files_are_found_literally_and_only_in_the_workspace(tmp_path):
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (tmp_path / "outside").write_text("x")
    (root / "a/link").symlink_to(tmp_path / "outside")
    for path in ("run", "a/run", "a/b/c"):
        (root / path).write_text(path)

    def named(*argv, folder=""):
        found = describe_program(Starter(*argv, folder=folder), {}, root)
        return sorted(found["files"]), found["unpinned"]

    assert named("run") == ([], ["run"])  # it is looked up on PATH
    assert named("./run", "b/c", folder="a") == (["a/b/c", "a/run"], [])
    assert named(f"{root}/run", "../run", "@a/b/c", "-c=a/run") == (["a/b/c", "a/run", "run"], [])
    assert named("sh", "a/link") == ([], ["sh", "a/link"])
    assert named("sh", "a", "nothing", "", "x" * 5000, "\0", "/nowhere") == ([], ["sh"])
    assert named("sh", f"{tmp_path}/outside", "../outside") == ([], ["sh", f"{tmp_path}/outside", "../outside"])
    assert describe_program(object(), {}, root) is None


def test_changed_files_are_named(tmp_path):
    (tmp_path / "a").write_text("1")
    program = {"files": {"a": sha256(b"1").hexdigest(), "b": "0" * 64}}
    assert list(find_changed(program, tmp_path)) == ["b"]
