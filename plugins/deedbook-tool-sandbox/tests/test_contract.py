"""The tool keeps the contract that third parties keep."""

from deedbook_testing import Example, ToolContract


class TestSandbox(ToolContract):
    name = "sandbox"
    rooms = ("deedbook.contract.features", "deedbook.programs.workers", "deedbook.workspace.declarations")
    settings = {"argv": ["python3", "-c", "import sys; print(sys.stdin.read())"], "stdin": "{text}"}
    bad_settings = ({"argv": []}, {"argv": ["true"], "limits": {"seconds": 0}}, {"argv": ["true"], "outputs": ["../x"]})
    ability = {
        "effects": "none",
        "schema_in": {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
        "schema_out": True,
    }
    examples = (Example({"text": "hi"}, holds=lambda result: result["stdout"] == "hi\n"),)
