"""The tool keeps the contract that third parties keep, over real HTTP."""

import pytest

from deedbook_testing import Example, ToolContract


class TestHttp(ToolContract):
    name = "http"
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
