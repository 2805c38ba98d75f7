"""What a workspace's files declare: abilities, hooks, policies, roles, principals, profiles, each with its place."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from deedbook.contract import Effects, Object
from deedbook.format.errors import DomainError
from deedbook.plugins.packs import PackFolder

from .documents import Document, pointer

Durability = Literal["always", "boundary", "os"]


def _object() -> Object:
    return {}


@attrs.frozen
class Origin:
    """Where a definition stands: in *document*, from the JSON pointer *at* on.

    That is *inline* in ``deedbook.yaml``, in a file of its own, or *packed* in a pack.
    """

    document: Document
    at: str = ""
    inline: bool = False
    packed: bool = False

    def line(self, inner: str = "") -> str:
        """Return ``file:line`` of what the JSON pointer *inner* leads to within the definition."""
        return self.document.line(self.at + inner)

    def place(self, inner: str = "", *, key: bool = False) -> str:
        """Return ``file:line:column`` of what the JSON pointer *inner* leads to within the definition."""
        return self.document.place(self.at + inner, key=key)

    def within(self, inner: str, offset: int) -> str:
        """Return ``file:line:column`` of what stands in the text at *inner*, *offset* characters into its value."""
        return self.document.within(self.at + inner, offset)


@attrs.frozen(kw_only=True)
class Source:
    """A definition: its *id*, its *place* (``file:line``) and its *origin*."""

    id: str
    place: str
    origin: Origin = attrs.field(repr=False, eq=False)

    def place_of(self, inner: str) -> str:
        """Return ``file:line`` of a part of the definition, named by JSON pointer, such as ``/rules/0``."""
        return self.origin.line(inner)


@attrs.frozen(kw_only=True)
class RoutingHints:
    """Where an ability belongs: *intents* are words of a prompt, *scopes* what rules and hooks may match."""

    intents: tuple[str, ...] = ()
    scopes: frozenset[str] = frozenset()


@attrs.frozen(kw_only=True)
class AbilitySource(Source):
    """An ability as declared. *handler* has one entry: ``tool``, ``provider`` or ``flow``, and the plugin's name.

    ``None`` means that the plugin's own declaration stands, ``True`` as *schema_out* that a result may be anything.
    *paths* are JSON pointers to the arguments that are paths, *timeout_ms* is in milliseconds.
    """

    summary: str
    handler: Mapping[str, str]
    kind: str | None = None
    settings: Object = attrs.field(factory=_object)
    effects: Effects | None = None
    tags: frozenset[str] = frozenset()
    hooks: Mapping[str, tuple[str, ...]] = attrs.field(factory=_object)
    policies: tuple[str, ...] = ()
    routing_hints: RoutingHints = RoutingHints()
    timeout_ms: int | None = None
    schema_in: Object | None = None
    schema_out: Object | Literal[True] | None = None
    uses: frozenset[str] = frozenset()
    big_integers: Literal["refuse", "string"] = "refuse"
    paths: tuple[str, ...] = ()

    @property
    def intents(self) -> tuple[str, ...]:
        """Words of a prompt that speak for the ability."""
        return self.routing_hints.intents

    @property
    def scopes(self) -> frozenset[str]:
        """What the ability is about, for ``match: {scopes}``."""
        return self.routing_hints.scopes


@attrs.frozen(kw_only=True)
class HookSource(Source):
    """A hook as defined. *event_type* is the event's own name, never an alias; *timeout_ms* is in milliseconds.

    *protocol*, *env*, *reads* and *rewrites* are of scripts; *files* the digests of those that the workspace holds.
    """

    event_type: str
    handler: Mapping[str, Any]
    settings: Object = attrs.field(factory=_object)
    match: Object | None = None
    priority: int = 0
    timeout_ms: int = 1000
    isolation: Literal["inline", "thread", "worker"] = "inline"
    protocol: Literal["once", "lines"] = "once"
    env: Mapping[str, Any] = attrs.field(factory=_object)
    reads: frozenset[str] = frozenset()
    rewrites: bool = False
    files: Mapping[str, str] = attrs.field(factory=_object)


@attrs.frozen(kw_only=True)
class PolicySource(Source):
    """A policy as defined: its policy *kind*, the *match* that says where it applies, and the kind's *settings*."""

    kind: str
    settings: Object
    match: Object | None = None

    @property
    def inline(self) -> bool:
        """Whether it stands in ``deedbook.yaml``, where a policy without *match* fits everything in its kinds."""
        return self.origin.inline

    def rule_place(self, index: int) -> str:
        """Return ``file:line`` of the rule with that *index*, from 0."""
        return self.place_of(pointer("rules", index))


