"""What a start does without: nobody waits for the import of what an ordinary session never uses."""

import json
import subprocess
import sys

import pytest
from cases import for_each

NEVER = (
    "cedarpy", "cel_expr_python", "cryptography", "httpx", "openai", "re2", "cattrs", "click", "ssl", "asyncio",
    "logging",
    "ruamel.yaml", "jsonschema_rs", "fastjsonschema", "importlib_metadata",
)  # fmt: skip
"""Libraries: SDKs and engines that plugins use, and what only those need who wait, read YAML or type a command."""
LATER = (
    "deedbook.approvals.keys", "deedbook.sessions.facts", "deedbook.call.pending_calls", "deedbook.sessions.prompts",
    "deedbook.sessions.runs", "deedbook.charter.abilities", "deedbook.charter.changes", "deedbook.charter.compiler",
    "deedbook.charter.guards", "deedbook.charter.instances", "deedbook.charter.narrowing", "deedbook.charter.skills",
    "deedbook.format.loops", "deedbook_serve.markdown", "deedbook.plugins.isolation",
    "deedbook.programs.exchange", "deedbook.programs.scripts",
    "deedbook.workspace.activation", "deedbook.workspace.declarations", "deedbook.workspace.migrations",
    "deedbook.workspace.personas", "deedbook.workspace.sections", "deedbook.workspace.trees",
    "deedbook.workspace.workspace",
    "deedbook_hook_standard.bm25", "deedbook_hook_standard.guides", "deedbook_hook_standard.routes",
    "deedbook_log.checkpoints.announcer", "deedbook_log.checkpoints.coverage", "deedbook_log.checkpoints.followers",
    "deedbook_log.checkpoints.keeper", "deedbook_log.checkpoints.keys", "deedbook_log.checkpoints.log",
    "deedbook_log.checkpoints.trees", "deedbook_log.checkpoints.writer", "deedbook_serve.agents",
    "deedbook_serve.bridging.session_table", "deedbook_serve.tools", "deedbook_serve.workdocs",
    "deedbook_author.yaml_edits", "deedbook_tool_mcp.listings", "deedbook_tool_mcp.server_listing",
    "deedbook_tool_mcp.servers",
)  # fmt: skip
"""Rooms of the kernel: they read and compile a workspace, or serve hooks elsewhere, conditions and event loops."""


def modules(code):
    """Return the names of all modules that a new interpreter has imported after *code*."""
    told = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-I", "-c", told], capture_output=True, text=True, check=True)
    return set(json.loads(ran.stdout))


@pytest.fixture(scope="module")
def kernel():
    return modules("import deedbook.kernel")


@for_each("name", NEVER)
def test_kernel_begins_without_what_few_sessions_use(kernel, name):
    assert name not in kernel


@for_each("name", LATER)
def test_kernel_begins_without_what_reads_and_compiles_a_workspace(kernel, name):
    assert name not in kernel


def test_rooms_that_come_later_exist():
    found = modules("import " + ", ".join(LATER))
    assert set(LATER) <= found


def test_client_of_the_runtime_begins_without_the_kernel():
    found = modules("import deedbook_serve.client")
    assert {name for name in found if name.startswith(("deedbook.", "deedbook_"))} == {
        "deedbook_serve", "deedbook_serve.client", "deedbook_serve.serving", "deedbook_serve.serving.addresses",
        "deedbook.format", "deedbook.format.errors", "deedbook.format.jsontext",
    }  # fmt: skip
    assert not {"orjson", "ruamel", "jsonschema_rs", "fastjsonschema", "pluggy", *NEVER} & found


def test_kernel_begins_with_few_modules(kernel):
    own = [name for name in kernel if name.partition(".")[0] == "deedbook"]
    assert len(own) <= 75, own


def test_kernel_begins_without_any_plugin(kernel):
    assert not [name for name in kernel if name.startswith("deedbook_")]
