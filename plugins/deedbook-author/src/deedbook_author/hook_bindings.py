"""The hooks of a workspace in their real isolation, for tests of hooks."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from deedbook.charter.bindings import bind
from deedbook.charter.compiler import compile_charter
from deedbook.format.files import Folder
from deedbook.format.release import VERSION
from deedbook.format.schema import Schemas, data_folder
from deedbook.kernel import build_host, refuse_platform
from deedbook.plugins.plugins import Catalogue, discover
from deedbook.policy.bindings import Bindings
from deedbook.programs.on_demand import WorkersOnDemand
from deedbook.workspace.declarations import Workspace
from deedbook.workspace.site import Site


@contextmanager
def bindings_for_hook_tests(workspace: Workspace, catalogue: Catalogue | None = None) -> Iterator[Bindings]:
    """Compile *workspace* and bind its hooks in their real isolation, so that each can be tested.

    The lock is not checked: a hook may be tested before it is pinned. Nothing is saved, recorded or pinned. Raises
    `DeedbookError` with every fault.
    """
    refuse_platform()
    found, site, schemas = catalogue or discover(), Site.of(workspace), Schemas.load(data_folder("schemas"))
    charter, secrets = compile_charter(workspace, found, kernel=VERSION), site.secret_values()
    with Folder.at(workspace.root) as root, closing(WorkersOnDemand(private=any(secrets.values()))) as programs:
        host = build_host(root, site, secrets, schemas, programs, charter, found)
        yield bind(charter, found, host, schemas, lazily=True)
