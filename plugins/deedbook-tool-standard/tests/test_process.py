"""Programs in a real workspace: what is passed, what comes back, and that no value becomes anything but a value."""

import json
import stat
import time

import pytest

from deedbook.format.errors import BindingError, DeedbookError

TEXT = {"type": "string"}
IN = {
    "type": "object",
    "required": ["text"],
    "properties": {
        "text": TEXT,
        "more": TEXT,
        "count": {"type": "integer"},
        "loud": {"type": "boolean"},
        "ratio": {"type": "number"},
        "files": {"type": "array", "items": TEXT},
        "mode": {"enum": ["fast", "slow"]},
        "data": {"type": "object", "properties": {"a/b": TEXT}},
        "any": {},
    },
    "additionalProperties": False,
}
ANY = {"type": ["object", "array", "string", "number", "boolean", "null"]}
SHOW = ["printf", "--", "<%s>"]


@pytest.fixture
def program(lab):
    """Declare the ability `it` over a program; settings by keyword, *more* for the ability."""

    def declare(argv, more=None, **settings):
        entry = {
            "summary": "Run it.", "handler": {"tool": "process"}, "effects": "read",
            "with": {"argv": argv, **settings}, "schema_in": IN, "schema_out": True, **(more or {}),
        }  # fmt: skip
        lab.settings(abilities={"it": {key: value for key, value in entry.items() if value is not None}})

    return declare


@pytest.fixture
def run(lab):
    """Call `it`, which has to succeed; return what it gives."""

    def call(**args):
        result = lab.session().call("it", {"text": "x", **args})
        assert hasattr(result, "value"), result
        return result.value

    return call


@pytest.fixture
def fails(lab):
    """Call `it`, which has to fail; return the error."""

    def call(**args):
        return lab.session().call("it", {"text": "x", **args}).error

    return call


def script(lab, text):
    """Write a program of the test's own and return its path."""
    place = lab.write("tool.sh", f"#!/bin/sh\n{text}\n", system=False)
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    return str(place)


# --- arguments --------------------------------------------------------------------------------------------------------

HOSTILE = [
    "; touch pwned", "$(touch pwned)", "`touch pwned`", "| cat /etc/passwd", "&& true", "> pwned", "a b  c", "*", "~",
    "'", '"', "\\", "a\nb", "\t", "$HOME", "${IFS}", "%s%n", "ü", "💥", "\u202e", "\u2028", "{text}", "{{",
    "a" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE)
def test_value_is_one_argument_whatever_it_holds(program, run, lab, value):
    program([*SHOW, "{text}"])
    assert run(text=value) == {"status": 0, "stdout": f"<{value}>", "stderr": ""}
    assert not (lab.path / "pwned").exists()


@pytest.mark.parametrize("value", ["-rf", "--output=/etc/passwd", "-", "--"])
def test_value_that_would_be_an_option_is_refused(program, fails, lab, value):
    program(["printf", "%s", "{text}"])
    error = fails(text=value)
    assert error.code == "ARGUMENT_REFUSED"
    assert "would be taken for an option" in error.message
    assert "ARGUMENT_REFUSED" in str(lab.payload("tool.error"))


@pytest.mark.parametrize(
    ("argv", "settings"),
    [
        ([*SHOW, "{text}"], {}),
        (["printf", "<%s>", "a{text}"], {}),
        (["printf", "{text}<%s>"], {"dashes": "allow"}),
        ([["printf", "--", "<%s>"], "{text}"], {}),
    ],
)
def test_dash_is_taken_after_two_dashes_behind_a_prefix_or_where_it_is_allowed(program, run, argv, settings):
    program(argv, **settings)
    assert run(text="n-rf" if "{text}<%s>" in argv else "-rf")["status"] == 0


def test_joined_placeholders_make_no_option(program, fails):
    program(["printf", "{more?}{text}"])
    assert fails(more="", text="-v").code == "ARGUMENT_REFUSED"


def test_negative_number_is_an_option_too(program, fails):
    program(["printf", "%s", "{count?}"])
    assert fails(count=-5).code == "ARGUMENT_REFUSED"


