"""A workspace in a folder, and plugins beside it whose code is a file: what the charter is compiled from."""

import itertools
import json
import sys
from types import ModuleType

import importlib_metadata

from deedbook.charter.bindings import bind
from deedbook.charter.cachekeys import cache_key
from deedbook.charter.compiler import compile_charter
from deedbook.charter.locks import Store, choose_charter, enforce
from deedbook.contract import ALLOW, GateSpec, HandlerSpec, hookimpl
from deedbook.contract.lifecycle import EVENTS
from deedbook.format.errors import BindingError
from deedbook.format.files import Folder
from deedbook.format.schema import Schemas, data_folder
from deedbook.plugins.groups import GROUPS
from deedbook.plugins.host import WorkspaceHost
from deedbook.plugins.plugins import discover
from deedbook.workspace.workspace import load_workspace
from deedbook_author.locking import lock
from deedbook_policy_standard.rules import Rules

SCHEMAS = Schemas.load(data_folder("schemas"))
HEAD = "schema_version: v1\n"
TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
KERNEL = "0.1.0"
_numbers = itertools.count()


class Distribution(importlib_metadata.Distribution):
    """A distribution with one file of code, as its metadata would say it had been installed."""

    def __init__(self, folder, name, version="1.0", *, editable=False):
        self.name_, self.version_, self.editable, self.points = name, version, editable, []
        self.code = folder / f"{name}.py"
        self.code.parent.mkdir(parents=True, exist_ok=True)
        self.code.write_text(f"# {name}\n")

    def read_text(self, filename):
        return {
            "METADATA": f"Metadata-Version: 2.1\nName: {self.name_}\nVersion: {self.version_}\n",
            "entry_points.txt": "".join(f"[{group}]\n{name} = {target}\n" for group, name, target in self.points),
            "RECORD": f"{self.code.name},,\n",
            "direct_url.json": json.dumps({"url": "file:///src", "dir_info": {"editable": self.editable}}),
        }.get(filename)

    def locate_file(self, path):
        return self.code.parent / path


def _match(more, *, named):
    matches = any(line.startswith("match:") for line in more.splitlines())
    return "" if named or matches else "match: {}\n"


