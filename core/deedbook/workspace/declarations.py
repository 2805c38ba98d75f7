"""The declarations of a workspace: abilities, hooks, policies, roles, principals and profiles, each with its place."""

from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from deedbook.contract import Effects, Object, Skill
from deedbook.contract.pointers import join_pointer
from deedbook.format.errors import DomainError
from deedbook.plugins.packs import PackFolder

from .documents import Document

Durability = Literal["always", "boundary", "os"]


def _object() -> Object:
    return {}


@attrs.frozen
class Origin:
    """The position of a definition: in *document*, at the JSON pointer *at*.

    The definition is *inline* in ``deedbook.yaml``, in a file of its own, or *packed* in a pack.
    """

    document: Document
    at: str = ""
    inline: bool = False
    packed: bool = False

    def line(self, inner: str = "") -> str:
        """Return ``file:line`` of the value at the JSON pointer *inner* within the definition."""
        return self.document.line(self.at + inner)

    def place(self, inner: str = "", *, key: bool = False) -> str:
        """Return ``file:line:column`` of the value at the JSON pointer *inner* within the definition."""
        return self.document.place(self.at + inner, key=key)

    def within(self, inner: str, offset: int) -> str:
        """Return ``file:line:column`` of the character at *offset* in the text value at *inner*."""
        return self.document.within(self.at + inner, offset)


@attrs.frozen(kw_only=True)
class Source:
    """A definition: its *id*, its *place* (``file:line``) and its *origin*."""

    id: str
    place: str
    origin: Origin = attrs.field(repr=False, eq=False)

    def place_of(self, inner: str) -> str:
        """Return ``file:line`` of a part of the definition, given by JSON pointer, such as ``/rules/0``."""
        return self.origin.line(inner)


@attrs.frozen(kw_only=True)
class RoutingHints:
    """Hints for routing: *intents* are words of a prompt, *scopes* are labels that rules and hooks may match."""

    intents: tuple[str, ...] = ()
    scopes: frozenset[str] = frozenset()


@attrs.frozen(kw_only=True)
class AbilitySource(Source):
    """A declared ability. *handler* has one entry: ``tool``, ``provider`` or ``flow``, with the plugin's name.

    ``None`` keeps the plugin's own declaration; ``True`` as *schema_out* allows any result. *paths* are JSON pointers
    to the arguments that are paths, *timeout_ms* is in milliseconds.
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
        """Words of a prompt that suggest the ability."""
        return self.routing_hints.intents

    @property
    def scopes(self) -> frozenset[str]:
        """The subjects of the ability, for ``match: {scopes}``."""
        return self.routing_hints.scopes


@attrs.frozen(kw_only=True)
class HookSource(Source):
    """A declared hook. *event_type* is the event's own name, never an alias; *timeout_ms* is in milliseconds.

    *protocol*, *env*, *reads* and *rewrites* belong to scripts; *files* are the digests of the script's files in the
    workspace.
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
    """A declared policy: its *kind*, the *match* that limits where it applies, and the kind's *settings*."""

    kind: str
    settings: Object
    match: Object | None = None

    @property
    def inline(self) -> bool:
        """Whether it is in ``deedbook.yaml``, where a policy without *match* applies to every ability of its kinds."""
        return self.origin.inline

    def rule_place(self, index: int) -> str:
        """Return ``file:line`` of the rule with that *index*, from 0."""
        return self.place_of(join_pointer("rules", index))


@attrs.frozen(kw_only=True)
class SkillSource(Source):
    """A skill that a feature declares: *skill* in the form that a loader gives, with the file as messages show it."""

    skill: Skill


@attrs.frozen(kw_only=True)
class RoleSource(Source):
    """A role's instructions: the Markdown *body*."""

    body: str


@attrs.frozen(kw_only=True)
class CardSource(Source):
    """An agent's card (``.agent``): its *domain*, its capabilities, and the place of its persona (not read here).

    *file* is the card as messages show it, *pack* the id of its pack. *persona* is a path in the workspace or in the
    pack, and *digest* the SHA-256 of that file.
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
class LoaderSource:
    """A skill loader: the plugin's name, its *settings*, and the place that names it."""

    loader: str
    settings: Object = attrs.field(factory=_object)
    place: str = ""


@attrs.frozen(kw_only=True)
class AliasSource:
    """An alias for ``allowed-tools``: its *abilities*, and the JSON pointer to their *command*, if any.

    Without *command*, a pattern after the name grants nothing.
    """

    name: str
    abilities: tuple[str, ...] = ()
    command: str = ""
    place: str = ""


@attrs.frozen(kw_only=True)
class PackSource(Source):
    """A pack: *label* identifies its files in messages, *folder* holds them, *notes* list unused parts.

    *chosen* are the skills that the workspace selects from it, *may_loosen* what its policies may loosen.
    """

    label: str
    folder: PackFolder = attrs.field(repr=False, eq=False)
    notes: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    may_loosen: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class PrincipalSource(Source):
    """A person or a client: its *roles*, its channel (*via*), its public *key* (a verifier key), and *on_behalf_of*.

    *uid* is the user id of its processes, where the runtime identifies it by that.
    """

    roles: frozenset[str] = frozenset()
    via: str | None = None
    key: str | None = None
    on_behalf_of: str | None = None
    uid: int | None = None