def test_nul_is_refused(program, fails):
    program([*SHOW, "{text}"])
    assert fails(text="a\0b").code == "ARGUMENT_REFUSED"


def test_argument_that_no_system_takes_is_refused(program, fails):
    program([*SHOW, "{text}"])
    assert fails(text="é" * 70_000).code == "ARGUMENT_REFUSED"


def test_values_are_written_as_json_writes_them(program, run):
    program(["printf", "--", "<%s>", "{count?}", "{loud?}", "{ratio?}", "{mode?}", "{/data/a~1b?}", "{{{text}}}"])
    args = {"count": -3, "loud": True, "ratio": 0.5, "mode": "fast", "data": {"a/b": "deep"}}
    assert run(**args)["stdout"] == "<-3><true><0.5><fast><deep><{x}>"


def test_array_is_as_many_arguments_as_it_has_items(program, run):
    program(["printf", "--", "<%s>", "{files?...}", "end"])
    assert run(files=["a b", "-x", ""])["stdout"] == "<a b><-x><><end>"
    assert run(files=[])["stdout"] == "<end>"
    assert run()["stdout"] == "<end>"


def test_item_of_an_array_is_no_option_either(program, fails):
    program(["printf", "%s", "{files?...}"])
    assert fails(files=["a", "-x"]).code == "ARGUMENT_REFUSED"


def test_optional_argument_drops_its_element_and_its_group(program, run):
    program(["printf", "--", "<%s>", "a{more?}b", ["-n", "{count?}"], "z"])
    assert run()["stdout"] == "<z>"
    assert run(more="M", count=2)["stdout"] == "<aMb><-n><2><z>"


# --- standard input, environment, folder ------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "said"), [("a\nü", "a\nü"), ({"k": [1, "ü"]}, '{"k": [1, "ü"]}'), (None, "")])
def test_stdin_is_one_argument_of_any_type(program, run, value, said):
    program(["cat"], stdin="{any?}")
    assert run(**({"any": value} if value is not None else {}))["stdout"] == said


def test_environment_is_what_yaml_says_and_little_else(program, run, monkeypatch):
    monkeypatch.setenv("DEEDBOOK_TEST_LEAK", "leak")
    program(["env"], env={"TZ": "UTC", "BRACES": "{text}"}, output="lines")
    names = dict(line.split("=", 1) for line in run()["lines"])
    assert (names.pop("TZ"), names.pop("BRACES")) == ("UTC", "{text}")
    assert set(names) <= {"PATH", "LANG", "HOME", "PWD", "SHLVL", "_"}


def test_program_runs_in_the_workspace_or_in_a_folder_of_it(program, run, lab):
    lab.write("sub/folder/a.txt", "", system=False)
    program(["ls"], cwd="sub/{text}", output="lines")
    assert run(text="folder")["lines"] == ["a.txt"]


@pytest.mark.parametrize("where", ["..", "/etc", "../../etc", "absent"])
def test_folder_outside_is_refused(program, fails, where):
    program(["ls"], cwd="{text}")
    assert fails(text=where).code in ("PATH_REFUSED", "NOT_STARTED")


SECRET = "s3cr3t-0123456789"


@pytest.fixture
def secret(lab, monkeypatch):
    monkeypatch.setenv("DEEDBOOK_TEST_KEY", SECRET)
    lab.settings(secrets={"key": {"env": "DEEDBOOK_TEST_KEY"}})


def test_secret_reaches_the_program_that_asks_and_nobody_else(program, run, lab, secret):
    program(
        ["sh", "-c", 'test "$KEY" = "s3cr3t-0123456789" && echo "$KEY" && echo "$KEY" >&2'],
        env={"KEY": {"secret": "key"}},
    )
    assert run() == {"status": 0, "stdout": "[secret:key]\n", "stderr": "[secret:key]\n"}
    assert SECRET not in lab.ledger().read_text()


def test_secret_is_not_in_the_environment_of_a_program_that_did_not_ask(program, run, secret):
    program(["env"])
    assert SECRET not in run()["stdout"]


def test_secret_is_in_no_error(program, fails, lab, secret):
    program(["sh", "-c", 'echo "no: $KEY" >&2; exit 3'], env={"KEY": {"secret": "key"}})
    assert fails().message == "sh ended with status 3: no: [secret:key]"
    assert SECRET not in lab.ledger().read_text()