@attrs.frozen(kw_only=True)
class RoleSource(Source):
    """A role's instructions: Markdown *body* and front matter *meta*."""

    body: str
    meta: Object


@attrs.frozen(kw_only=True)
class CardSource(Source):
    """An agent's card (``.agent``): its *domain*, what it can do, and where its persona stands, which is not read here.

    *file* is the card as messages show it, *pack* the id of the pack it came with. *persona* is a path in the
    workspace, or in the pack, and *digest* the SHA-256 of what stands there.
    """

    file: str
    domain: str
    capabilities: frozenset[str] = frozenset()
    state: Object = attrs.field(factory=_object)
    budget: Object = attrs.field(factory=_object)
    size: int = 0
    pack: str | None = None
    persona: str | None = None
    digest: str | None = None


@attrs.frozen(kw_only=True)
class GuideSource:
    """A section of ``ROUTING.md`` or ``ABILITY.md``: its *title* and *text*, the words of prompts that it is for.

    *names* stand in it as code, and may be abilities; *links* are the files of the workspace that it links to. One that
    *lends* speaks for the abilities that it names. *place* is ``file:line``.
    """

    id: str
    title: str
    text: str
    triggers: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    lends: bool = False
    place: str = ""


@attrs.frozen(kw_only=True)
class LoaderSource:
    """A skill loader: the plugin's name, its *settings*, and where it is named."""

    loader: str
    settings: Object = attrs.field(factory=_object)
    place: str = ""


@attrs.frozen(kw_only=True)
class AliasSource:
    """What a name in a skill's ``allowed-tools`` means: *abilities*, and the JSON pointer to their *command*, if any.

    Without *command*, a pattern behind the name grants nothing.
    """

    name: str
    abilities: tuple[str, ...] = ()
    command: str = ""
    place: str = ""


@attrs.frozen(kw_only=True)
class PackSource(Source):
    """A pack: *label* says in messages whose files these are, *folder* has them, *notes* say what is not used of it.

    *chosen* are the skills that the workspace names of it.
    """

    label: str
    folder: PackFolder = attrs.field(repr=False, eq=False)
    notes: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class PrincipalSource(Source):
    """A person or a client: its *roles*, how it comes in, its public *key* (a verifier key), and for whom it acts.

    *uid* is the user id of its processes, where the runtime knows it by that.
    """

    roles: frozenset[str] = frozenset()
    via: str | None = None
    key: str | None = None
    on_behalf_of: str | None = None
    uid: int | None = None


@attrs.frozen(kw_only=True)
class ClientSource(Source):
    """A client that acts by itself: what *expose* fits is what it may use (``None``: what is under its own name).

    *unknown_tools* is what becomes of its own tools that nobody declared. A coding agent has a *kind*, unless its name
    says it. *asks*: who puts it to a person that one has to decide, *wait_s* for how many seconds a signed answer is
    waited for. *allows*: whether the agent's own permissions still judge what is allowed here. *tools* are what is said
    of its tools here, by name.
    """

    expose: Object | None = None
    unknown_tools: Literal["ask", "deny", "allow"] = "ask"
    kind: str | None = None
    asks: Literal["agent", "deedbook"] = "agent"
    wait_s: int = 60
    allows: Literal["agent", "deedbook"] = "agent"
    tools: Mapping[str, Object] = attrs.field(factory=_object)


@attrs.frozen(kw_only=True)
class ServerSource(Source):
    """An MCP server: *command* starts it, or it stands at *url*; the values of *env* and *headers* may name secrets.

    *include* and *exclude* are globs over its tools, *tools* what YAML says of some of them. *offers* names the tools
    that are abilities, *listed* has each of them as it was listed, *left_out* those that cannot be abilities, with the
    reason, *notes* what was left out of their schemas. *about* is what the server says that it is, *listing* the digest
    of what it listed, which is kept in ``servers/ID.json``.
    """

    command: tuple[str, ...] = ()
    url: str = ""
    env: Mapping[str, Any] = attrs.field(factory=_object)
    headers: Mapping[str, Any] = attrs.field(factory=_object)
    cwd: str = ""
    timeout_ms: int = 60_000
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    tools: Mapping[str, Mapping[str, Any]] = attrs.field(factory=_object)
    offers: tuple[str, ...] = ()
    listed: Mapping[str, Object] = attrs.field(factory=_object, repr=False)
    left_out: Mapping[str, str] = attrs.field(factory=_object)
    notes: Mapping[str, tuple[str, ...]] = attrs.field(factory=_object)
    about: Object = attrs.field(factory=_object)
    listing: str = ""

    def reached(self) -> dict[str, Any]:
        """Return how it is reached, as its plugin is told."""
        how: dict[str, Any] = {"command": list(self.command), "cwd": self.cwd, "env": dict(self.env)}
        return {"server": self.id, **(how if self.command else {"url": self.url, "headers": dict(self.headers)})}


