"""Many processes in one log, killed anywhere: it stays one consistent tree, and what was covered stays covered."""

import json
import random
import signal
import subprocess
import sys

import logs
import pytest

from deedbook.format.schema import Schemas, data_folder
from deedbook_audit.verify import verify_file

# A process that lives on irreversible calls, each in a session of two, and says which were acknowledged.
VICTIM = """
import sys
from pathlib import Path
from deedbook_testing import Lab

lab = Lab(Path(sys.argv[1]))
lab.allow_irreversible()
lab.tool("drop", lambda args, ctx: args, effects="irreversible")
kernel = lab.kernel()
while True:
    session = kernel.session()
    for n in range(2):
        assert session.call("drop", {"n": n}).value == {"n": n}
        print(session.id, session.ledger.size, flush=True)
    session.end(ok=True, reason="done")
"""
SCHEMAS = Schemas.load(data_folder("schemas"))


def lived(lab, acknowledged):
    """Start a process; let it live until it has acknowledged so many calls; return them when it was killed."""
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(lab.path)], stdout=subprocess.PIPE, text=True)
    try:
        yield
        said = [victim.stdout.readline().split() for _ in range(acknowledged)]
        yield
        victim.send_signal(signal.SIGKILL)
        said += [line.split() for line in victim.stdout.read().splitlines() if line.count(" ") == 1]
    finally:
        victim.kill()
        victim.stdout.close()
        victim.wait()
    yield [(session, int(size)) for session, size in said]


@pytest.mark.parametrize("seed", [1])
def test_log_of_many_processes_that_are_killed_is_one_tree_and_covers_what_they_acknowledged(lab, seed):
    from test_checkpoints import ask, rotate

    lab.allow_irreversible()
    lab.tool("drop", lambda args, ctx: args, effects="irreversible")
    lab.kernel().close()
    rotate(lab)
    dice = random.Random(seed)
    acknowledged = []
    for count in (3, 1):
        victims = [lived(lab, dice.randint(1, 3)) for _ in range(count)]
        for _ in range(2):
            for each in victims:
                next(each)
        acknowledged += [said for each in victims for said in next(each)]
    covered = logs.covered(lab.state)
    for session, size in acknowledged:
        assert covered[session] >= size - 1  # the intent; its outcome came after
    assert len(lab.kernel().recover().died) == 4
    ask(lab)
    logs.audit(lab.state)
    covered = logs.covered(lab.state)
    for path in lab.state.glob("sessions/*/.events.jsonl"):
        lines = path.read_bytes().splitlines()
        assert covered[path.parent.name] == len(lines)
        assert json.loads(lines[-1])["event_type"] == "session.end"
        assert verify_file(path, schemas=SCHEMAS).sound
