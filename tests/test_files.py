"""Files beneath a root: hostile paths, links and special files, racing writers, and death in the middle of a write."""

import errno
import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest
from cases import for_each
from hypothesis import given
from hypothesis import strategies as st

from deedbook.format import files
from deedbook.format.errors import FileRefused
from deedbook.format.files import DRAFT, Conflict, DirectoryEntry, Folder


def digest(data):
    return sha256(data).hexdigest()


def code_of(act, *args, **kwargs):
    with pytest.raises(FileRefused) as caught:
        act(*args, **kwargs)
    return caught.value.error.code


def open_descriptors():
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "root"
    made.mkdir()
    return made


@pytest.fixture
def folder(root):
    with Folder.at(root) as held:
        yield held


@pytest.fixture
def hostile(root):
    """Fill a root with everything that leads outside it or is no plain file."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (root / "plain").write_text("plain")
    (root / "sub").mkdir()
    (root / "sub/deep").write_text("deep")
    (root / "file-link").symlink_to("../outside/secret")
    (root / "inner-link").symlink_to("plain")
    (root / "dangling").symlink_to("../outside/new")
    (root / "folder-link").symlink_to("../outside")
    (root / "loop").symlink_to("loop")
    os.link(outside / "secret", root / "twin")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server, pytest.MonkeyPatch.context() as here:
        here.chdir(root)  # a socket's own name is short
        server.bind("socket")
    return outside


SPECIAL = ["file-link", "inner-link", "dangling", "folder-link", "folder-link/secret", "folder-link/new", "loop"]
SPECIAL += ["loop/x", "twin", "pipe", "pipe/x", "socket", "plain/x", "sub"]
BAD_PATHS = ["", "/", "/etc/passwd", "..", ".", "../outside/secret", "../rootX/f", "sub/../../outside/secret", "sub/.."]
BAD_PATHS += [
    "./plain",
    "sub//deep",
    "sub/",
    "a\0b",
    "plain\0",
    "a\nb",
    "a\rb",
    "a\x1b[2Jb",
    "a\x7fb",
    "a\x85b",
    "a\udcffb",
]
BAD_PATHS += ["x" * 5000, "x/" * 2500 + "x", "é" * 2100, "x" * 256, f"sub/{'x' * 300}", DRAFT, f"sub/{DRAFT}"]
ACTS = {
    "open": lambda folder, path: folder.open(path),
    "read": lambda folder, path: folder.read(path, limit=100),
    "append": lambda folder, path: folder.append(path, create=False),
    "replace": lambda folder, path: folder.replace(path, b"mine"),
    "replace-absent": lambda folder, path: folder.replace(path, b"mine", expected=""),
    "replace-known": lambda folder, path: folder.replace(path, b"mine", expected=digest(b"secret")),
}
ON_NAMES = {
    "append-new": lambda folder, path: folder.append(path, create=True),
    "sub": lambda folder, path: folder.sub(path),
    "sub-new": lambda folder, path: folder.sub(path, create=True),
    "make": lambda folder, path: folder.make(path),
    "exists": lambda folder, path: folder.exists(path),
    "remove": lambda folder, path: folder.remove(path),
}


def untouched(outside):
    return os.listdir(outside) == ["secret"] and (outside / "secret").read_text() == "secret"


# --- what is refused --------------------------------------------------------------------------------------------------


@for_each("path", BAD_PATHS, ids=lambda path: ascii(path)[:24])
@for_each("act", [*ACTS.values(), *ON_NAMES.values()], ids=[*ACTS, *ON_NAMES])
def test_path_that_breaks_the_rules_is_refused_by_every_act(folder, hostile, act, path):
    assert code_of(act, folder, path) == "PATH_REFUSED"
    assert untouched(hostile)


@for_each("path", SPECIAL)
@for_each("act", ACTS.values(), ids=ACTS)
def test_link_or_special_file_is_refused_by_every_act_on_files(folder, hostile, act, path):
    assert code_of(act, folder, path) == "PATH_REFUSED"
    assert untouched(hostile)


@for_each("path", ["folder-link", "folder-link/new", "loop", "dangling", "plain", "pipe", "file-link"])
@for_each("create", [False, True])
def test_folder_is_never_entered_through_a_link(folder, hostile, path, create):
    assert code_of(folder.sub, path, create=create) == "PATH_REFUSED"
    assert untouched(hostile)


@for_each("path", ["folder-link/new", "folder-link/secret", "loop/x", "plain/x"])
@for_each("act", ON_NAMES.values(), ids=ON_NAMES)
def test_name_beyond_a_link_is_refused_by_every_act_on_names(folder, hostile, act, path):
    assert code_of(act, folder, path) == "PATH_REFUSED"
    assert untouched(hostile)


@pytest.mark.parametrize("path", ["file-link", "dangling", "twin", "pipe", "plain", "sub"])
def test_append_makes_no_file_where_a_name_is_taken(folder, hostile, path):
    with pytest.raises(FileExistsError):
        folder.append(path, create=True)
    assert untouched(hostile)


@pytest.mark.skipif(not Path("/dev/null").is_char_device(), reason="no device to try")
def test_device_is_refused():
    with Folder.at("/dev") as devices:
        for act in (ACTS["open"], ACTS["append"], ACTS["replace-known"]):
            assert code_of(act, devices, "null") == "PATH_REFUSED"


def test_refusal_names_path_and_reason_on_one_line(folder, hostile):
    for path in [*BAD_PATHS, *SPECIAL]:
        with pytest.raises(FileRefused) as caught:
            folder.open(path)
        text = str(caught.value)
        assert text.isprintable()
        assert path[:100] in text or ascii(path[:100])[1:-1] in text
        assert len(text) < 600


def test_long_name_is_accepted_up_to_the_limit_of_the_rules():
    files._parts("/".join(["x" * 200] * 20))
    assert code_of(files._parts, "/".join(["x" * 200] * 21)) == "PATH_REFUSED"


@given(st.text())
def test_path_is_either_refused_or_split_into_honest_components(path):
    try:
        parts = files._parts(path)
    except FileRefused:
        return
    assert "/".join(parts) == path
    assert not {"", ".", ".."} & set(parts)
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in path)


# --- roots and folders ------------------------------------------------------------------------------------------------


def test_root_itself_may_be_reached_through_a_link(root):
    (root / "a").write_text("a")
    (root.parent / "way").symlink_to("root")
    with Folder.at(root.parent / "way") as folder:
        assert folder.read("a", limit=1) == b"a"


def test_root_is_made_private_with_what_is_above_it(tmp_path):
    with Folder.at(tmp_path / "a/b", create=True) as folder:
        assert folder.path == str(tmp_path / "a/b")
    assert [stat.S_IMODE((tmp_path / part).stat().st_mode) for part in ("a", "a/b")] == [0o700, 0o700]


def test_root_that_is_absent_or_no_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError):
        Folder.at(tmp_path / "none")
    for wrong in ("file", "file/below", "a\0b"):
        for create in (False, True):
            assert code_of(Folder.at, f"{tmp_path}/{wrong}", create=create) == "PATH_REFUSED"


def test_root_stays_the_folder_it_was_when_its_name_changes(root, folder):
    (root / "a").write_text("ours")
    root.rename(root.parent / "moved")
    root.mkdir()
    (root / "a").write_text("theirs")
    assert folder.read("a", limit=4) == b"ours"


def test_sub_holds_a_folder_of_its_own(root, folder):
    with folder.sub("a/b", create=True) as sub:
        sub.replace("c", b"c")
        assert sub.path == f"{root}/a/b"
    assert folder.read("a/b/c", limit=1) == b"c"
    assert stat.S_IMODE((root / "a/b").stat().st_mode) == 0o700
    with pytest.raises(FileNotFoundError):
        folder.sub("none")


def test_make_is_fine_with_what_exists(root, folder):
    folder.make("a/b")
    folder.make("a/b")
    assert folder.scan("a") == [DirectoryEntry("b", True, 0)]


@pytest.mark.parametrize(
    ("act", "synced"),
    [
        (lambda root: Folder.at(root / "x/y", create=True), ["", "x"]),
        (lambda root: Folder.at(root).make("x/y"), ["", "x"]),
        (lambda root: Folder.at(root).sub("x/y", create=True), ["", "x"]),
        (lambda root: Folder.at(root).replace("x/y/a", b""), ["", "x", "x/y"]),
        (lambda root: os.close(Folder.at(root).append("log", create=True)), [""]),
        (lambda root: Folder.at(root).remove("old"), [""]),
        (lambda root: Folder.at(root).sync(), [""]),
    ],
    ids=["at", "make", "sub", "replace", "append", "remove", "sync"],
)
def test_every_folder_with_a_changed_name_is_synced(root, monkeypatch, act, synced):
    (root / "old").touch()
    fsync, numbers = os.fsync, []
    monkeypatch.setattr(os, "fsync", lambda fd: numbers.append(os.fstat(fd).st_ino) or fsync(fd))
    act(root)
    folders = {path.stat().st_ino: path for path in [root, *root.rglob("*")] if path.is_dir()}
    assert [folders[number] for number in numbers if number in folders] == [root / path for path in synced]


def test_closed_folder_reaches_nothing(folder):
    folder.close()
    folder.close()
    for act in (lambda: folder.open("plain"), folder.scan, lambda: folder.replace("a", b"")):
        with pytest.raises(OSError, match="Bad file descriptor"):
            act()


def test_forgotten_folder_gives_its_descriptor_back(root):
    before = open_descriptors()
    Folder.at(root)
    assert open_descriptors() == before


def test_no_act_leaks_a_descriptor(folder, hostile):
    before = open_descriptors()
    for act in [*ACTS.values(), *ON_NAMES.values()]:
        for path in [*SPECIAL, "sub/none/none", "../x"]:
            with suppress(OSError, FileRefused, Conflict):
                act(folder, path)
            folder.scan()
    assert open_descriptors() <= before + 1  # "pipe" was removed and made anew as a file that is held open
    assert untouched(hostile)


def test_descriptors_are_not_inherited(folder, hostile):
    with folder.open("plain") as file, folder.sub("sub") as sub:
        held = [file.fileno(), sub._fd, folder._fd, folder.append("sub/deep", create=False)]
        assert not any(os.get_inheritable(fd) for fd in held)
        os.close(held[-1])


# --- reading and listing ----------------------------------------------------------------------------------------------


def test_absent_file_is_named_whole(root, folder):
    for path in ("none", "none/none"):
        with pytest.raises(FileNotFoundError) as caught:
            folder.open(path)
        assert caught.value.filename == f"{root}/{path}"


@pytest.mark.parametrize("size", [0, 1, 10])
def test_read_gives_whole_files_up_to_the_limit(root, folder, size):
    (root / "a").write_bytes(b"x" * size)
    assert folder.read("a", limit=10) == b"x" * size


def test_read_refuses_more_than_the_limit(root, folder):
    (root / "a").write_bytes(b"x" * 11)
    assert code_of(folder.read, "a", limit=10) == "INTAKE_REFUSED"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no file that pretends to be empty")
def test_read_is_not_deceived_by_a_file_that_says_it_is_empty():
    with Folder.at("/proc/self") as process:
        assert code_of(process.read, "status", limit=10) == "INTAKE_REFUSED"
        assert process.read("status", limit=100_000).endswith(b"\n")


def test_read_takes_no_more_memory_than_the_file_needs(root, folder):
    """The limit may be a gibibyte, which a small machine does not have."""
    (root / "a").write_bytes(b"x")
    tracemalloc.start()
    try:
        assert folder.read("a", limit=1 << 30) == b"x"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_scan_leaves_out_links_special_files_and_names_no_path_may_have(root, folder, hostile):
    for name in (b"new\nline", b"\xff", DRAFT.encode()):
        with open(os.path.join(os.fsencode(root), name), "wb"):
            pass
    assert folder.scan() == [DirectoryEntry("plain", False, 5), DirectoryEntry("sub", True, 0)]
    assert folder.scan("sub") == [DirectoryEntry("deep", False, 4)]


@pytest.mark.parametrize("path", ["folder-link", "plain", "pipe", "..", "/"])
def test_scan_refuses_what_is_no_folder_beneath_the_root(folder, hostile, path):
    assert code_of(folder.scan, path) == "PATH_REFUSED"


def test_scan_works_for_many_at_once(root, folder):
    for number in range(300):
        (root / f"{number:03}").touch()
    with ThreadPoolExecutor(8) as readers:
        lengths = set(readers.map(lambda _: len(folder.scan()), range(40)))
    assert lengths == {300}


def test_every_scanned_file_can_be_opened(folder, hostile):
    for found in folder.scan():
        if not found.folder:
            assert len(folder.read(found.name, limit=100)) == found.size


def test_exists_says_what_a_name_stands_for_without_following_it(folder, hostile):
    assert [folder.exists(path) for path in ("plain", "sub", "dangling", "pipe")] == [True] * 4
    assert [folder.exists(path) for path in ("none", "sub/none", "none/none")] == [False] * 3


def test_remove_takes_the_name_and_nothing_behind_it(root, folder, hostile):
    for path in ("plain", "sub/deep", "file-link", "folder-link", "twin"):
        folder.remove(path)
    assert untouched(hostile)
    with pytest.raises(FileNotFoundError):
        folder.remove("plain")
    assert code_of(folder.remove, "sub") == "PATH_REFUSED"


# --- appending --------------------------------------------------------------------------------------------------------


def test_append_makes_a_private_file_and_writes_only_at_its_end(root, folder):
    fd = folder.append("log", create=True)
    try:
        os.write(fd, b"one\n")
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, b"two\n")
        assert os.pread(fd, 100, 0) == b"one\ntwo\n"
    finally:
        os.close(fd)
    assert stat.S_IMODE((root / "log").stat().st_mode) == 0o600


def test_append_without_create_wants_a_file(folder):
    with pytest.raises(FileNotFoundError):
        folder.append("log", create=False)


def test_append_gives_no_file_away_when_its_folder_cannot_be_synced(folder, monkeypatch):
    before = open_descriptors()
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match="Input/output"):
        folder.append("log", create=True)
    assert open_descriptors() == before


# --- replacing --------------------------------------------------------------------------------------------------------


def failing(*_, **__):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_replace_writes_what_it_says(root, folder):
    assert folder.replace("a", b"one", expected="") == digest(b"one")
    assert folder.replace("a", b"two", expected=digest(b"one")) == digest(b"two")
    assert folder.replace("a", b"", expected=None) == digest(b"")
    assert folder.replace("a", b"four", expected=digest(b"")) == digest(b"four")
    assert (root / "a").read_bytes() == b"four"
    assert os.listdir(root) == ["a"]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_replace_accepts_the_digest_of_the_last_write_and_no_other(tmp_path_factory, contents):
    with Folder.at(tmp_path_factory.mktemp("root")) as folder:
        last = ""
        for data in contents:
            for wrong in {"", digest(b"never written"), last.upper(), digest(data)} - {last}:
                with pytest.raises(Conflict):
                    folder.replace("a", b"mine", expected=wrong)
            last = folder.replace("a", data, expected=last)
            assert last == digest(data)


@pytest.mark.parametrize("expected", ["", digest(b""), digest(b"other"), "nonsense"])
def test_replace_changes_nothing_on_a_conflict(root, folder, expected):
    (root / "a").write_bytes(b"theirs")
    with pytest.raises(Conflict) as caught:
        folder.replace("a", b"mine", expected=expected)
    assert caught.value.error.code == "WRITE_CONFLICT"
    assert digest(b"theirs") in str(caught.value)
    assert (root / "a").read_bytes() == b"theirs"
    assert os.listdir(root) == ["a"]


@pytest.mark.parametrize("path", ["a", "none/a"])
def test_replace_of_an_absent_file_is_a_conflict_and_makes_no_folder(root, folder, path):
    with pytest.raises(Conflict, match="does not exist"):
        folder.replace(path, b"mine", expected=digest(b"theirs"))
    assert os.listdir(root) == []


@pytest.mark.parametrize(("mode", "above"), [(0o600, 0o700), (0o640, 0o750), (0o644, 0o755)])
def test_replace_makes_folders_as_passable_as_the_file_is_readable(root, folder, mode, above):
    before = os.umask(0o022)
    try:
        folder.replace("x/y/a", b"", mode=mode)
    finally:
        os.umask(before)
    assert [stat.S_IMODE((root / part).stat().st_mode) for part in ("x", "x/y", "x/y/a")] == [above, above, mode]


@pytest.mark.parametrize(("old", "new"), [(0o755, 0o755), (0o600, 0o600), (0o666, 0o666), (0o4755, 0o755)])
def test_replace_keeps_the_permissions_but_no_special_bit(root, folder, old, new):
    (root / "a").touch()
    (root / "a").chmod(old)
    folder.replace("a", b"x", mode=0o644)
    assert stat.S_IMODE((root / "a").stat().st_mode) == new


def test_replace_takes_the_place_of_a_draft_that_was_left_behind(root, folder):
    for leave in (lambda: (root / DRAFT).write_text("half"), lambda: (root / DRAFT).symlink_to("../outside")):
        leave()
        folder.replace("a", b"whole")
        assert os.listdir(root) == ["a"]
    assert not (root.parent / "outside").exists()


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_replace_that_fails_leaves_the_old_file_and_no_draft(root, folder, monkeypatch, call):
    (root / "a").write_bytes(b"old")
    monkeypatch.setattr(os, call, failing)
    with pytest.raises(OSError, match="Input/output"):
        folder.replace("a", b"new")
    assert (root / "a").read_bytes() == b"old"
    assert os.listdir(root) == ["a"]


def test_replace_tells_when_the_new_name_could_not_be_made_durable(root, folder, monkeypatch):
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: failing() if stat.S_ISDIR(os.fstat(fd).st_mode) else fsync(fd))
    with pytest.raises(OSError, match="Input/output"):
        folder.replace("a", b"new")
    assert os.listdir(root) == ["a"]


def test_replace_completes_short_writes(root, folder, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    folder.replace("a", bytes(range(100)))
    assert (root / "a").read_bytes() == bytes(range(100))


def test_replace_fails_where_a_write_takes_nothing(root, folder, monkeypatch):
    (root / "a").write_bytes(b"old")
    monkeypatch.setattr(os, "write", lambda fd, data: 0)
    with pytest.raises(OSError, match="takes no more bytes"):
        folder.replace("a", b"new")
    assert (root / "a").read_bytes() == b"old"


def test_replace_syncs_the_file_before_it_gets_its_name_and_the_folder_after(folder, monkeypatch):
    calls = []
    for name in ("fsync", "rename"):
        real = getattr(os, name)

        def noted(*args, _name=name, _real=real, **kwargs):
            kind = "folder" if _name == "fsync" and stat.S_ISDIR(os.fstat(args[0]).st_mode) else "file"
            calls.append(f"{_name} {kind}")
            return _real(*args, **kwargs)

        monkeypatch.setattr(os, name, noted)
    folder.replace("a", b"x")
    assert calls == ["fsync file", "rename file", "fsync folder"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device to write to")
def test_replace_on_a_full_disk_leaves_the_old_file(root, folder, monkeypatch):
    (root / "a").write_bytes(b"old")
    full = os.open("/dev/full", os.O_WRONLY)
    write = os.write
    monkeypatch.setattr(os, "write", lambda _, data: write(full, data))
    with pytest.raises(OSError, match="No space left"):
        folder.replace("a", b"new")
    os.close(full)
    assert (root / "a").read_bytes() == b"old"
    assert os.listdir(root) == ["a"]


def test_replace_waits_for_the_folder_and_says_when_it_gets_it_not(root, folder, monkeypatch):
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.02)
    other = os.open(root, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(Conflict) as caught:
        folder.replace("a", b"x")
    assert caught.value.error.retryable
    assert os.listdir(root) == []
    os.close(other)
    folder.replace("a", b"x")


def test_replace_lets_one_of_two_racing_writers_win(root, folder):
    (root / "a").write_bytes(b"0")
    for turn in range(1, 26):
        expected, ready = digest((root / "a").read_bytes()), threading.Barrier(2)

        def write(writer, turn=turn, expected=expected, ready=ready):
            ready.wait()
            try:
                return folder.replace("a", f"{turn} by {writer}".encode(), expected=expected)
            except Conflict:
                return None

        with ThreadPoolExecutor(2) as writers:
            results = list(writers.map(write, "xy"))
        assert results.count(None) == 1
        assert digest((root / "a").read_bytes()) in results


RACER = """
import sys
from deedbook.format.files import Conflict, Folder
folder, who = Folder.at(sys.argv[1]), sys.argv[2]
won = 0
for turn in range(30):
    raw = folder.read("counter", limit=1000)
    try:
        folder.replace("counter", raw + who.encode(), expected=__import__("hashlib").sha256(raw).hexdigest())
    except Conflict:
        continue
    won += 1