def test_secret_that_is_not_declared_is_a_binding_error(program, lab):
    program(["env"], env={"KEY": {"secret": "ky"}})
    with pytest.raises(DeedbookError) as caught:
        lab.kernel()
    assert caught.value.error.code == "SECRET_MISSING"


# --- what comes back --------------------------------------------------------------------------------------------------


def test_status_that_is_no_success_fails_with_the_beginning_of_stderr(program, fails, lab):
    program([script(lab, 'echo "it went wrong" >&2; yes | head -c 99999 >&2; exit 7')])
    error = fails()
    assert error.code == "PROCESS_FAILED"
    assert error.message.startswith("tool.sh ended with status 7: it went wrong\ny\n")
    assert len(error.message) < 500


def test_statuses_say_what_is_success(program, run, fails):
    program(["sh", "-c", "exit 1"], statuses=[0, 1])
    assert run()["status"] == 1
    program(["true"], statuses=[1])
    assert fails().code == "PROCESS_FAILED"


def test_program_that_pip_installed_is_found_where_yaml_says_so(program, run, fails):
    """The command of Deedbook itself is such a program."""
    program(["deedbook", "--version"])
    assert fails().code == "NOT_STARTED"
    program(["deedbook", "--version"], programs="pip")
    assert run()["stdout"].startswith("deedbook ")


def test_path_is_set_by_one_setting_only(program, lab):
    program(["deedbook", "--version"], programs="pip", env={"PATH": "/usr/bin"})
    with pytest.raises(BindingError, match="programs: pip sets PATH, and so does env"):
        lab.kernel()


def test_signal_is_named(program, fails):
    program(["sh", "-c", "kill -9 $$"])
    assert fails().message == "sh was ended by signal 9"


def test_program_that_is_not_there_was_not_started(program, fails):
    program(["no-such-program-at-all"])
    assert fails().code == "NOT_STARTED"


def test_flood_and_time_have_limits(program, fails):
    program(["yes"], limits={"bytes": 1000})
    assert fails().code == "OUTPUT_TOO_LARGE"
    program(["sleep", "60"], limits={"seconds": 0.3})
    assert fails().code == "TOOL_TIMEOUT"
    program(["sleep", "60"], more={"timeout_ms": 300}, limits={"seconds": 50})
    assert fails().code == "TOOL_TIMEOUT"


def test_lines_are_lines_and_json_is_one_document(program, run):
    program(["printf", "a\\n\\nb\\n"], output="lines")
    assert run() == {"status": 0, "lines": ["a", "", "b"], "stderr": ""}
    program(["cat"], stdin="{any?}", output="json", more={"schema_out": ANY})
    assert run(any=[1, {"a": None}]) == [1, {"a": None}]


@pytest.mark.parametrize("said", ["", "{", '{"a":1,"a":2}', "NaN", "1 2", "[" * 50_000, "\ufeff{}"])
def test_output_that_is_no_json_is_refused(program, fails, said):
    program(["cat"], stdin="{text}", output="json", more={"schema_out": ANY})
    assert fails(text=said).code == "INTAKE_REFUSED"


def test_json_of_another_shape_is_a_violation(program, fails):
    program(["cat"], stdin="{any?}", output="json", more={"schema_out": {"type": "object", "required": ["a"]}})
    assert fails(any={"b": 1}).code == "SCHEMA_VIOLATION"


def test_bytes_that_are_no_text_are_refused_and_shown_escaped_in_diagnostics(program, run, fails):
    program(["printf", "\\377"])
    assert fails().code == "OUTPUT_REFUSED"
    program(["sh", "-c", "printf '\\377' >&2"])
    assert run()["stderr"] == "\\xff"


# --- what is wrong with it --------------------------------------------------------------------------------------------

