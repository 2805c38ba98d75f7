"""The tool keeps the contract that third parties keep, over real HTTP."""

import pytest

from deedbook_testing import Example, ToolContract

ROOMS = ("deedbook.format.pointers",)
"""What this distribution uses of the kernel beside the contract; see ``tests/test_architecture.py``."""


class TestHttp(ToolContract):
    name = "http"
    rooms = ROOMS
    bad_settings = ({"url": "ftp://somewhere"}, {})
    ability = {
        "effects": "read",
        "schema_in": {"type": "object", "properties": {}, "additionalProperties": False},
        "schema_out": {"type": "object"},
    }
    examples = (Example({}), Example({"text": "x"}, fails="SCHEMA_VIOLATION"))

    @pytest.fixture(autouse=True)
    def here(self, server):
        address = f"127.0.0.1:{server.port}"
        self.settings = {"method": "GET", "url": f"http://{address}/", "hosts": [address], "insecure": True}