@attrs.frozen(kw_only=True)
class FeatureSource(Source):
    """A feature that takes part in sessions: *id* is the name of its entry point, *settings* its section in YAML."""

    settings: Object


@attrs.frozen(kw_only=True)
class MemorySource(Source):
    """What is *said* of memory, as ``memory:`` has it; empty where abilities alone say that something is remembered."""

    said: Object


@attrs.frozen(kw_only=True)
class IdentitySource(Source):
    """The persona that sessions are bound to: its *version*, the *digest* of what its *file* says."""

    version: int
    digest: str
    file: str


@attrs.frozen(kw_only=True)
class ModelSource:
    """One tier of a profile: *model* is the provider's own name for it, *timeout_ms* in milliseconds."""

    provider: str
    model: str = ""
    settings: Object = attrs.field(factory=_object)
    timeout_ms: int | None = None


@attrs.frozen(kw_only=True)
class Profile:
    """Named settings: *models* by tier, *roles* to tiers, *flow* for what ``run`` starts."""

    durability: Durability = "boundary"
    flow: str | None = None
    models: Mapping[str, ModelSource] = attrs.field(factory=_object)
    roles: Mapping[str, str] = attrs.field(factory=_object)


@attrs.frozen(kw_only=True)
class Workspace:
    """Everything that the YAML and Markdown of a workspace say.

    *root* holds *system* (``.system``); *state* is absolute. *secrets* maps names to environment variables.
    *clients* act by themselves, *cards* are the agents that have one, *guides* the sections of routing documents,
    *packs* the activated ones by id, *loaders* read the skills. *expires_s* is how long a request to a person stands,
    in seconds. *skill_roots* are folders besides ``.system/skills``, relative to *root*; *folders* are all that hold
    sources, with what is below them. *digests* has the SHA-256 of every file that was read, by its path relative to
    *root*. *workdocs* says whether sessions leave pages, or in which folder below *root*. *checkpoints* is what is said
    of the log, with the keys that its files hold in their place. *required* has the place where each skill is named
    without which the workspace does not start, *unread* what is wrong with the files of skills that cannot be read, by
    path, *aliases* what names in ``allowed-tools`` mean.
    """

    root: Path
    system: Path
    state: Path
    profile: str = "local"
    profiles: Mapping[str, Profile] = attrs.field(factory=_object)
    enforcement: Literal["observe", "enforce"] = "enforce"
    lock: Literal["auto", "required"] = "auto"
    workdocs: bool | str = False
    checkpoints: Object = attrs.field(factory=_object)
    principals: Mapping[str, PrincipalSource] = attrs.field(factory=_object)
    clients: Mapping[str, ClientSource] = attrs.field(factory=_object)
    secrets: Mapping[str, str] = attrs.field(factory=_object)
    abilities: Mapping[str, AbilitySource] = attrs.field(factory=_object)
    hooks: Mapping[str, HookSource] = attrs.field(factory=_object)
    policies: Mapping[str, PolicySource] = attrs.field(factory=_object)
    servers: Mapping[str, ServerSource] = attrs.field(factory=_object)
    features: Mapping[str, FeatureSource] = attrs.field(factory=_object)
    roles: Mapping[str, RoleSource] = attrs.field(factory=_object)
    cards: Mapping[str, CardSource] = attrs.field(factory=_object)
    guides: Mapping[str, GuideSource] = attrs.field(factory=_object)
    packs: Mapping[str, PackSource] = attrs.field(factory=_object)
    loaders: tuple[LoaderSource, ...] = (LoaderSource(loader="markdown"),)
    required: Mapping[str, str] = attrs.field(factory=_object)
    unread: Mapping[str, DomainError] = attrs.field(factory=_object)
    aliases: Mapping[str, AliasSource] = attrs.field(factory=_object)
    expires_s: int = 3600
    skill_roots: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    file_roots: tuple[str, ...] = (".",)
    seal: tuple[Any, ...] = ()
    memory: MemorySource | None = None
    persona: IdentitySource | None = None
    digests: Mapping[str, str] = attrs.field(factory=_object)
