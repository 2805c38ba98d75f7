"""Whatever stands in its arguments, its ledgers and its workspace's files, the command ends with one of its statuses.

In this process, since there are hundreds of cases: `main` without the process around it.
"""

import random
import shutil

import pytest
from cases import SampleSize
from commandline import Place, Ran
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deedbook.cli.program import sections

STATUSES = {0, 1, 2, 3, 4, 130}
ODD = [
    "",
    "-",
    "--",
    "-C",
    "--json",
    "--as",
    "..",
    "/proc",
    "\x00",
    "\x1b[31m",
    "\udcff",
    "é\u202e",
    "a" * 5000,
    "workspace",
    "-1",
]
TEXT = st.text(st.characters(exclude_characters="\x00"), max_size=12)  # no system passes a NUL
WORDS = st.one_of(st.sampled_from([*(name for listed in sections().values() for name in listed), *ODD]), TEXT)


def check(place: Place, *args: str) -> Ran:
    """Call the command; it ends with one of its statuses, in words that are safe to print."""
    ran = place.here(*args)
    printed = ran.out + ran.err
    assert ran.status in STATUSES
    assert "internal error" not in printed
    assert "Traceback" not in printed
    assert not [char for char in printed if not char.isprintable() and char != "\n"]
    return ran


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(WORDS, max_size=5))
@example(["run", "\udcff"])
@example(["call", "\udcff", "--args", "{}"])
@example(["-C", "\udcff", "abilities"])
@example(["replay", "\udcff\x1b"])
@example(["verify", "a" * 5000])
@example(["verify", "/" + "a" * 5000])
@example(["export", "é", "--as", "\udcff"])
def test_any_arguments_where_there_is_no_workspace_end_in_a_message(tmp_path, args):
    place = tmp_path / "a" / "b"  # `init ..` writes there, and no further up
    place.mkdir(parents=True, exist_ok=True)
    check(Place(place), *args)


@pytest.fixture(scope="module")
def copy(told: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Give a copy of the workspace with two sessions."""
    path = tmp_path_factory.mktemp("hostile") / "workspace"
    shutil.copytree(told.path, path)
    return Place(path)


def mutated(raw: bytes, chance: random.Random) -> bytes:
    """Return *raw* with something changed: bytes, numbers, strings, types, whole lines."""
    kind = chance.randrange(8)
    at = chance.randrange(len(raw))
    if kind == 0:
        return raw[:at] + bytes([chance.randrange(256)]) + raw[at + 1 :]
    if kind == 1:
        return raw[:at] + raw[at + chance.randrange(1, 200) :]
    if kind == 2:
        return raw[:at] + chance.randbytes(chance.randrange(1, 40)) + raw[at:]
    lines = raw.splitlines(keepends=True)
    line = chance.randrange(len(lines))
    if kind == 3:
        lines[line] = chance.choice([b"\n", b"{}\n", b"[]\n", b"null\n", b"\xff\n", b"[" * 5000 + b"\n", lines[-1]])
    elif kind == 4:
        chance.shuffle(lines)
    else:
        head, mark, payload = lines[line].partition(b'"payload":')
        values = [b"1", b"null", b"[]", b'"x"', b'{"$sealed":1}', b"true", b'{"a":{}}', b'"\\ud800"', b"1e999"]
        members = payload.split(b",")
        member = chance.randrange(len(members))
        name = members[member].rpartition(b":")[0]
        members[member] = (name + b":" if name else b"") + chance.choice(values)
        lines[line] = head + mark + b",".join(members)[:-2].rstrip(b"}\n") + b"}}\n"
    return b"".join(lines)


@pytest.mark.campaign(keep=1)
@pytest.mark.parametrize("seed", range(8))
def test_any_ledger_is_read_told_and_verified_or_refused(copy: Place, seed: int, sample_size: SampleSize):
    chance = random.Random(seed)
    session = max(copy.sessions(), key=lambda name: copy.ledger(name).stat().st_size)
    own = copy.path / ".deedbook/workspace/.events.jsonl"
    for path in (copy.ledger(session), own):
        raw = path.read_bytes()
        name = session if path != own else "workspace"
        try:
            for _ in range(sample_size(2, 5)):
                path.write_bytes(mutated(raw, chance))
                for args in (["verify"], ["replay", name], ["replay", name, "--json"], ["tree", name], ["sessions"],
                             ["export", name, "--as", "seed-002"]):  # fmt: skip
                    check(copy, *args)
        finally:
            path.write_bytes(raw)


SOURCES = [".system/deedbook.yaml", ".system/policies/baseline.yaml", ".system/hooks/allow.yaml",
           ".system/registry/low-level/echo.yaml", ".system/skills/greet/SKILL.md"]  # fmt: skip
SHAPES = [b"", b"\x00", b"\xff\xfe", b"- a\n", b"a: &x [*x]\n", b"a: !!python/object:os.system x\n", b"? [a]\n: b\n",
          b"{" * 3000, b"a: " * 500, b"a: 'x\n", b"%YAML 9\n---\n", b"a: 1\n---\nb: 2\n", b"<<: {a: b}\n", b"\t- x\n",
          "a: \u202e\x1b[31m\u0085\n".encode(), b"a" * 70_000,
          b"schema_version: v1\nprofiles: 5\nhooks: []\n"]  # fmt: skip


@pytest.mark.parametrize("path", SOURCES)
def test_any_source_is_read_or_refused_with_its_name(place: Place, path: str, sample_size: SampleSize):
    source = place.path / path
    raw = source.read_bytes()
    lines = raw.splitlines(keepends=True)
    odd = [
        raw.replace(b"v1", b"v2"),
        raw + raw,
        raw[: len(raw) // 2],
        b"".join(reversed(lines)),
        raw.replace(b": ", b":"),
    ]
    for text in [*SHAPES, *odd][:: sample_size(5, 1)]:
        source.write_bytes(text)
        ran = check(place, "abilities")
        assert ran.status == 0 or path in ran.err
        check(place, "lock")


@pytest.mark.parametrize("noun", ["policy", "hooks"])
def test_any_file_of_tests_is_read_or_refused_with_its_name(place: Place, noun: str, sample_size: SampleSize):
    path = f".system/{'policies' if noun == 'policy' else noun}/odd.test.yaml"
    for text in SHAPES[:: sample_size(4, 1)]:
        (place.path / path).write_bytes(text)
        ran = check(place, noun, "test", path, "--json")
        assert ran.status in {1, 2}
        assert path in str(ran.fits("output_error_v1")["errors"]), text
