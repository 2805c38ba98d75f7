"""Patches: what is read as a change of plain files, and what is refused."""

import difflib
import subprocess

import pytest
from cases import for_each
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from deedbook.contract import Failed
from deedbook_flow_swe.tools.patches import MOST_BYTES, check_patch, read_patch

HUNK = "@@ -1 +1 @@\n-old\n+new\n"
PLAIN = f"--- a/x.py\n+++ b/x.py\n{HUNK}"


def git(line, more=""):
    return f"diff --git a/x.py b/x.py\n{line}\n{more}"


def refusal(patch, allow=None, most=None):
    with pytest.raises(Failed) as caught:
        check_patch(patch, allow, most)
    assert caught.value.code == "PATCH_REFUSED"
    return str(caught.value)


def read_or_refuse(patch):
    """Return the files of a patch, or its refusal."""
    try:
        return read_patch(patch)
    except Failed as problem:
        return problem


LINES = st.lists(
    st.sampled_from(["", "a", "b", "--- a/x", "+++ b/x", "@@ -1 +1 @@", "diff --git a/x b/x", "ä\r", "\\ No"])
)
NAMES = st.sampled_from(["x", "a b.py", "deep/er/y.txt", "ünï.py", ".hidden", "a/b", "-dash"])


def text_of(lines, *, newline):
    return "\n".join(lines) + ("\n" if newline and lines else "")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(name=NAMES, old=LINES, new=LINES)
def test_patch_of_difflib_is_read_with_its_counts(name, old, new):
    assume(old != new)
    diff = list(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm=""))
    (file,) = read_patch("\n".join(diff) + "\n")
    body = diff[2:]
    assert file.path == name
    assert file.added == sum(line.startswith("+") for line in body)
    assert file.removed == sum(line.startswith("-") for line in body)


def edited(folder, name, old, new):
    """Let git compare two versions of a file, and apply its patch to the old one."""
    (folder / "old").write_bytes(old.encode())
    (folder / "new").write_bytes(new.encode())
    done = subprocess.run(
        ["git", "-c", "core.quotePath=false", "diff", "--no-index", "--no-renames", "old", "new"],
        cwd=folder, capture_output=True, check=False, env={"PATH": "/usr/bin:/bin", "GIT_CONFIG_GLOBAL": "/dev/null"},
    )  # fmt: skip
    patch = done.stdout.decode()
    for side in ("old", "new"):
        patch = patch.replace(f"a/{side}", f"a/{name}", 2).replace(f"b/{side}", f"b/{name}", 2)
    return patch


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(name=NAMES, old=LINES, new=LINES, ends=st.tuples(st.booleans(), st.booleans()))
def test_patch_of_git_is_read_and_applies(tmp_path, name, old, new, ends):
    before, after = text_of(old, newline=ends[0]), text_of(new, newline=ends[1])
    assume(before != after)
    patch = edited(tmp_path, "x", before, after)
    (file,) = read_patch(patch)
    (tmp_path / "x").write_bytes(before.encode())
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=tmp_path, input=patch.encode(), check=True)
    assert (tmp_path / "x").read_bytes() == after.encode()
    assert (file.path, file.kind) == ("x", "changed")


@settings(max_examples=60, deadline=None)
@given(
    cut=st.integers(0, 10), junk=st.sampled_from(["hello", "rename from y", "old mode 100644", "GIT binary patch", ""])
)
def test_damaged_patch_is_refused_with_a_place(cut, junk):
    lines = git("index 1234567..89abcde 100644", PLAIN + "@@ -9,2 +9,3 @@\n one\n+two\n three\n").splitlines()
    damaged = [*lines[:cut], junk, *lines[cut:]]
    found = read_or_refuse("\n".join(damaged) + "\n")
    if isinstance(found, Failed):
        assert (found.code, str(found)[:5]) == ("PATCH_REFUSED", "patch")
    else:  # an empty line may stand for an empty line of the file, where the counts allow it
        assert (junk, [file.path for file in found]) == ("", ["x.py"])


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet=st.sampled_from('ab/+- @,1\n\\"\t.'), max_size=60))
def test_any_text_is_read_or_refused(text):
    for patch in (text, PLAIN + text, f"diff --git {text}\n{PLAIN}"):
        found = read_or_refuse(patch)
        assert isinstance(found, tuple) or found.code == "PATCH_REFUSED"


