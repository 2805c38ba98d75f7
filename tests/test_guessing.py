"""What can be found by trying: a sealed value of few possibilities cannot, without its salt; some digests can."""

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest
from faults.states import State, honest
from ledgers import canonical

PINS = [f"my PIN-{number:04d}" for number in range(10_000)]
TRUE = "my PIN-4711"


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> State:
    return honest(tmp_path_factory.mktemp("honest"), log=False)


def digests(state: State) -> set[str]:
    """Return everything in the files of the state that looks like a digest, but for what lies in sealed files."""
    files = [path for path in state.state.rglob("*") if path.is_file() and path.parent.name != "sealed"]
    names = {path.name for path in state.state.rglob("sealed/*")}
    return names | {found.decode() for path in files for found in re.findall(rb"[0-9a-f]{64}", path.read_bytes())}


def trials(line: dict, value: str) -> list[bytes]:
    """Return all that a payload with *value* in its clear could have been hashed as."""
    payload = json.loads(json.dumps(line["payload"]))
    for member in payload.values():
        if isinstance(member, dict) and "text" in member:
            member["text"] = value
    return [canonical(value), value.encode(), canonical({"text": value}), canonical(payload)]


def test_sealed_value_is_not_found_by_trying_all_there_are(state: State):
    assert TRUE.encode() not in b"".join(path.read_bytes() for path in state.state.rglob("*.jsonl"))
    known = digests(state)
    lines = [json.loads(line) for line in state.lines("sealed") if b'"$sealed"' in line]
    assert len(lines) == 2
    for line in lines:
        assert not {sha256(each).hexdigest() for value in PINS for each in trials(line, value)} & known


def test_sealed_value_is_found_by_trying_with_its_salt(state: State):
    """The trial itself works: who has the sealed file has the value."""
    salt, known = state.sealed("sealed")[0].read_bytes()[:32], digests(state)
    (found,) = [value for value in PINS if sha256(salt + canonical(value)).hexdigest() in known]
    assert found == TRUE


def test_two_seals_of_one_value_have_nothing_in_common(state: State):
    files = state.sealed("sealed")
    assert len({path.read_bytes()[32:] for path in files}) == 1
    assert len({path.name for path in files}) == len({path.read_bytes()[:32] for path in files}) == 2


def test_arguments_that_a_person_is_asked_about_can_be_guessed_from_the_digest_of_the_call(
    state: State, tmp_path: Path
):
    """A limit, said in docs/reliability.md: what an approval binds is a digest without salt."""
    copy = state.copy(tmp_path / "copy")
    copy.place.here("call", "asked", "--args", json.dumps({"text": TRUE}), status=3)
    assert TRUE.encode() not in copy.file("home").read_bytes()
    known = digests(copy)

    def call(value: str) -> bytes:
        return canonical({"ability": "asked", "args": {"text": value}, "principal": "local"})

    assert [value for value in PINS if sha256(call(value)).hexdigest() in known] == [TRUE]