@attrs.frozen(kw_only=True)
class ClientSource(Source):
    """A client that acts by itself: it may use what *expose* matches (``None``: abilities under its own name).

    *unknown_tools* is the outcome for its tools that are not declared. A coding agent has a *kind*, unless its name is
    one. *asks*: which side asks a person to decide a call; *wait_s* is how many seconds a signed answer is awaited.
    *allows*: whether the agent's own permissions still apply to calls that are allowed here. *tools* are the
    declarations of its tools, by name.
    """

    expose: Object | None = None
    unknown_tools: Literal["ask", "deny", "allow"] = "ask"
    kind: str | None = None
    asks: Literal["agent", "deedbook"] = "agent"
    wait_s: int = 60
    allows: Literal["agent", "deedbook"] = "agent"
    tools: Mapping[str, Object] = attrs.field(factory=_object)


@attrs.frozen(kw_only=True)
class FeatureSource(Source):
    """A feature that takes part in sessions: *id* is the name of its entry point, *settings* its section in YAML."""

    settings: Object


class FeatureSection:
    """What a feature read from the section of its name and from its files; a subclass overrides what it has."""

    def abilities(self) -> Iterable[AbilitySource]:
        """Return the abilities that the section declares."""
        return ()

    def policies(self) -> Iterable[PolicySource]:
        """Return the policies that the section declares."""
        return ()

    def skills(self) -> Iterable[SkillSource]:
        """Return the skills that the section declares. Unlike a loader's, each of them is required."""
        return ()

    def problems(self, workspace: "Workspace") -> Iterable[DomainError]:  # noqa: ARG002 - a subclass may need it
        """Return the faults that only the whole *workspace* shows, such as the name of an unknown ability."""
        return ()

    def entries(self, abilities: Container[str]) -> Object:  # noqa: ARG002 - a subclass may need them
        """Return the member of the charter; *abilities* are the ids of all abilities of the workspace."""
        return {}

    def trigger_names(self) -> Iterable[str]:
        """Return the names that words of prompts lead to; they may be ids of abilities."""
        return ()

    def links(self) -> Iterable[str]:
        """Return the files of the workspace that it refers to, relative to the workspace."""
        return ()


@attrs.frozen(kw_only=True)
class MemorySource(Source):
    """The settings of memory: the *section* ``memory:``; empty where only abilities of kind memory are declared."""

    section: Object


@attrs.frozen(kw_only=True)
class IdentitySource(Source):
    """The persona that sessions are bound to: its *version*, its *file*, and the *digest* of the file's content."""

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
    """Named settings: *models* by tier, *roles* to tiers, and the *flow* that ``run`` starts.

    *max_rounds* is how often hooks of ``Stop`` may send a run into another round.
    """

    durability: Durability = "boundary"
    flow: str | None = None
    max_rounds: int | None = None
    models: Mapping[str, ModelSource] = attrs.field(factory=_object)
    roles: Mapping[str, str] = attrs.field(factory=_object)


@attrs.frozen(kw_only=True)
class Workspace:
    """Everything that the YAML and Markdown files of a workspace declare.

    *root* holds *system* (``.system``); *state* is absolute. *secrets* maps names to environment variables. *clients*
    act by themselves, *cards* are the agents that have one, *guides* the sections of routing documents, *packs* the
    activated ones by id, *loaders* read the skills. *expires_s* is how long a request to a person is valid, in seconds,
    *run_expires_s* how long that of a run, which otherwise waits as long as the run.
    *skill_roots* are folders besides ``.system/skills``, relative to *root*; *folders* are all that hold sources,
    including their subfolders. *digests* has the SHA-256 of every file that was read, by its path relative to *root*.
    *workdocs* tells whether sessions leave pages, or in which folder below *root*. *checkpoints* are the settings of
    checkpoints, with the keys from their files. *required* has the place that names each required skill, *unread* the
    errors of skill files that cannot be read, by path, *aliases* the meaning of names in ``allowed-tools``. *sections*
    are what features read, by the feature's name. *default* says by effects what happens to calls that no
    policy covers.
    """

    root: Path
    system: Path
    state: Path
    profile: str = "local"
    profiles: Mapping[str, Profile] = attrs.field(factory=_object)
    enforcement: Literal["observe", "enforce"] = "enforce"
    lock: Literal["auto", "required"] = "auto"
    default: Mapping[str, str] = attrs.field(factory=_object)
    workdocs: bool | str = False
    checkpoints: Object = attrs.field(factory=_object)
    principals: Mapping[str, PrincipalSource] = attrs.field(factory=_object)
    clients: Mapping[str, ClientSource] = attrs.field(factory=_object)
    secrets: Mapping[str, str] = attrs.field(factory=_object)
    abilities: Mapping[str, AbilitySource] = attrs.field(factory=_object)
    hooks: Mapping[str, HookSource] = attrs.field(factory=_object)
    policies: Mapping[str, PolicySource] = attrs.field(factory=_object)
    features: Mapping[str, FeatureSource] = attrs.field(factory=_object)
    sections: Mapping[str, FeatureSection] = attrs.field(factory=_object)
    roles: Mapping[str, RoleSource] = attrs.field(factory=_object)
    cards: Mapping[str, CardSource] = attrs.field(factory=_object)
    packs: Mapping[str, PackSource] = attrs.field(factory=_object)
    loaders: tuple[LoaderSource, ...] = (LoaderSource(loader="markdown"),)
    required: Mapping[str, str] = attrs.field(factory=_object)
    unread: Mapping[str, DomainError] = attrs.field(factory=_object)
    aliases: Mapping[str, AliasSource] = attrs.field(factory=_object)
    expires_s: int = 3600
    run_expires_s: int | None = None
    skill_roots: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    file_roots: tuple[str, ...] = (".",)
    seal: tuple[Any, ...] = ()
    memory: MemorySource | None = None
    persona: IdentitySource | None = None
    digests: Mapping[str, str] = attrs.field(factory=_object)