@for_each(
    ("patch", "why"),
    [
        ("", "changes no file"),
        (git("old mode 100644", "new mode 100755\n"), "mode"),
        (git("new file mode 100755", "--- /dev/null\n+++ b/x.py\n@@ -0,0 +1 @@\n+x\n"), "100755"),
        (git("new file mode 120000", "--- /dev/null\n+++ b/x.py\n@@ -0,0 +1 @@\n+/etc/passwd\n"), "120000"),
        (git("index 1234567..89abcde 160000", PLAIN), "160000"),
        (git("GIT binary patch", "literal 3\nKcmZQzU|?i`\n"), "binary"),
        (git("Binary files a/x.py and b/x.py differ"), "binary"),
        ("diff --git a/x.py b/y.py\nsimilarity index 100%\nrename from x.py\n", "the same name"),
        (git("rename from x.py", "rename to y.py\n"), "renames"),
        (git("copy from x.py", "copy to y.py\n"), "renames or copies"),
        (f"--- a/x.py\n+++ b/y.py\n{HUNK}", "renames"),
        (f'--- "a/\\303\\244"\n+++ "b/\\303\\244"\n{HUNK}', "quote"),
        (f"--- x.py\n+++ x.py\n{HUNK}", "a/ or b/"),
        (f"--- /etc/passwd\n+++ /etc/passwd\n{HUNK}", "a/ or b/"),
        (PLAIN + PLAIN, "twice"),
        (PLAIN + PLAIN.replace("x.py", "X.py"), "two spellings"),
        (f"{PLAIN}index 1234567..89abcde\n", "header"),
        (git("index 1234567..89abcde"), "changes nothing"),
        (git("new file mode 100644", PLAIN), "contradict"),
        ("--- a/x.py\n+++ b/x.py\n@@ -1,2 +1 @@\n-old\n+new\n", "shorter"),
        ("--- a/x.py\n+++ b/x.py\n@@ -1 +1,1 @@\n-old\n+new\n+more\n", "header"),
        ("@@ -1 +1 @@\n-old\n+new\n", "unexpected"),
        (f"From: me\nSubject: x\n\n{PLAIN}", "header"),
        (PLAIN.replace("new", "n\0w"), "NUL"),
        ("x" * (MOST_BYTES + 1), "bytes"),
    ],
    ids=str,
)  # fmt: skip
def test_patch_that_does_more_than_change_text_is_refused(patch, why):
    assert why.lower() in refusal(patch).lower()


@pytest.mark.parametrize(
    "name",
    ["../x", "a/../x", "/x", "a//x", "./x", ".git/config", ".GIT/config", "sub/.git/hooks/x", ".git./x", ".g\u200dit/x",
     ".gitmodules", ".gitattributes", "a/.GitAttributes", ".system/deedbook.yaml", ".deedbook/x",
     ".deedbook-report.xml"],
    ids=ascii,
)  # fmt: skip
def test_patch_of_a_name_that_is_not_for_patches_is_refused(name):
    assert refusal(f"--- a/{name}\n+++ b/{name}\n{HUNK}").startswith("patch:1:")


def test_patch_outside_the_unit_or_too_large_is_refused():
    assert [file.path for file in check_patch(PLAIN, ["*.py"], 2)] == ["x.py"]
    assert "x.py" in refusal(PLAIN, allow=["src/**"])
    assert "x.py" in refusal(PLAIN, allow=["**", "!*.py"])
    assert "at most 1" in refusal(PLAIN, most=1)
    assert refusal(PLAIN, allow=[])


def test_kinds_of_files_are_those_of_the_headers():
    patch = (
        "diff --git a/new b/new\nnew file mode 100644\nindex 0000000..e69de29\n"
        "diff --git a/old b/old\ndeleted file mode 100755\nindex 1234567..0000000\n--- a/old\n+++ /dev/null\n"
        "@@ -1 +0,0 @@\n-x\n\\ No newline at end of file\n"
        f"diff --git a/x.py b/x.py\nindex 1234567..89abcde 100755\n{PLAIN}"
    )
    found = [(file.path, file.kind, file.added, file.removed) for file in read_patch(patch)]
    assert found == [("new", "added", 0, 0), ("old", "removed", 0, 1), ("x.py", "changed", 1, 1)]


def test_hostile_headers_take_no_long_time():
    line = "diff --git " + "a://" * 100_000 + "\n"
    assert "same name" in refusal(line + PLAIN)
    assert refusal("Binary files " + " and " * 50_000 + "\n")
