"""Canonical bytes and their SHA-256, beside orjson as it comes (T1)."""

import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import orjson

from benchmarks.measures import Line, Measure, Value, missing
from benchmarks.rounds import Plan
from deedbook.format import canonical

try:
    import rfc8785
except ImportError:
    rfc8785 = None

_RECORDS: Final = {"150 B": 0, "2 KB": 9, "18 KB": 90, "185 KB": 905}


def run(plan: Plan) -> Iterator[Line]:
    """Measure every size."""
    for size, records in _RECORDS.items():
        yield from _at(plan, size, payload(records))
    if rfc8785 is None:
        yield missing("canonical + hash beside rfc8785", "rfc8785")


def payload(records: int) -> Any:
    """Return what an agent's tool gives: text, numbers and small objects; some 200 bytes a record and 120 more."""
    head = {"tool_name": "search", "args": {"query": "quarterly report", "limit": 20, "score": 0.25, "exact": True}}
    return {**head, "result": [_record(i) for i in range(records)], "note": None, "cursor": "b64:AAECAwQFBgc="}


def _record(number: int) -> Any:
    return {
        "id": f"doc-{number:06d}",
        "title": "Minutes of the board, second half",
        "score": 0.5 + number / 7919,
        "size": 1000 + number,
        "tags": ["finance", "board", "draft"],
        "owner": {"name": "Ada Lovelace", "active": True, "parent": None},
    }


def _at(plan: Plan, size: str, value: Any) -> Iterator[Line]:
    def floor() -> str:
        return sha256(orjson.dumps(value)).hexdigest()

    def ours() -> str:
        return canonical.digest(canonical.encode(value))

    def plain() -> str:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return sha256(text.encode()).hexdigest()

    candidates = {"floor": floor, "ours": ours, "json.dumps": plain}
    if rfc8785 is not None:
        candidates["rfc8785"] = lambda: sha256(rfc8785.dumps(value)).hexdigest()
    times = plan.take_turns(candidates)
    what = f"canonical + hash, {size}"
    yield Value(f"{what}: CPU", times.micros("ours"), "µs")
    yield Measure(f"{what}: to orjson unsorted + SHA-256", "at most", 4.5, times.ratio("ours", "floor"), 4.0)
    yield Measure(f"{what}: faster than json.dumps sorted", "at least", 2, times.ratio("json.dumps", "ours"))
    if rfc8785 is not None:
        yield Measure(f"{what}: faster than rfc8785", "at least", 7, times.ratio("rfc8785", "ours"))
