"""Programs whose pipes are in a plugin's hands, and what plugins share: really started, really gone."""

import os
import sys
import threading

import pytest
from commandline import until

from deedbook.contract import Failed
from deedbook.format.files import Folder
from deedbook.plugins.host import WorkspaceHost
from deedbook.programs.workers import Workers

ECHO = [sys.executable, "-c", "import sys\nfor line in sys.stdin: print(line.upper(), end='', flush=True)"]


@pytest.fixture
def host(tmp_path):
    with Folder.at(tmp_path) as folder, Workers() as workers:
        made = WorkspaceHost(folder, ["."], [], {"gh": "hunter2"}, workers=lambda: workers)
        yield made
        made.close()


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_kept_program_is_spoken_with(host):
    kept = host.keep(ECHO)
    kept.stdin.write(b"hello\n")
    assert kept.stdout.readline() == b"HELLO\n"
    assert kept.complaint().endswith("runs")
    kept.close()
    kept.close()
    assert "ended (status -9)" in kept.complaint()


def test_kept_program_sees_an_emptied_environment_and_works_where_it_is_told(host, tmp_path):
    (tmp_path / "sub").mkdir()
    code = "import os; print(sorted(os.environ), os.getcwd(), os.environ['K'], flush=True)"
    kept = host.keep([sys.executable, "-c", code], env={"K": "v"}, cwd="sub")
    told = kept.stdout.read().decode()
    kept.close()
    names = {name for name in ("HOME", "K", "LANG", "PATH") if name in told}
    assert names == {"HOME", "K", "LANG", "PATH"}
    assert not {name for name in os.environ if f"'{name}'" in told} - {*names, "LC_CTYPE"}
    assert f"{tmp_path}/sub v" in told


def test_end_of_the_complaint_is_kept_without_secrets(host):
    code = "import sys; sys.stderr.write('x' * 200000 + ' the key is hunter2\\n'); sys.exit(3)"
    kept = host.keep([sys.executable, "-c", code])
    assert kept.stdout.read() == b""
    told = until(lambda: kept.complaint() if "status 3" in kept.complaint() else "")
    assert told.endswith("the key is [secret:gh]")
    assert len(told) < 600
    kept.close()


def test_what_cannot_be_started_says_so(host):
    kept = host.keep(["/no/such/program"])
    assert kept.stdout.read() == b""
    assert until(lambda: "was not started: No such file" in kept.complaint())
    kept.close()
    with pytest.raises(Failed, match="leads outside") as failed:
        host.keep(ECHO, cwd="../..")
    assert failed.value.code == "PATH_REFUSED"


def test_closing_kills_the_whole_tree(host):
    code = "import os, subprocess, sys; p = subprocess.Popen(['sleep', '1000']); print(p.pid, flush=True); input()"
    kept = host.keep([sys.executable, "-c", code])
    child = int(kept.stdout.readline())
    kept.close()
    assert until(lambda: gone(child))


def test_kernel_that_closes_ends_it_and_its_reader(tmp_path):
    with Folder.at(tmp_path) as folder:
        with Workers() as workers:
            kept = WorkspaceHost(folder, ["."], [], {}, workers=lambda: workers).keep(ECHO)
        assert kept.stdout.read() == b""
        assert until(lambda: "ended" in kept.complaint())
        kept.close()


def test_no_program_is_kept_while_the_charter_is_compiled(tmp_path):
    with Folder.at(tmp_path) as folder, pytest.raises(Failed) as failed:
        WorkspaceHost(folder, ["."], [], {}).keep(ECHO)
    assert failed.value.code == "NOT_STARTED"


class Shared:
    def __init__(self, log):
        self.log = log

    def close(self):
        self.log.append(self)
        raise RuntimeError("closing went wrong")


def test_what_is_shared_is_made_once_and_closed_once(host):
    log = []
    made = []
    threads = [threading.Thread(target=lambda: made.append(host.share("x", lambda: Shared(log)))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, made))) == 1
    other = host.share("y", lambda: Shared(log))
    assert other is not made[0]
    host.close()
    host.close()
    assert log == [other, made[0]]
