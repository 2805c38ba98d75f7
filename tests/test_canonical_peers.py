"""Canonical JSON beside others: RFC 8785's reference files, the PyPI package, and Node's own spelling of doubles."""

import json
import math
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import rfc8785

from deedbook.format import canonical
from deedbook.format.errors import IntakeError

HERE = Path(__file__).parent
VECTORS = HERE / "vectors"
ORACLE = HERE / "data" / "make_doubles.js"
TABLE = HERE / "data" / "doubles.txt"
LIMIT = 2**53 - 1

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def read(bits: str) -> float:
    """Return the double with these 64 bits in hex."""
    number: float = struct.unpack(">d", bytes.fromhex(bits))[0]
    return number


def rows() -> Iterator[tuple[float, str]]:
    """Yield each double of the committed table with Node's spelling."""
    for line in TABLE.read_text("ascii").splitlines():
        bits, spelled = line.split(" ")
        yield read(bits), spelled


def is_unsafe(spelled: str) -> bool:
    """Say whether a spelling is an integer that a double cannot tell from its neighbours."""
    return spelled.lstrip("-").isdigit() and abs(int(spelled)) > LIMIT


def ask_node(doubles: list[float]) -> list[str]:
    """Return how ``JSON.stringify`` spells *doubles*."""
    packed = struct.pack(f">{len(doubles)}d", *doubles)
    answer = subprocess.run(["node", str(ORACLE), "-"], input=packed, capture_output=True, check=True, timeout=60)
    return answer.stdout.decode("ascii").strip("[]").split(",")


def random_doubles(count: int, seed: int) -> Iterator[float]:
    """Yield doubles of every class: any bits, decimal fractions, whole numbers, and neighbours of each."""
    source = random.Random(seed)
    while count > 0:
        for number in (
            struct.unpack(">d", source.randbytes(8))[0],
            source.uniform(-1, 1) * 10.0 ** source.randint(-9, 22),
            round(source.uniform(-1e4, 1e4), source.randint(0, 6)),
            float(source.randint(-(2**54), 2**54)),
            source.randint(1, 2**52 - 1) * 5e-324,
        ):
            if math.isfinite(number):
                yield from (number, math.nextafter(number, math.inf))
                count -= 2


def test_table_covers_every_class_of_double() -> None:
    numbers = [number for number, _ in rows()]
    assert len(numbers) > 5_000
    assert len(set(numbers)) >= len(numbers) - 1
    exponents = {math.frexp(number)[1] for number in numbers}
    assert exponents >= {0, -1073, *range(-1021, 1025)}
    assert {math.copysign(1, number) for number in numbers if number == 0} == {1, -1}
    assert {5e-324, 2.2250738585072014e-308, 2.225073858507201e-308, 1.7976931348623157e308} < set(numbers)
    for power in range(-323, 309):
        near = float(f"1e{power}")
        assert {near, math.nextafter(near, 0), math.nextafter(near, math.inf)} <= set(numbers) | {0.0}


def test_doubles_of_the_table_are_spelled_as_node_spells_them() -> None:
    checked = 0
    for number, spelled in rows():
        if is_unsafe(spelled):
            with pytest.raises(IntakeError, match="send it as a string"):
                canonical.encode(number)
        else:
            assert canonical.encode(number) == spelled.encode()
            assert canonical.encode([{"n": number}]) == f'[{{"n":{spelled}}}]'.encode()
            checked += 1
    assert checked > 5_000


def test_doubles_of_the_table_are_read_back_exactly() -> None:
    for number, spelled in rows():
        if not is_unsafe(spelled):
            assert canonical.parse(spelled) == number
            assert canonical.decode(canonical.encode(number)) == number


@needs_node
def test_table_is_what_this_node_makes() -> None:
    made = subprocess.run(["node", str(ORACLE)], capture_output=True, check=True, timeout=60)
    assert made.stdout.decode("ascii") == TABLE.read_text("ascii")


@needs_node
def test_200_000_random_doubles_are_spelled_as_node_spells_them() -> None:
    doubles = list(random_doubles(210_000, seed=8785))
    spelled = ask_node(doubles)
    assert len(spelled) == len(doubles) >= 210_000
    safe = [(number, text) for number, text in zip(doubles, spelled, strict=True) if not is_unsafe(text)]
    assert len(safe) > 150_000
    for start in range(0, len(safe), 50_000):
        part = safe[start : start + 50_000]
        ours = canonical.encode([number for number, _ in part]).decode().strip("[]").split(",")
        assert ours == [text for _, text in part]


@needs_node
def test_random_doubles_that_node_spells_as_unsafe_integers_are_refused() -> None:
    source = random.Random(53)
    doubles = [source.choice((1, -1)) * 2.0 ** source.uniform(53, 69.7) for _ in range(4_000)]
    unsafe = [number for number, text in zip(doubles, ask_node(doubles), strict=True) if is_unsafe(text)]
    assert len(unsafe) > 3_500
    for number in unsafe:
        with pytest.raises(IntakeError):
            canonical.encode(number)


@pytest.mark.parametrize("name", ["arrays", "french", "structures", "unicode", "values", "weird"])
def test_reference_files_give_their_reference_bytes(name: str) -> None:
    text = (VECTORS / "rfc8785" / "input" / f"{name}.json").read_bytes()
    expected = (VECTORS / "rfc8785" / "output" / f"{name}.json").read_bytes()
    assert canonical.admit(canonical.parse(text)) == expected
    assert canonical.encode(canonical.decode(expected)) == expected
    assert rfc8785.dumps(json.loads(text)) == expected


def test_bytes_are_those_of_the_independent_package_on_random_structures() -> None:
    source = random.Random(8785)
    for _ in range(1_500):
        value = _structure(source, 4)
        assert canonical.encode(value) == rfc8785.dumps(value)


_ALPHABET = 'abz09 \0\n"\\/é\u007f\u0085\u2028\ud7ff\ue000\ufb33\uffff\U00010000\U0001f600\U0010ffff'


def _structure(source: random.Random, depth: int) -> object:
    choice = source.random()
    if depth and choice < 0.3:
        return {_text(source): _structure(source, depth - 1) for _ in range(source.randint(0, 6))}
    if depth and choice < 0.5:
        return [_structure(source, depth - 1) for _ in range(source.randint(0, 6))]
    if choice < 0.7:
        return _text(source)
    if choice < 0.8:
        return source.choice([None, True, False, 0.0, -0.0, 1.0, 1e21, 1e-7, 5e-324, LIMIT, -LIMIT])
    return source.choice([source.randint(-LIMIT, LIMIT), source.uniform(-1e3, 1e3), source.random() * 1e-5])


def _text(source: random.Random) -> str:
    return "".join(source.choices(_ALPHABET, k=source.randint(0, 4)))