FAULTS = {
    "a shell's line": ("git log {text}", {}, "/argv", "write a list, one argument each"),
    "a placeholder for the program": (["{text}"], {}, "0", "the program is always written out"),
    "an unknown argument": (["ls", "{txt}"], {}, "1", "declares no property 'txt'; did you mean \"text\"?"),
    "an optional argument": (["ls", "{more}"], {}, "1", "add it to required, or write {more?}"),
    "an argument without a type": (["ls", "{any?}"], {}, "1", "says no type of it"),
    "an object": (["ls", "{data?}"], {}, "1", "a single value is needed; its type is object"),
    "an array in one argument": (["ls", "{files?}"], {}, "1", "an array is written {files?...}"),
    "a value in several": (["ls", "{text...}"], {}, "1", "only an array can be several elements"),
    "an array beside text": (["ls", "x{files?...}"], {}, "1", "has to be an element of its own"),
    "a stray brace": (["ls", "a{b"], {}, "1", "{{ and }} are plain braces"),
    "no name": (["ls", "{}"], {}, "1", "{} is no placeholder"),
    "a name with a blank": (["ls", "{te xt}"], {}, "1", "is no placeholder"),
    "a value that names the option": (["ls", "--{text}"], {}, "1", "the value would name the option"),
    "code of a shell": (["sh", "-c", "echo {text}"], {}, "2", "a value must not become code"),
    "code of a shell behind options": (["/bin/bash", "-ec", "--", "{text}"], {}, "3", "a value must not become code"),
    "code behind another program": (["env", "A=b", "python3", "-c", "{text}"], {}, "4", "a value must not become code"),
    "code without a gap": (["perl", "-e{text}"], {}, "1", "a value must not become code"),
    "a NUL": (["ls", "a\0b"], {}, "1", "NUL"),
    "stdin of two": (["cat"], {"stdin": "{text}{more?}"}, "stdin", "stdin is one placeholder"),
    "stdin without quotes": (["cat"], {"stdin": {"text": None}}, "stdin", "stdin is one placeholder in quotes"),
    "stdin of nothing": (["cat"], {"stdin": "{txt}"}, "stdin", "declares no property"),
    "an unknown folder": (["ls"], {"cwd": "{txt}"}, "cwd", "declares no property"),
}


def refusal(lab):
    with pytest.raises(DeedbookError) as caught:
        lab.kernel()
    return caught.value.errors


@pytest.mark.parametrize(("argv", "settings", "where", "why"), FAULTS.values(), ids=FAULTS)
def test_what_is_wrong_is_a_binding_error_where_it_stands(program, lab, argv, settings, where, why):
    program(argv, **settings)
    errors = refusal(lab)
    assert [error.code for error in errors] == ["BINDING_INVALID"]
    assert why in errors[0].message
    line = int(errors[0].place.split(":")[1])
    text = (lab.path / ".system/deedbook.yaml").read_text().splitlines()[line - 1]
    at = json.dumps((argv[int(where)] if where.isdigit() else where).removeprefix("/"))
    assert at in text


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"effects": None}, "say what the program does to the world"),
        ({"schema_in": None}, "schema_in is missing"),
        ({"schema_out": None}, "describe them with schema_out, or write schema_out: true for anything"),
        ({"schema_out": {}}, "describe them with schema_out, or write schema_out: true for anything"),
        ({"effects": "none"}, "lower than the read"),
    ],
)
def test_what_nobody_can_know_stands_in_yaml(program, lab, more, why):
    program(["ls"], more=more)
    assert [why in error.message for error in refusal(lab)] == [True]


@pytest.mark.parametrize(
    "argv",
    [
        ["sh", "-c", 'echo "$1"', "sh", "{text}"],
        ["sh", "tool.sh", "{text}"],
        ["grep", "-c", "{text}", "--", "{files?...}"],
        ["env", "{text}"],
        ["git", "log", "--max-count={count?}", "-n{count?}", "--", "{text}"],
    ],
)
def test_what_is_right_is_accepted(program, lab, argv):
    program(argv)
    lab.kernel()


def test_nothing_is_left_running(program, run, lab):
    program(["sh", "-c", "sleep 61 & echo $!"])
    pid = int(run()["stdout"])
    end = time.monotonic() + 30
    while not _gone(pid):
        assert time.monotonic() < end
        time.sleep(0.02)


def _gone(pid):
    """Return whether a process has ended, waited for or not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True