class Workshop:
    """Write sources below ``.system``, offer plugins, and compile, lock, open or freeze what they come to."""

    def __init__(self, path):
        self.root = path / "workspace"
        self.state = self.root / ".deedbook"
        self.site = path / "site"
        self.distributions = {}
        self.modules = []
        self.write("deedbook.yaml", HEAD)

    def write(self, path, text):
        place = self.root / ".system" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def settings(self, text):
        """Add *text* to ``deedbook.yaml``."""
        place = self.root / ".system" / "deedbook.yaml"
        place.write_text(place.read_text() + text)

    def ability(self, name, more="", *, handler="tool: echo"):
        return self.write(
            f"registry/low-level/{name.replace('/', '-')}.yaml",
            f"{HEAD}id: {name}\nsummary: Does it.\nhandler: {{{handler}}}\n{more}",
        )

    def hook(self, name, more="", *, event="PreToolUse", plugin="guard", named=False):
        """Write a hook; one of calls matches every call, unless *more* has a match or an ability has *named* it."""
        head = f"{HEAD}id: {name}\nevent_type: {event}\nhandler: {{hook: {plugin}}}\n"
        return self.write(f"hooks/{name}.yaml", head + more + _match(more, named=named or not EVENTS[event].call))

    def policy(self, name, more, *, kind="rules", named=False):
        """Write a policy, which matches every call, unless *more* has a match or an ability has *named* it."""
        return self.write(f"policies/{name}.yaml", f"{HEAD}id: {name}\nkind: {kind}\n{more}{_match(more, named=named)}")

    def skill(self, name, text):
        return self.write(f"skills/{name}/SKILL.md", text)

    def offer(self, kind, name, plugin, *, distribution="offered", **about):
        """Offer a class under a name, as a distribution would that pip has installed."""
        owner = self.distributions.get(distribution)
        if owner is None:
            owner = self.distributions[distribution] = Distribution(self.site, distribution, **about)
        module = ModuleType(f"workshop_{next(_numbers)}")
        module.plugin = plugin
        sys.modules[module.__name__] = module
        self.modules.append(module.__name__)
        owner.points = [point for point in owner.points if point[:2] != (GROUPS[kind], name)]
        owner.points.append((GROUPS[kind], name, f"{module.__name__}:plugin"))
        return owner

    def withdraw(self):
        """Take all modules away, so that nothing can be imported any more."""
        for name in self.modules:
            sys.modules.pop(name, None)

    def catalogue(self):
        return discover(self.distributions.values())

    def workspace(self):
        return load_workspace(self.root, SCHEMAS)

    def compile(self, **options):
        return compile_charter(self.workspace(), self.catalogue(), kernel=KERNEL, **options)

    def open(self, **options):
        with Folder.at(self.root) as root, Folder.at(self.state, create=True) as state:
            store, record = Store(state, self.key()), options.pop("record", None)
            charter = choose_charter(self.workspace(), self.catalogue(), store, root, **{"kernel": KERNEL} | options)
            return enforce(charter, store, root, record)

    def lock(self, **options):
        with Folder.at(self.root) as root, Folder.at(self.state, create=True) as state:
            given = {"kernel": KERNEL} | options
            return lock(self.workspace(), self.catalogue(), Store(state, self.key()), root, **given)

    def key(self):
        return cache_key(self.root, self.state, create=True)

    def store(self):
        return Store(Folder.at(self.state, create=True), self.key())

    def freeze(self, charter=None, *, secrets=None):
        host = WorkspaceHost(Folder.at(self.root), ["."], [], secrets or {})
        return bind(charter or self.compile(), self.catalogue(), host, SCHEMAS)

    def faults(self, attempt=None):
        """Return what *attempt* (else: compiling) is refused with, as (code, place, message)."""
        try:
            (attempt or self.compile)()
        except BindingError as problem:
            return [(each.code, each.place, each.message) for each in problem.errors]
        return []


class Echo:
    """Gives its arguments back."""

    spec = HandlerSpec(takes=TEXT, gives=TEXT, effects="read")

    def __init__(self, settings, host):
        self.settings = settings

    def __call__(self, args, ctx):
        return args


class Chat(Echo):
    """A provider that says nothing."""

    spec = HandlerSpec(effects="read", interruptible=True)


class Flow(Echo):
    """A flow that keeps a context and does nothing."""

    spec = HandlerSpec(effects="none")


class Guard:
    """Allows every call, and every session to end."""

    spec = GateSpec(pure=True)

    def __init__(self, settings, host):
        pass

    @hookimpl
    def pre_tool_use(self, call):
        return ALLOW

    @hookimpl
    def post_tool_use(self, call, result):
        return result

    @hookimpl
    def session_stop(self, session, ok, now, facts):
        pass


class Judge(Guard):
    """A policy kind that allows everything."""

    def __call__(self, call):
        return ALLOW


def bench(path):
    """Return a workshop with the usual plugins."""
    made = Workshop(path)
    made.offer("tool", "echo", Echo)
    made.offer("provider", "chat", Chat)
    made.offer("flow", "loop", Flow)
    made.offer("hook", "guard", Guard)
    made.offer("policy", "rules", Rules)
    return made


def tool(**spec):
    """Return a tool that declares *spec*."""
    return type("Tool", (Echo,), {"spec": HandlerSpec(**{"gives": {"type": "object"}, **spec})})


def hook(**spec):
    """Return a hook that declares *spec*."""
    return type("Hook", (Guard,), {"spec": GateSpec(**spec)})


def judge(**spec):
    """Return a policy kind that declares *spec*."""
    return type("Kind", (Judge,), {"spec": GateSpec(**spec)})
