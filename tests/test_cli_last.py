"""`last` names the session that began last, wherever a command takes a session."""

import pytest
from commandline import Place


@pytest.fixture
def two(place: Place) -> tuple[Place, str]:
    """Give a workspace with two sessions, and the id of the second."""
    place.here("call", "echo", "--args", '{"text":"first"}', status=0)
    return place, place.here("run", "Say hello to Ada", status=0).session


@pytest.mark.parametrize("command", ["verify", "replay", "tree", "export"])
def test_last_is_the_session_that_began_last(two: tuple[Place, str], command: str):
    place, newest = two
    assert place.here(command, "last", status=0).out == place.here(command, newest, status=0).out


def test_last_session_is_the_one_that_close_means(two: tuple[Place, str]):
    place, newest = two
    for other in {*place.sessions()} - {newest}:
        place.write(f".deedbook/sessions/{other}/.events.jsonl", "")
    assert "[SESSION_ENDED]" in place.here("sessions", "close", "last", status=1).err


def test_close_of_a_session_that_has_ended_names_those_that_are_interrupted(two: tuple[Place, str]):
    place, newest = two
    assert "; no session is interrupted [SESSION_ENDED]" in place.here("sessions", "close", "last", status=1).err
    (older,) = {*place.sessions()} - {newest}
    *lines, _ = place.ledger(older).read_bytes().splitlines(keepends=True)
    place.ledger(older).write_bytes(b"".join(lines))
    err = place.here("sessions", "close", "last", status=1).err
    assert f"nothing is closed; these sessions are interrupted: {older} [SESSION_ENDED]" in err


def test_last_of_no_sessions_is_not_found(place: Place):
    assert "there is no session 'last'" in place.here("tree", "last", status=2).err


def test_session_whose_id_begins_so_is_meant_first(two: tuple[Place, str]):
    place, newest = two
    place.write(".deedbook/sessions/lasting/.events.jsonl", "")
    assert place.here("tree", "last", status=0).out != place.here("tree", newest, status=0).out
