"""`deedbook lock`: what changed, in words; and what `lock: required` refuses until somebody has looked."""

import pytest
from commandline import Place

LOOSER = """\
    schema_version: v1
    id: baseline
    kind: rules
    rules: [{match: {}, then: allow}]
    match: {kind: [tool, flow]}
    """


def test_lock_pins_and_says_what_changed_since(place: Place):
    first = place.here("lock", status=0)
    assert "is pinned in .system/deedbook.lock" in first.err
    named = [path.name for path in (place.path / ".system").rglob("*") if path.is_file()]
    sources = sum(name.endswith((".yaml", ".md")) and not name.endswith(".test.yaml") for name in named)
    assert first.out == f"first lock: {sources} sources pinned\n"
    assert (place.path / ".system/deedbook.lock").exists()
    assert place.here("lock", status=0).out == "nothing changed\n"
    place.system("policies/baseline.yaml", LOOSER)
    assert "looser  policy baseline: " in place.here("lock", status=0).out
    (place.path / ".system/hooks/deny-dangerous-tools.yaml").unlink()
    changed = place.here("lock", status=0).out
    assert "looser  hook deny-dangerous-tools is gone" in changed
    place.system("skills/greet/SKILL.md", (place.path / ".system/skills/greet/SKILL.md").read_text() + "\nBe kind.\n")
    assert "changed skill greet: body changed" in place.here("lock", status=0).out


def test_file_that_changed_is_named_only_where_nothing_else_says_what_changed_in_it(place: Place):
    place.here("lock", status=0)
    place.configure("lock: auto", "lock: auto  # a word")
    assert place.here("lock", status=0).out == "changed .system/deedbook.yaml\n"
    place.configure("enforcement: enforce", "enforcement: observe")
    place.system("policies/baseline.yaml", LOOSER)
    (place.path / ".system/hooks/deny-dangerous-tools.yaml").unlink()
    out = place.here("lock", status=0).out
    assert "looser  enforcement: observe" in out
    assert ".yaml" not in out
    skill = place.path / ".system/skills/greet/SKILL.md"
    place.system("skills/greet/SKILL.md", skill.read_text(encoding="utf-8") + "\nBe kind.\n")
    assert place.here("lock", status=0).out == "changed skill greet: body changed\n"


def test_first_lock_after_a_run_says_that_it_is_the_first(place: Place):
    place.here("run", "hello", status=0)
    assert place.here("lock", status=0).out.startswith("first lock: ")
    assert place.here("lock", status=0).out == "nothing changed\n"


def test_start_names_a_changed_file_once(place: Place):
    place.here("run", "hello", status=0)
    place.configure("lock: auto", "lock: auto  # a word")
    assert "charter changed: .system/deedbook.yaml\n" in place.here("run", "hello", status=0).err
    place.system("policies/baseline.yaml", LOOSER)
    assert ".yaml" not in place.here("run", "hello", status=0).err


def test_lock_as_json_fits_its_schema_and_chains_the_digests(place: Place):
    first = place.here("lock", "--json", status=0).fits("output_lock_v1")
    assert first["previous"] is None
    place.system("policies/baseline.yaml", LOOSER)
    second = place.here("lock", "--json", status=0).fits("output_lock_v1")
    assert second["previous"] == first["charter"] != second["charter"]
    assert second["looser"]
    assert place.here("lock", "--json", status=0).json["charter"] == second["charter"]


def test_lock_names_what_no_policy_guards(tmp_path):
    place = Place(tmp_path)
    place.system("deedbook.yaml", "schema_version: v1\nabilities: {echo: {summary: Echo., handler: {tool: echo}}}\n")
    sentence = "no policy covers echo, whose effects are none: its calls are allowed where its scope, schema and hooks"
    assert sentence in place.here("lock").out
    assert place.here("lock", "--json", status=0).json["without_policy"] == ["echo"]


def test_changed_workspace_starts_under_lock_auto_and_says_what_became_looser(place: Place):
    quiet = place.here("run", "hello", status=0).err
    assert "charter" not in quiet, "the first charter is no news"
    assert "charter" not in place.here("run", "hello", status=0).err
    place.system("policies/baseline.yaml", LOOSER)
    assert "charter looser: policy baseline: " in place.here("run", "hello", status=0).err
    assert "charter" not in place.here("run", "hello", status=0).err
    recorded = place.here("tree", "workspace", status=0).out
    assert recorded.count("ledger.charter") == 2


def test_another_profile_is_one_line(place: Place):
    place.here("run", "hello", status=0)
    err = place.here("call", "--profile", "local-model", "file-find", "--args", '{"pattern": "*"}', status=0).err
    assert [line for line in err.splitlines() if line.startswith("charter")] == [
        'charter changed: profile: "local-model", was "local", with 9 changes of its own'
    ]
    err = place.here("run", "hello", status=0).err
    assert [line for line in err.splitlines() if line.startswith("charter")] == [
        'charter changed: profile: "local", was "local-model", with 9 changes of its own'
    ]


def test_required_lock_refuses_until_somebody_has_locked(place: Place):
    place.configure("lock: auto", "lock: required")
    absent = place.here("run", "hello", status=1)
    assert "[CHARTER_CHANGED]" in absent.err
    assert "deedbook lock" in absent.err
    assert place.sessions() == []
    place.here("lock", "--editable", status=0)
    assert place.here("run", "hello", status=0).out == "Hello, world!\n"
    place.system("policies/baseline.yaml", LOOSER)
    changed = place.here("run", "hello", status=1)
    assert ".system/policies/baseline.yaml changed since it was pinned" in changed.err
    place.here("lock", "--editable", status=0)
    place.here("run", "hello", status=0)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version":"v1"}', "\x00\xff"])
def test_lock_file_that_is_damaged_refuses_to_start(place: Place, text: str):
    place.configure("lock: auto", "lock: required")
    place.here("lock", "--editable", status=0)
    (place.path / ".system/deedbook.lock").write_text(text)
    assert "[CHARTER_CHANGED]" in place.here("run", "hello", status=1).err


def test_system_folder_that_cannot_be_written_works_but_for_the_lock(place: Place):
    import os

    if os.getuid() == 0:
        pytest.skip("root may write everywhere")
    (place.path / ".system").chmod(0o555)
    assert place.here("run", "hello", status=0).out == "Hello, world!\n"
    assert place.here("lock", status=1).err.count("\n") == 1


def test_no_start_and_no_lock_with_a_hook_that_is_never_asked(tmp_path):
    place = Place(tmp_path)
    hook = "event_type: PreToolUse, handler: {hook: allow}"
    bound = "{summary: Echo., handler: {tool: echo}, hooks: {pre_call: [bound]}}"
    place.system("deedbook.yaml", f"""
        schema_version: v1
        abilities: {{echo: {bound}}}
        hooks: {{ghost: {{{hook}}}, bound: {{{hook}}}, matching: {{{hook}, match: {{abilities: gone}}}}}}
    """)  # fmt: skip
    why = ".system/deedbook.yaml:4: hook 'ghost' guards nothing: it has no match, and no ability names it under hooks"
    for words in (["call", "echo", "text=hi"], ["lock"]):
        refused = place.here(*words, status=1).err
        assert why in refused
        assert refused.count("BINDING_INVALID") == 1
    assert why.partition(": ")[2] in place.here("registry", "lint", status=1).out
    assert place.sessions() == []
