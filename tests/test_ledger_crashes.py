"""What a crash leaves of a ledger: nothing acknowledged is lost, a torn tail is set aside, damage is refused."""

from pathlib import Path

import pytest
from failing import NO_SPACE, failing, in_memory, only
from writing import NAME, again, begin, checked, code, note, types

from deedbook.format.errors import LedgerError
from deedbook.format.reader import read
from deedbook.ledger.ledger import Ledger


@pytest.fixture
def quick(tmp_path):
    with in_memory(tmp_path) as place:
        yield place


# --- torn tails -------------------------------------------------------------------------------------------------------


def three_lines(place: Path) -> tuple[bytes, bytes]:
    """Write a ledger of three lines; return the first two and the last."""
    ledger = begin(place)
    ledger.append([note(ledger, "first")])
    ledger.append([note(ledger, "last")])
    ledger.close()
    *lines, last = (place / NAME).read_bytes().splitlines(keepends=True)
    return b"".join(lines), last


def recovered(place: Path, torn: bytes) -> None:
    """Open the ledger in *place* again; check that *torn* was set aside, that this is recorded, and that it goes on."""
    before = (place / NAME).stat().st_size - len(torn)
    ledger = again(place)
    ledger.append([note(ledger, "after")])
    ledger.close()
    lines = checked(place)
    assert types(lines)[-2:] == ["ledger.recovered", "user.message"]
    what = lines[-2]["payload"]
    assert (what["offset"], what["bytes"]) == (before, len(torn))
    assert (place / what["kept"]).read_bytes() == torn
    assert what["kept"] == f".torn-{before}-{what['sha256'][:16]}"


def test_torn_tail_at_every_byte_is_set_aside_and_recorded(quick):
    before, last = three_lines(quick / "whole")
    for cut in range(1, len(last)):
        place = quick / str(cut)
        place.mkdir()
        (place / NAME).write_bytes(before + last[:cut])
        assert [event.seq for event in read(place)] == [0, 1]
        recovered(place, last[:cut])


def test_tail_that_ends_with_a_whole_line_is_not_torn(quick):
    before, last = three_lines(quick)
    for content, size in ((before, 2), (before + last, 3)):
        (quick / NAME).write_bytes(content)
        ledger = again(quick)
        assert ledger.size == size
        ledger.close()
        assert (quick / NAME).read_bytes() == content


@pytest.mark.parametrize(
    "torn",
    [
        b"\0" * 4096,
        b"\0" * 100_000 + b"\n",
        b'{"schema_version":"1.1","session_id":"' + b"\0" * 512 + b'"}\n',
        b"garbage\n",
        b"garbage\nand more\n\n",
        b'{"schema_version":"1.1","ses\n',
        b"\xff\xfe" * 40_000,
        b"\n",
    ],
    ids=["zeros", "zeros and a newline", "zeros within", "garbage", "much garbage", "half a line", "binary", "newline"],
)
def test_tail_of_zeros_or_garbage_is_set_aside_and_recorded(quick, torn):
    before, last = three_lines(quick)
    (quick / NAME).write_bytes(before + last + torn)
    recovered(quick, torn)


def test_torn_tails_do_not_add_up(quick):
    three_lines(quick)
    for torn in (b"{", b"{{", b"{{{"):
        with (quick / NAME).open("ab") as file:
            file.write(torn)
        recovered(quick, torn)
    assert types(checked(quick)).count("ledger.recovered") == 3


def test_recovery_after_the_end_is_recorded_and_the_session_stays_ended(quick):
    ledger = begin(quick)
    ledger.append([note(ledger, event_type="session.end")])
    ledger.close()
    with (quick / NAME).open("ab") as file:
        file.write(b"{")
    ledger = again(quick)
    with pytest.raises(LedgerError, match="has ended"):
        ledger.append([note(ledger)])
    ledger.close()
    assert types(checked(quick)) == ["session.start", "session.end", "ledger.recovered"]


def test_recovery_that_was_killed_is_recorded_by_the_next(quick, monkeypatch):
    before, last = three_lines(quick)
    (quick / NAME).write_bytes(before + last[:100])

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "recover", killed)
        with pytest.raises(KeyboardInterrupt):
            again(quick)
    assert (quick / NAME).read_bytes() == before
    again(quick).close()
    again(quick).close()
    lines = checked(quick)
    assert types(lines).count("ledger.recovered") == 1
    assert (quick / lines[-1]["payload"]["kept"]).read_bytes() == last[:100]


def test_recovery_that_finds_no_room_changes_nothing(quick, monkeypatch):
    before, last = three_lines(quick)
    content = before + last[:100]
    (quick / NAME).write_bytes(content)
    with monkeypatch.context() as patch:
        failing(patch, only("write", NO_SPACE))
        with pytest.raises(LedgerError, match="No space left"):
            again(quick)
    assert (quick / NAME).read_bytes() == content
    recovered(quick, last[:100])


# --- damage -----------------------------------------------------------------------------------------------------------


def test_damage_in_the_last_line_is_never_taken_for_what_was_written(quick):
    before, last = three_lines(quick)
    for at in range(len(last) - 1):
        damaged = bytearray(last)
        damaged[at] ^= 0x01
        (quick / NAME).write_bytes(content := before + bytes(damaged))
        if at in (0, len(last) - 2):  # the braces: no line any more
            recovered(quick, bytes(damaged))
            continue
        with pytest.raises(LedgerError) as caught:
            again(quick)
        assert code(caught) == "LEDGER_UNSOUND"
        assert (quick / NAME).read_bytes() == content


@pytest.mark.parametrize(
    "last",
    [
        b'{"valid":"json"}\n',
        b'{"schema_version":"1.0","payload":{}}\n',
        lambda before, last: before.splitlines(keepends=True)[0].replace(b'"5e5e', b'"ffff'),
        lambda before, last: last.replace(b'"text":"last"', b'"text":"lost"'),
        lambda before, last: last.replace(b",", b", ", 1),
    ],
    ids=["another object", "an older envelope", "another session", "another payload", "another spelling"],
)
def test_last_line_that_was_not_written_so_is_refused(quick, last):
    before, real = three_lines(quick)
    line = last if isinstance(last, bytes) else last(before, real)
    (quick / NAME).write_bytes(before + line)
    with pytest.raises(LedgerError) as caught:
        again(quick)
    assert code(caught) == "LEDGER_UNSOUND"
    assert (quick / NAME).read_bytes() == before + line


def test_tail_that_no_writer_leaves_is_damage(tmp_path, monkeypatch):
    monkeypatch.setattr("deedbook.format.tail.MAX_TAIL", 100_000)
    three_lines(tmp_path)
    with (tmp_path / NAME).open("ab") as file:
        file.write(b"\0" * 300_000)
    with pytest.raises(LedgerError) as caught:
        again(tmp_path)
    assert code(caught) == "LEDGER_UNSOUND"
