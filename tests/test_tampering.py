"""Whatever is changed in a ledger is found and named: line and check; two implementations agree on hashes and chain."""

import random
import re
from hashlib import sha256

import ledgers
from agreeing import differences, javascript
from cases import for_each
from ledgers import HASH, Book, canonical, forge
from test_verify import checks, verify

RUN = ledgers.run()
FOREIGN = ledgers.call().lines[1]
OTHER = "f" * 16


def at(number, old, new):
    """Change the line with this number, counted from 1, in its first occurrence of *old*."""

    def change(lines):
        changed = lines[number - 1].replace(old, new, 1)
        assert changed != lines[number - 1]
        return [*lines[: number - 1], changed, *lines[number:]]

    return change


def sub(number, pattern, new):
    """Change the line with this number by a regular expression."""

    def change(lines):
        changed, count = re.subn(pattern, new, lines[number - 1], count=1)
        assert count
        return [*lines[: number - 1], changed, *lines[number:]]

    return change


def field(number, name, value):
    """Change one header field to the bytes *value*."""
    return sub(number, rb'"%b":(?:"[^"]*"|null|\d+)' % name.encode(), b'"%b":%b' % (name.encode(), value))


def payload(number, raw):
    """Replace a payload by the bytes *raw*."""
    return sub(number, rb'"payload":(\{.*\})\}\n', b'"payload":%b}\n' % raw.replace(b"\\", b"\\\\"))


def forged(change):
    """Make hashes and chain right again after *change*: only other rules can find it."""
    return lambda lines: forge(change(lines))


def rebuilt(make):
    """Write a whole ledger with one thing wrong in it, everything hashed as it should be."""

    def change(_):
        book = Book()
        make(book, ledgers.start(book))
        return book.lines

    return change


def number_of(kind, nth=1):
    """Return the number of the nth line of this type."""
    mark = f'"event_type":"{kind}"'.encode()
    return [number for number, line in enumerate(RUN.lines, 1) if mark in line][nth - 1]


CALL, RESULT, ERROR = number_of("tool.call"), number_of("tool.result"), number_of("tool.error")
END, LAST = number_of("session.end"), len(RUN.lines)
ROOT = b"%016x" % 1

