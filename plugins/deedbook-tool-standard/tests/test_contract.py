"""The tools keep the contract that third parties keep."""

import sys

from deedbook_testing import Example, ToolContract

ROOMS = ("deedbook.format.pointers",)
"""What this distribution uses of the kernel beside the contract; see ``tests/test_architecture.py``."""

NEW = {"path": "new.md", "expected_hash": "", "who": "me", "why": "to try"}
NOTES = "one two\nthree\n"


class TestEcho(ToolContract):
    name = "echo"
    rooms = ROOMS
    examples = (Example({"text": "hi"}, gives={"text": "hi"}), Example({"text": 1}, fails="SCHEMA_VIOLATION"))


class Reading(ToolContract):
    def prepare(self, lab):
        lab.write("docs/notes.md", NOTES, system=False)


class TestFileRead(Reading):
    name = "file-read"
    rooms = ROOMS
    examples = (
        Example({"path": "docs/notes.md"}, holds=lambda result: result["text"] == NOTES),
        Example({"path": "docs/absent.md"}, fails="NO_SUCH_FILE"),
        Example({"path": "../outside.md"}, fails="PATH_REFUSED"),
    )


class TestFileHash(Reading):
    name = "file-hash"
    rooms = ROOMS
    examples = (Example({"path": "docs/notes.md"}),)


class TestFileList(Reading):
    name = "file-list"
    rooms = ROOMS
    examples = (Example({"path": "docs"}),)


class TestFileWrite(ToolContract):
    name = "file-write"
    rooms = ROOMS
    examples = (
        Example({**NEW, "text": "x"}),
        Example({**NEW, "text": "y"}, fails="WRITE_CONFLICT"),
    )


class TestProcess(ToolContract):
    name = "process"
    rooms = ROOMS
    settings = {"argv": [sys.executable, "-c", "import sys; print(sys.argv[1])", "{text}"]}
    bad_settings = ({"argv": []}, {"argv": "echo hi"})
    ability = {
        "effects": "read",
        "schema_in": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
        "schema_out": True,
    }
    examples = (Example({"text": "hi"}, holds=lambda result: "hi" in str(result)),)
