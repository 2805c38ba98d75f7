"""A ledger of each form that was ever released is read, replayed and verified as it was on the day it was made."""

import json

import goldens
from cases import for_each
from goldens import GOLDEN, NAME, told

RELEASED = [line.split()[1] for line in (GOLDEN.parent / "released_schemas.sha256").read_text().splitlines()]


@for_each("folder", goldens.ledgers(), ids=goldens.named)
def test_golden_ledger_says_what_it_said(folder):
    said = dict(told(folder))
    kept = {place.name for place in folder.iterdir() if place.is_file()} - {NAME}
    assert kept == set(said)
    for name, text in said.items():
        assert text == (folder / name).read_text(encoding="utf-8"), f"{name}: `python tests/goldens.py` writes it anew"


def test_every_released_type_stands_in_a_golden_ledger():
    types = set()
    for folder in GOLDEN.glob("1.1/*"):
        types |= {json.loads(line)["event_type"] for line in (folder / NAME).read_bytes().splitlines()}
    assert {f"event_{name.replace('.', '_')}_v1.json" for name in types} >= set(RELEASED)


def test_golden_ledgers_have_not_changed():
    kept = dict(line.split()[::-1] for line in (GOLDEN / "sha256").read_text().splitlines())
    assert kept == goldens.digests()