HASHED = {
    # a byte of a payload, of a header, of a hash
    "text of the message": (at(3, b"Ada", b"Eve"), 3, "payload_hash"),
    "argument of a call": (at(CALL, b"Hello", b"Hella"), CALL, "payload_hash"),
    "result of a call": (at(RESULT, b"Hello", b"Hella"), RESULT, "payload_hash"),
    "a denial's reason": (at(number_of("tool.denied"), b'"no"', b'"ok"'), number_of("tool.denied"), "payload_hash"),
    "payload emptied": (payload(3, b"{}"), 3, "payload_hash"),
    "payload nulled": (payload(3, b"null"), 3, "header"),
    "space in the payload": (at(3, b'{"text":', b'{"text": '), 3, "payload_hash"),
    "escape in the payload": (at(3, b"Ada", b"\\u0041da"), 3, "payload_hash"),
    "space behind the payload": (at(3, b"}}\n", b"} }\n"), 3, "payload_hash"),
    "space behind the line": (at(3, b"}}\n", b"}} \n"), 3, "header"),
    "carriage return": (at(3, b"}}\n", b"}}\r\n"), 3, "header"),
    "brace taken away": (at(3, b"}}\n", b"}\n"), 3, "payload_hash"),
    "payload hash": (field(3, "payload_hash", b'"%b"' % HASH.encode()), 3, "payload_hash"),
    "payload hash in capitals": (sub(3, rb'(?<="payload_hash":")[^"]*', lambda m: m[0].upper()), 3, "header"),
    "payload hash cut": (sub(3, rb'(?<="payload_hash":")[^"]*', lambda m: m[0][:-1]), 3, "header"),
    "previous hash": (field(3, "prev_envelope_hash", b'"%b"' % HASH.encode()), 3, "prev_envelope_hash"),
    "first previous hash": (field(1, "prev_envelope_hash", b'"%b"' % HASH.encode()), 1, "prev_envelope_hash"),
    "envelope hash": (field(3, "envelope_hash", b'"%b"' % HASH.encode()), 3, "envelope_hash"),
    "envelope hash of the last line": (field(LAST, "envelope_hash", b'"%b"' % HASH.encode()), LAST, "envelope_hash"),
    "version": (field(3, "schema_version", b'"1.2"'), 3, "envelope_hash"),
    "version of the first line": (field(1, "schema_version", b'"1.0"'), 1, "header"),
    "session": (field(1, "session_id", b'"other"'), 1, "prev_envelope_hash"),
    "session of one line": (field(3, "session_id", b'"other"'), 3, "envelope_hash"),
    "trace": (field(3, "trace_id", b'"%b"' % (b"0" * 32)), 3, "envelope_hash"),
    "seq": (field(3, "seq", b"7"), 3, "envelope_hash"),
    "time": (field(3, "ts", b'"2020-01-01T00:00:00.000Z"'), 3, "envelope_hash"),
    "type": (field(3, "event_type", b'"agent.reply"'), 3, "envelope_hash"),
    "actor": (field(3, "actor", b'"system"'), 3, "envelope_hash"),
    "principal": (field(3, "principal", b'"eve"'), 3, "envelope_hash"),
    "principal taken away": (field(3, "principal", b"null"), 3, "envelope_hash"),
    "span": (field(3, "span_id", b'"%b"' % OTHER.encode()), 3, "envelope_hash"),
    "parent": (field(RESULT, "parent_span_id", b'"%b"' % ROOT), RESULT, "envelope_hash"),
    "field added": (at(3, b',"actor"', b',"more":1,"actor"'), 3, "envelope_hash"),
    "field named twice": (at(3, b'{"sch', b'{"schema_version":"1.1","sch'), 3, "envelope_hash"),
    "field renamed": (forged(at(3, b'"prev_envelope_hash"', b'"prev_envelope_hasx"')), 3, "header"),
    # lines
    "line taken out": (lambda lines: lines[:4] + lines[5:], 5, "prev_envelope_hash"),
    "first line taken out": (lambda lines: lines[1:], 1, "prev_envelope_hash"),
    "line twice": (lambda lines: lines[:5] + lines[4:], 6, "prev_envelope_hash"),
    "lines swapped": (lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]], 5, "prev_envelope_hash"),
    "lines reversed": (lambda lines: lines[::-1], 1, "prev_envelope_hash"),
    "half of it taken out": (lambda lines: lines[:3] + lines[LAST // 2 :], 4, "prev_envelope_hash"),
    "line of another session": (lambda lines: [*lines[:3], FOREIGN, *lines[3:]], 4, "prev_envelope_hash"),
    "another session behind": (lambda lines: lines + ledgers.call().lines, LAST + 1, "prev_envelope_hash"),
    "another session in front": (lambda lines: ledgers.call().lines + lines, 5, "prev_envelope_hash"),
    "lines joined": (at(3, b"\n", b""), 3, "payload_hash"),
    "line broken in two": (at(3, b',"payload":', b'\n,"payload":'), 3, "header"),
    "blank line": (lambda lines: [*lines[:3], b"\n", *lines[3:]], 4, "header"),
    "blank line behind": (lambda lines: [*lines, b"\n"], LAST + 1, "header"),
    "garbage line": (lambda lines: [*lines[:3], b"garbage\n", *lines[3:]], 4, "header"),
    "zeros in the middle": (lambda lines: [*lines[:3], b"\0" * 512 + lines[3][512:], *lines[4:]], 4, "header"),
    "byte order mark": (lambda lines: [b"\xef\xbb\xbf" + lines[0], *lines[1:]], 1, "header"),
    "line without payload": (sub(3, rb',"payload":.*', b"}"), 3, "header"),
    "mark twice": (at(3, b',"payload":', b',"envelope_hash":"","payload":'), 3, "header"),
    "JSON and nothing else": (lambda _: [b'{"schema_version":"1.1"}\n'], 1, "header"),
    "genesis of a workspace": (lambda lines: forge(lines, genesis="workspace"), 1, "prev_envelope_hash"),
}  # fmt: skip
"""Found by hashes and chain alone."""

TEMPLATE = {
    "version": (field(3, "schema_version", b'"1.2"'), 3, "header"),
    "seq skips": (field(3, "seq", b"7"), 3, "seq"),
    "seq again": (field(3, "seq", b"1"), 3, "seq"),
    "seq with a leading zero": (field(3, "seq", b"02"), 3, "header"),
    "seq negative": (field(3, "seq", b"-2"), 3, "header"),
    "seq as a string": (field(3, "seq", b'"2"'), 3, "header"),
    "seq as a float": (field(3, "seq", b"2.0"), 3, "header"),
    "session mixed in": (field(3, "session_id", b'"other"'), 3, "session_id, trace_id"),
    "session with a dot": (field(3, "session_id", b'".."'), 3, "header"),
    "trace mixed in": (field(3, "trace_id", b'"%b"' % (b"0" * 32)), 3, "session_id, trace_id"),
    "trace in capitals": (field(3, "trace_id", b'"%b"' % (b"A" * 32)), 3, "header"),
    "time without milliseconds": (field(3, "ts", b'"2026-11-21T22:00:00Z"'), 3, "header"),
    "time with an offset": (field(3, "ts", b'"2026-11-21T22:00:00.000+00:00"'), 3, "header"),
    "type without a dot": (field(3, "event_type", b'"message"'), 3, "header"),
    "type too long": (field(3, "event_type", b'"a.%b"' % (b"b" * 63)), 3, "event_type"),
    "actor unknown": (field(3, "actor", b'"nobody"'), 3, "header"),
    "actor null": (field(3, "actor", b"null"), 3, "header"),
    "principal with a space": (field(3, "principal", b'"Ada Lovelace"'), 3, "header"),
    "principal empty": (field(3, "principal", b'""'), 3, "header"),
    "span all zero": (field(LAST, "span_id", b'"%b"' % (b"0" * 16)), LAST, "span_id"),
    "span short": (field(LAST, "span_id", b'"abc"'), LAST, "header"),
    "span as UUID": (field(LAST, "span_id", b'"faea18e8-c7de-458e-8028-d35bcce017a4"'), LAST, "header"),
    "parent empty": (field(3, "parent_span_id", b'""'), 3, "header"),
    "keys in another order": (sub(3, rb'(,"ts":"[^"]*")(,"event_type":"[^"]*")', rb"\2\1"), 3, "header"),
    "key missing": (sub(3, rb',"actor":"[^"]*"', b""), 3, "header"),
    "key added": (at(3, b',"actor"', b',"more":1,"actor"'), 3, "header"),
    "key escaped": (at(3, b'"actor"', b'"\\u0061ctor"'), 3, "header"),
    "value escaped": (at(3, b'"user"', b'"us\\u0065r"'), 3, "header"),
    "space in the header": (at(3, b',"actor":', b', "actor":'), 3, "header"),
    # canonical form
    "spaces": (payload(3, b'{"text": "x"}'), 3, "canonical"),
    "escapes": (payload(3, b'{"text":"\\u0041"}'), 3, "canonical"),
    "solidus escaped": (payload(3, b'{"text":"\\/"}'), 3, "canonical"),
    "key twice": (payload(3, b'{"text":"evil","text":"x"}'), 3, "canonical"),
    "keys unordered": (payload(3, b'{"text":"x","a":1}'), 3, "canonical"),
    "keys by code point": (payload(3, '{"\ue000":1,"\U0001f600":2}'.encode()), 3, "canonical"),
    "float for an integer": (payload(3, b'{"text":1.0}'), 3, "canonical"),
    "float with an exponent": (payload(3, b'{"text":1e2}'), 3, "canonical"),
    "float too exact": (payload(3, b'{"text":0.10}'), 3, "canonical"),
    "minus zero": (payload(3, b'{"text":-0}'), 3, "canonical"),
    "integer too large": (payload(3, b'{"text":9007199254740993}'), 3, "canonical"),
    "integer beyond 64 bits": (payload(3, b'{"text":18446744073709551616}'), 3, "canonical"),
    "too deep": (payload(3, b'{"text":' + b"[" * 72 + b"]" * 72 + b"}"), 3, "canonical"),
    "NaN": (payload(3, b'{"text":NaN}'), 3, "json"),
    "a number with a leading zero": (payload(3, b'{"text":01}'), 3, "json"),
    "a comma too much": (payload(3, b'{"text":"x",}'), 3, "json"),
    "control character": (payload(3, b'{"text":"\x01"}'), 3, "json"),
    "lone surrogate": (payload(3, b'{"text":"\\ud800"}'), 3, "json"),
    "two documents": (payload(3, b'{"text":"x"}{"text":"y"}'), 3, "json"),
    "payload with more behind": (payload(3, b'{"text":"x"},"more":{}'), 3, "json"),
    "deeper than any reader": (payload(3, b'{"text":' + b"[" * 5000 + b"]" * 5000 + b"}"), 3, "json"),
    "overlong UTF-8": (payload(3, b'{"text":"\xc0\xaf"}'), 3, "utf-8"),
    "surrogate in UTF-8": (payload(3, b'{"text":"\xed\xa0\x80"}'), 3, "utf-8"),
    "Latin-1": (payload(3, b'{"text":"\xfc"}'), 3, "utf-8"),
}
"""Hashes and chain made right again; found by template and canonical form."""

STRUCTURE = {
    "time that does not exist": (field(3, "ts", b'"2026-02-30T22:00:00.000Z"'), 3, "ts"),
    "twenty-fifth hour": (field(3, "ts", b'"2026-11-21T25:00:00.000Z"'), 3, "ts"),
    "no root": (lambda lines: [*lines[1:]], 1, "root"),
    "root with a parent": (field(1, "parent_span_id", b'"%b"' % OTHER.encode()), 1, "root"),
    "second root": (field(4, "parent_span_id", b"null"), 4, "root"),
    "second session.start": (rebuilt(lambda book, root: ledgers.start(book, parent=root)), 2, "root"),
    "span twice": (field(4, "span_id", b'"%b"' % ROOT), 4, "span"),
    "parent unknown": (field(4, "parent_span_id", b'"%b"' % OTHER.encode()), 4, "parent"),
    "parent later": (field(4, "parent_span_id", b'"%016x"' % (LAST - 1)), 4, "parent"),
    "parent itself": (field(4, "parent_span_id", b'"%016x"' % 4), 4, "parent"),
    "type outside the catalogue": (field(3, "event_type", b'"user.thought"'), 3, "event_type"),
    "type that nobody declared": (field(3, "event_type", b'"x.shop.sold"'), 3, "event_type"),
    "result under the root": (field(RESULT, "parent_span_id", b'"%b"' % ROOT), RESULT, "outcome"),
    "result under another call's result": (field(RESULT, "parent_span_id", b'"%016x"' % ERROR), RESULT, "outcome"),
    "answer of a model under a tool call": (field(ERROR, "event_type", b'"llm.error"'), ERROR, "outcome"),
    "call turned into a denial": (field(CALL, "event_type", b'"tool.denied"'), RESULT, "outcome"),
    "end under the last action": (field(END, "parent_span_id", b'"%016x"' % 3), END, "end"),
    "events after the end": (field(LAST, "event_type", b'"user.message"'), LAST, "end"),
    "workspace event first": (field(1, "event_type", b'"ledger.created"'), 1, "root"),
    "payload of another type": (payload(3, b'{"reply":"x"}'), 3, "payload"),
    "payload with more": (payload(3, b'{"more":1,"text":"x"}'), 3, "payload"),
    "payload with less": (payload(3, b"{}"), 3, "payload"),
    "payload with a number for a text": (payload(3, b'{"text":1}'), 3, "payload"),
    "decision that is none": (at(2, b'"allow"', b'"maybe"'), 2, "payload"),
    "commitment to nothing": (payload(3, b'{"text":{"$sealed":"x","size":1}}'), 3, "payload"),
}
"""Hashes and chain made right again; found by structure."""


def tampered(tmp_path, change):
    path = tmp_path / "tampered.jsonl"
    path.write_bytes(b"".join(change(list(RUN.lines))))
    return path


@for_each("name", HASHED)
def test_hashes_find_and_name(tmp_path, name):
    change, line, check = HASHED[name]
    report = verify(tampered(tmp_path, change), level="hashes")
    assert (line, check) in checks(report)
    assert min(each for each, _ in checks(report)) == line
    assert report.bytes.failures[0].expected != report.bytes.failures[0].found
    full = verify(tampered(tmp_path, change))
    assert (line, check) in checks(full)


@for_each("name", TEMPLATE)
def test_template_and_canonical_form_find_and_name_what_was_hashed_anew(tmp_path, name):
    change, line, check = TEMPLATE[name]
    report = verify(tampered(tmp_path, forged(change)))
    assert (line, check) in [(each.line, each.check) for each in report.bytes.failures]
    assert {each.line for each in report.bytes.failures} == {line}


@for_each("name", STRUCTURE)
def test_structure_finds_and_names_what_was_hashed_anew(tmp_path, name):
    change, line, check = STRUCTURE[name]
    report = verify(tampered(tmp_path, forged(change)))
    assert (line, check) in [(each.line, each.check) for each in report.structure.failures]
    if name != "no root":
        assert not [each for each in report.bytes.failures if each.check not in ("seq", "sealed")]


def test_outcome_is_accepted_once_only(tmp_path):
    book = Book()
    asked = book.add("flow.call", {"flow": "f", "args": {}}, parent=ledgers.start(book))
    book.add("flow.result", {"flow": "f", "result": 1}, parent=asked)
    book.add("flow.error", ledgers.error(flow="f"), parent=asked)
    assert checks(verify(book.write(tmp_path))) == [(4, "outcome")]


def test_second_end_is_found(tmp_path):
    book = ledgers.call()
    book.add("session.end", {"ok": False, "reason": "again"}, parent=f"{1:016x}")
    assert checks(verify(book.write(tmp_path))) == [(5, "end")]


def test_session_end_in_a_workspace_ledger_is_found(tmp_path):
    book = ledgers.workspace()
    book.add("session.end", {"ok": True, "reason": ""}, parent=f"{1:016x}")
    assert (len(book.lines), "end") in checks(verify(book.write(tmp_path)))


def test_later_lines_are_still_checked_behind_a_damaged_one(tmp_path):
    lines = at(3, b'"actor"', b'"aktor"')(list(RUN.lines))
    report = verify(tampered(tmp_path, lambda _: at(CALL, b"Hello", b"Hella")(lines)))
    assert {(3, "envelope_hash"), (3, "header"), (CALL, "payload_hash")} <= set(checks(report))


def test_named_manipulations_are_more_than_sixty():
    assert len(HASHED) + len(TEMPLATE) + len(STRUCTURE) >= 120


# --- every byte -------------------------------------------------------------------------------------------------------


def flips(seed, count):
    whole, chance = RUN.bytes(), random.Random(seed)
    for _ in range(count):
        raw = bytearray(whole)
        for _ in range(chance.choice((1, 1, 1, 2, 16))):
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        if raw != whole:
            yield bytes(raw)


def test_no_flipped_bit_is_accepted(tmp_path, sample_size):
    path = tmp_path / "flipped.jsonl"
    accepted = 0
    for raw in flips(seed=1, count=sample_size(300, 20_000)):
        path.write_bytes(raw)
        accepted += verify(path, level="hashes").sound
    assert accepted == 0


def test_no_flipped_bit_is_accepted_or_misread_by_the_full_check(tmp_path, sample_size):
    path = tmp_path / "flipped.jsonl"
    for raw in flips(seed=2, count=sample_size(60, 3000)):
        path.write_bytes(raw)
        report = verify(path)
        assert not report.sound
        assert all(line.isprintable() for line in report.lines())


def test_single_flips_are_named_at_the_line_they_are_in(tmp_path, sample_size):
    whole, chance = ledgers.call().bytes(), random.Random(3)
    path = tmp_path / "flipped.jsonl"
    for at_byte in range(0, len(whole), sample_size(19, 1)):
        raw = bytearray(whole)
        raw[at_byte] ^= 1 << chance.randrange(8)
        path.write_bytes(raw)
        report = verify(path)
        line = whole[:at_byte].count(b"\n") + 1
        if raw.count(b"\n") == whole.count(b"\n"):
            named = {each.line for each in report.bytes.failures}
            assert named == {line} or (line == min(named) == 1)


def test_one_hash_made_right_moves_the_failure_to_the_next_line(tmp_path):
    def change(lines):
        changed = at(3, b"Ada", b"Eve")(lines)
        return [*lines[:2], forge(changed)[2], *lines[3:]]

    assert checks(verify(tampered(tmp_path, change))) == [(4, "prev_envelope_hash")]


# --- two implementations agree ----------------------------------------------------------------------------------------


def test_javascript_and_python_agree_on_every_tampered_file(tmp_path, sample_size):
    cases = {f"hashed: {name}": change for name, (change, _, _) in HASHED.items()}
    cases |= {f"forged: {name}": forged(change) for name, (change, _, _) in (TEMPLATE | STRUCTURE).items()}
    cases |= {
        f"flip {index}": (lambda _, raw=raw: [raw])
        for index, raw in enumerate(flips(seed=4, count=sample_size(40, 200)))
    }
    cases |= {
        "honest": lambda lines: lines,
        "empty": lambda _: [],
        "cut": lambda lines: lines[:-1],
        "torn": lambda _: [b"{"],
    }
    paths = []
    for index, change in enumerate(cases.values()):
        paths.append(tmp_path / f"{index}.jsonl")
        paths[-1].write_bytes(b"".join(change(list(RUN.lines))))
    said = javascript("--hashes", *paths)
    differing = [
        (name, verdict, checks(report)[:1])
        for name, path, verdict in zip(cases, paths, said, strict=True)
        if (verdict == "sound") != (report := verify(path, level="hashes")).sound
    ]
    assert differing == []
    assert said.count("sound") > len(TEMPLATE)
    assert differences(dict(zip(cases, paths, strict=True))) == []


def test_canonical_form_of_the_oracle_is_what_verify_expects(tmp_path):
    book = Book()
    text = "".join(map(chr, range(0x20))) + '"\\/\x7f\u2028\ud7ff\ue000\ufeff\U0001f600'
    book.add("context.noted", {"event_type": "x", "data": {text: [text, {}, [], None, -1]}}, parent=ledgers.start(book))
    assert verify(book.write(tmp_path)).sound
    assert sha256(canonical({"b": 1, "a": 2})).hexdigest() == sha256(b'{"a":2,"b":1}').hexdigest()