print(won)
"""


def test_replace_loses_no_update_among_processes(root):
    (root / "counter").write_bytes(b"")
    racers = [
        subprocess.Popen([sys.executable, "-c", RACER, str(root), who], stdout=subprocess.PIPE, text=True)
        for who in "xyz"
    ]
    won = {who: int(racer.communicate(timeout=60)[0]) for who, racer in zip("xyz", racers, strict=True)}
    text = (root / "counter").read_text()
    assert {who: text.count(who) for who in "xyz"} == won
    assert sum(won.values()) > 0


DOOMED = """
import os, signal, sys
from deedbook.format.files import Folder

folder, last = Folder.at(sys.argv[1]), int(sys.argv[2])
calls = 0

def dying(real, half=False):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == last:
            if half:
                real(args[0], args[1][: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    return call

for name in ("open", "write", "fsync", "rename", "unlink", "close", "fchmod"):
    setattr(os, name, dying(getattr(os, name), half=name == "write"))
folder.replace("a", b"new " * 10000)
"""


def test_replace_killed_at_any_system_call_leaves_the_old_file_or_the_new(root, folder):
    old, new = b"old " * 5000, b"new " * 10000
    survived, left = False, set()
    for last in range(1, 40):
        (root / "a").write_bytes(old)
        done = subprocess.run([sys.executable, "-c", DOOMED, str(root), str(last)], check=False, timeout=60)
        left.add((root / "a").read_bytes())
        if done.returncode == 0:
            survived = True
            break
        assert done.returncode == -signal.SIGKILL
    assert survived
    assert last > 8
    assert left == {old, new}
    folder.replace("a", b"after")
    assert os.listdir(root) == ["a"]


# --- while somebody renames -------------------------------------------------------------------------------------------


class Swapper:
    """Change what a name means, over and over, between something honest and a link, until told to stop."""

    def __init__(self, name, honest, link):
        self.name, self.honest, self.link = name, honest, link
        self.done = threading.Event()
        self.turns = self.aside = 0
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        while not self.done.is_set():
            self._move(self.name, self.honest)
            self._move(self.link, self.name)
            self._move(self.name, self.link)
            self._move(self.honest, self.name)
            self.turns += 1

    def _move(self, old, new):
        while True:
            try:
                return os.rename(old, new)
            except OSError:  # a writer missed the folder and made it
                self.aside += 1
                with suppress(FileNotFoundError):
                    os.rename(new, f"{self.honest}-{self.aside}")

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()


@pytest.fixture
def swapped_folder(root):
    """Make a folder that is, again and again, a link to one outside."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "a").write_text("secret")
    (root / "sub").mkdir()
    (root / "sub/a").write_text("ours")
    (root / "link").symlink_to("../outside")
    with Swapper(root / "sub", root / "honest", root / "link") as swapper:
        yield outside
    assert swapper.turns > 0


def tried(act, times):
    """Run *act* so often; return what it gave and count what was refused or absent."""
    given, refused = set(), 0
    for _ in range(times):
        try:
            given.add(act())
        except (FileRefused, FileNotFoundError, FileExistsError, Conflict):
            refused += 1
    return given, refused


def test_reader_never_gets_outside_while_a_folder_is_swapped_for_a_link(folder, swapped_folder):
    given, _ = tried(lambda: folder.read("sub/a", limit=100), 3000)
    assert given <= {b"ours"}


def test_writer_never_gets_outside_while_a_folder_is_swapped_for_a_link(folder, swapped_folder):
    tried(lambda: folder.replace("sub/a", b"ours"), 150)
    tried(lambda: folder.replace("sub/new", b"ours", expected=""), 150)
    tried(lambda: os.close(folder.append("sub/log", create=True)), 150)
    assert os.listdir(swapped_folder) == ["a"]
    assert (swapped_folder / "a").read_text() == "secret"


def test_scan_never_lists_outside_while_a_folder_is_swapped_for_a_link(folder, swapped_folder):
    (swapped_folder / "only-outside").touch()
    given, _ = tried(lambda: tuple(folder.scan("sub")), 1000)
    assert given <= {(DirectoryEntry("a", False, 4),)}


def test_reader_never_follows_while_a_file_is_swapped_for_a_link(root, folder):
    (root.parent / "secret").write_text("secret")
    (root / "a").write_text("ours")
    (root / "link").symlink_to("../secret")
    with Swapper(root / "a", root / "honest", root / "link"):
        given, _ = tried(lambda: folder.read("a", limit=100), 3000)
    assert given <= {b"ours"}


def test_reader_sees_whole_files_and_no_refusal_while_a_writer_replaces(root, folder):
    whole = [letter.encode() * 5000 for letter in "xy"]
    folder.replace("a", whole[0])
    stop = threading.Event()

    def write():
        turn = 0
        while not stop.is_set():
            turn += 1
            folder.replace("a", whole[turn % 2])

    with ThreadPoolExecutor(1) as writer:
        writing = writer.submit(write)
        try:
            seen = {folder.read("a", limit=10_000) for _ in range(1500)}
        finally:
            stop.set()
        writing.result()
    assert seen <= set(whole)


def test_open_looks_again_when_a_file_was_replaced_between_open_and_check(root, folder, monkeypatch):
    (root / "a").write_text("old")
    fstat, looked, first = os.fstat, [], (root / "a").stat().st_ino

    def replaced_meanwhile(fd):
        if not looked and fstat(fd).st_ino == first:
            looked.append(fd)
            (root / "b").write_text("new")
            os.rename(root / "b", root / "a")
        return fstat(fd)

    monkeypatch.setattr(os, "fstat", replaced_meanwhile)
    with folder.open("a") as file:
        assert file.read() == b"new"
    assert looked


@pytest.mark.parametrize("act", ["read", "replace", "append", "remove"])
def test_folder_that_becomes_a_link_after_it_was_entered_changes_nothing(root, folder, hostile, monkeypatch, act):
    (root / "sub/secret").write_text("ours")
    entered = files._enter

    def swap_after_entering(above, name, create):
        fd = entered(above, name, create)
        if name == "sub":
            os.rename(root / "sub", root / "moved")
            os.rename(root / "folder-link", root / "sub")
        return fd

    monkeypatch.setattr(files, "_enter", swap_after_entering)
    if act == "read":
        assert folder.read("sub/secret", limit=100) == b"ours"
    elif act == "replace":
        folder.replace("sub/secret", b"mine", expected=digest(b"ours"))
        assert (root / "moved/secret").read_bytes() == b"mine"
    elif act == "append":
        os.close(folder.append("sub/new", create=True))
        assert (root / "moved/new").exists()
    else:
        folder.remove("sub/secret")
        assert not (root / "moved/secret").exists()
    assert untouched(hostile)
