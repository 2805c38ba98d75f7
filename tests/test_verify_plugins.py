"""`verify --plugins`: a pure gate of an installed wheel is asked again, where its code is what it was."""

from pathlib import Path

import packing
import pytest
from commandline import Place

NAME = "deedbook-hook-moody"
CODE = '''\
    """A hook with moods."""

    import os

    from deedbook import GateSpec, allow, deny, hookimpl


    class Moody:
        """It says that it is pure, and minds a variable: so it shows when it is asked, and by whom."""

        spec = GateSpec(pure=True)

        def __init__(self, settings, host):
            pass

        @hookimpl
        def pre_tool_use(self, call):
            if os.environ.get("MOODY_ASKED"):
                with open(os.environ["MOODY_ASKED"], "ab") as asked:
                    asked.write(call.raw)
            return deny("not today") if os.environ.get("MOODY_DENIES") else allow()
'''
SETTINGS = """
    schema_version: v1
    abilities:
      echo: {summary: Echo a text back., handler: {tool: echo}}
    hooks:
      moody: {event_type: PreToolUse, handler: {hook: moody}, match: {kind: [tool]}}
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Give a workspace with the hook installed from its wheel, and one session that it allowed a call in."""
    made = Place(tmp_path / "workspace")
    made.system("deedbook.yaml", SETTINGS)
    project = Place(tmp_path / "project")
    project.write("deedbook_hook_moody.py", CODE)
    project.write(
        "pyproject.toml",
        f"""
        [build-system]
        requires = ["flit_core"]
        build-backend = "flit_core.buildapi"
        [project]
        name = "{NAME}"
        version = "1.0"
        description = "A hook with moods."
        [project.entry-points."deedbook.hooks"]
        moody = "deedbook_hook_moody:Moody"
        """,
    )
    packing.install(made, packing.wheel(project.path))
    made.run("call", "echo", "--args", '{"text":"hi"}', status=0)
    return made


def decisions(place: Place, *argv: str, status: int = 0, **env: str) -> dict:
    """Verify the session and return what is said of its decisions."""
    told = place.run("verify", "last", *argv, "--json", status=status, **env).fits("output_verify_v1")
    return told["reports"][0]["decisions"]


def test_gate_whose_code_is_what_it_was_is_asked_again_and_only_when_that_is_wanted(place: Place, tmp_path: Path):
    asked = tmp_path / "asked"
    unasked = decisions(place, MOODY_ASKED=str(asked), MOODY_DENIES="1")
    assert not asked.exists()
    (recorded,) = unasked["recorded"]
    assert recorded["who"].startswith(f"hook moody of {NAME} 1.0, sha256 ")
    told = decisions(place, "--plugins", MOODY_ASKED=str(asked))
    assert asked.read_bytes() == b'{"text":"hi"}'
    assert (told["calls"], told["same"], told["recorded"], told["unknown"]) == (1, 1, [], [])


def test_what_the_gate_says_otherwise_is_found(place: Place):
    told = decisions(place, "--plugins", status=4, MOODY_DENIES="1")
    assert told["same"] == 0
    (failure,) = told["failures"]
    assert failure["check"] == "decision"
    assert "not today" in failure["expected"]


def test_gate_whose_code_was_changed_is_not_asked_but_counted_with_its_wheel(place: Place, tmp_path: Path):
    before = decisions(place)
    (code,) = (tmp_path / "site-packages").glob("deedbook_hook_moody.py")
    code.write_text(code.read_text(encoding="utf-8") + "\n# another one\n", encoding="utf-8")
    asked = tmp_path / "asked"
    told = decisions(place, "--plugins", MOODY_ASKED=str(asked), MOODY_DENIES="1")
    assert not asked.exists()
    (recorded,) = told["recorded"]
    assert recorded == before["recorded"][0]
    assert (recorded["calls"], told["failures"]) == (1, [])
