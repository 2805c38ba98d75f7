"""Compile sources and plugins into a charter.

The compiler loads every plugin that the sources name and reports all faults at once. A start that finds no change
imports none of this.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from deedbook.contract.lifecycle import EVENTS
from deedbook.format.errors import BindingError, fault, raise_all
from deedbook.plugins.groups import FEATURE
from deedbook.plugins.plugins import Catalogue, known_owners
from deedbook.policy.callers import LOCAL
from deedbook.policy.charter import DEFAULT, FORMAT, Charter
from deedbook.policy.defaults import default_settings
from deedbook.policy.fitting import judges_calls
from deedbook.policy.match import DYNAMIC, Match
from deedbook.workspace.declarations import ClientSource, HookSource, PolicySource, Profile, Workspace
from deedbook.workspace.sections import read_owners
from deedbook.workspace.site import SETTINGS

from .abilities import AbilityCompiler
from .capabilities import Capabilities
from .extensions import Extensions
from .guards import GuardCompiler
from .linker import Admit, Linker, LoadedPlugin, admit_all, locator, profile_place
from .memory_section import MemoryCompiler
from .policies import Targets
from .skills import SkillCompiler

GUARDS_NOTHING: Final = "guards nothing"
"""The message about a hook or a policy that no call reaches has these words."""


def compile_charter(
    workspace: Workspace, catalogue: Catalogue, *, kernel: str, admit: Admit = admit_all, known: Collection[str] = ()
) -> Charter:
    """Compile *workspace* with the plugins of *catalogue* that *admit* accepts.

    *known* are the script files of the previous charter; none may be missing where the sources still name it. Raises
    `BindingError` with every fault.
    """
    compiler = _Compiler(workspace, catalogue, Linker(catalogue, admit), known)
    document = compiler.document(kernel)
    raise_all(BindingError, dict.fromkeys(compiler.linker.faults))
    return Charter.of(document)


class _Compiler:
    """One compilation. It collects faults instead of stopping at the first."""

    def __init__(self, workspace: Workspace, catalogue: Catalogue, linker: Linker, known: Collection[str]) -> None:
        self.workspace = workspace
        self.catalogue = catalogue
        self.known = known
        self.linker = linker
        self.profile = workspace.profiles.get(workspace.profile) or Profile()

    def document(self, kernel: str) -> dict[str, Any]:
        workspace, profile = self.workspace, self.profile
        guards = GuardCompiler(self.linker, workspace.root, self.known, workspace.packs.values())
        for pack in workspace.packs.values():
            self.linker.link("pack", pack.id, pack.place)
        parts = {
            "abilities": AbilityCompiler(workspace, profile, self.linker).entries(),
            "hooks": {name: guards.hook(source) for name, source in workspace.hooks.items()},
            "policies": {name: guards.policy(source) for name, source in workspace.policies.items()},
        }
        targets = Targets(parts["abilities"], self.linker.schemas)
        for name, entry in parts["policies"].items():
            if entry:
                guards.check_policy(workspace.policies[name], entry, targets)
        self._check_named_policies(parts["policies"])
        self._check_unbound(parts["policies"])
        self._check_local()
        self._check_profile()
        return {
            **parts,
            "format": FORMAT,
            "kernel": kernel,
            "profile": workspace.profile,
            "durability": profile.durability,
            "flow": profile.flow,
            **({} if profile.max_rounds is None else {"max_rounds": profile.max_rounds}),
            "models": {tier: model.model for tier, model in profile.models.items()},
            "roles": dict(profile.roles),
            "enforcement": workspace.enforcement,
            DEFAULT: default_settings(workspace.default),
            "lock": workspace.lock,
            "principals": {
                name: {
                    "roles": sorted(p.roles),
                    "via": p.via,
                    "key": p.key,
                    "on_behalf_of": p.on_behalf_of,
                    **({} if p.uid is None else {"uid": p.uid}),
                }
                for name, p in workspace.principals.items()
            },
            "clients": self._clients(),
            "approvals": _approvals(workspace),
            "secrets": dict(workspace.secrets),
            **self._sections(),
            "seal": list(workspace.seal),
            "file_roots": list(workspace.file_roots),
            **self._workdocs(),
            **Extensions(workspace, self.linker).entries(),
            **({"checkpoints": dict(workspace.checkpoints)} if workspace.checkpoints else {}),
            **MemoryCompiler(workspace, self.linker).entries(),
            **self._skills(),
            "instructions": {name: role.body for name, role in workspace.roles.items()},
            "agents": self._agents(),
            "plugins": self.linker.entries(),
            "schemas": self.linker.schemas,
            "sources": dict(workspace.digests),
        }

    def _check_named_policies(self, policies: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Check that abilities name only policies that judge calls."""
        for source in self.workspace.abilities.values():
            for index, name in enumerate(source.policies):
                entry = policies.get(name)
                if entry and not judges_calls(entry):
                    why = f"policy {name!r} judges no calls, only {', '.join(sorted(entry['subjects']))}; leave it out"
                    self.linker.refuse("BINDING_INVALID", why, locator(source)(f"/policies/{index}"))

    def _check_unbound(self, policies: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Check that the workspace's own hooks of calls and its policies have a match, or that an ability names them.

        A pack may have more hooks than a workspace names, and a flow may name a policy that judges subjects.
        """
        sources = self.workspace.abilities.values()
        hooked = {name for source in sources for names in source.hooks.values() for name in names}
        judged = {name for source in sources for name in source.policies}
        calls = [each for each in self.workspace.hooks.values() if EVENTS[each.event_type].call]
        unbound: list[tuple[HookSource | PolicySource, str, str]]
        unbound = [(each, "hook", "hooks") for each in calls if each.id not in hooked]
        of_calls = {name for name, entry in policies.items() if entry is not None and not entry.get("subjects")}
        unbound += [
            (each, "policy", "policies")
            for each in self.workspace.policies.values()
            if each.id in of_calls - judged and not each.inline
        ]
        for each, kind, key in unbound:
            if each.match is None and not each.origin.packed:
                why = (
                    f"{kind} {each.id!r} {GUARDS_NOTHING}: it has no match, and no ability names it under {key}; "
                    "add match: (match: {} means every tool and flow), or name it in an ability"
                )
                self.linker.refuse("BINDING_INVALID", why, each.place)

    def _check_local(self) -> None:
        """Check that the default principal has no roles: a session that names no principal would not have them."""
        local = self.workspace.principals.get(LOCAL.id)
        if local is not None and local.roles:
            why = (
                f"{LOCAL.id!r} is the principal of a session that names none, and it never has roles; "
                "declare the roles for another id, and act for it with --as ID"
            )
            self.linker.refuse("BINDING_INVALID", why, locator(local)("/roles"))

    def _sections(self) -> dict[str, Any]:
        """Return the members of features that read files of the workspace; without such files, they are empty.

        The feature of a third party that reads them is pinned.
        """
        sections, abilities = self.workspace.sections, self.workspace.abilities
        owners = known_owners(FEATURE)
        for name in sections:
            offer = self.catalogue.find(FEATURE, name, SETTINGS)
            if offer.distribution != owners[name]:  # the kernel's version pins its own distributions
                self.linker.link(FEATURE, name, SETTINGS)
        return {
            owner.member: dict(sections[name].entries(abilities)) if name in sections else {}
            for name, owner in read_owners().items()
        }

    def _skills(self) -> dict[str, Any]:
        """Return the entries of skills, and of the skills that are set aside, if there are any."""
        skills = SkillCompiler(self.workspace, self.linker)
        made = {"skills": skills.entries(self._providers())}
        return {**made, "set_aside": skills.set_aside} if skills.set_aside else made

    def _workdocs(self) -> dict[str, Any]:
        """Return the folder for pages of sessions, if any. It must not hold sources, which would then change."""
        folder = self.workspace.workdocs
        if isinstance(folder, str) and any(f"{folder}/".startswith(f"{each}/") for each in self.workspace.folders):
            why = f"{folder!r} holds sources; name a folder of its own"
            self.linker.faults.append(fault("SOURCE_INVALID", why, place=f"{SETTINGS}: workdocs"))
        if not folder:
            return {}
        self.linker.link("feature", "workdocs", f"{SETTINGS}: workdocs")
        return {"workdocs": folder}

    # --- clients ---

    def _clients(self) -> dict[str, Any]:
        """Return the entries of clients that act by themselves."""
        for client in self.workspace.clients.values():
            self._check_client(client)
        return {
            name: {
                "expose": {"abilities": f"{name}/*"} if client.expose is None else dict(client.expose),
                "unknown_tools": client.unknown_tools,
                "kind": client.kind or name,
                "asks": client.asks,
                "wait_s": client.wait_s,
                "allows": client.allows,
                "place": client.place,
            }
            for name, client in self.workspace.clients.items()
        }

    def _check_client(self, client: ClientSource) -> None:
        """Check that the client does not share its principal with a role, and that all of its calls are exposed."""
        if client.id in self.workspace.roles or client.id in self.workspace.cards:
            why = f"{client.id!r} is also a role of this workspace and would act under its name; choose another name"
            self.linker.refuse("BINDING_INVALID", why, client.place)
        body = client.expose or {}
        for key in sorted(DYNAMIC & body.keys()):
            why = f"expose cannot look at {key}: it says which abilities there are; a policy can look at calls"
            self.linker.refuse("BINDING_INVALID", why, client.place_of(f"/expose/{key}"))
        try:
            Match.compile(body, client.place, at=("expose",), allows=True)
        except BindingError as problem:
            self.linker.faults.extend(problem.errors)

    # --- profile ------------------------------------------------------------------------------------------------------

    def _agents(self) -> dict[str, Any]:
        """Return the entries of agents that have a card.

        Their personas are named here and read when an agent is chosen.
        """
        capabilities = Capabilities(self.workspace)
        return {
            name: {
                "domain": card.domain,
                **capabilities.entries(card),
                "state": dict(card.state),
                "budget": dict(card.budget),
                "source": card.file,
                "pack": card.pack,
                "persona": card.persona,
                "digest": card.digest,
            }
            for name, card in self.workspace.cards.items()
        }

    def _providers(self) -> list[LoadedPlugin]:
        """Return the providers of the profile's models, each once."""
        named = dict.fromkeys(model.provider for model in self.profile.models.values())
        return [linked for name in named if (linked := self.linker.get("provider", name))]

    def _check_profile(self) -> None:
        """Check that the flow is a flow, that roles have instructions, and that these roles have a model."""
        flow, abilities = self.profile.flow, self.workspace.abilities
        roles = {**self.workspace.roles, **self.workspace.cards}
        if flow is not None and flow not in abilities:
            flows = [name for name, source in abilities.items() if "flow" in source.handler]
            self.linker.check_name("flow", flow, flows, self._place("flow"))
        elif flow is not None and "flow" not in abilities[flow].handler:
            why = f"{flow!r} is no flow; name an ability with handler: {{flow: …}}"
            self.linker.refuse("BINDING_INVALID", why, self._place("flow"))
        elif flow is not None and not self._keeps_context(abilities[flow].handler["flow"]):
            why = f"{flow!r} is standalone (its plugin declares gives); a profile needs a flow that keeps a context"
            self.linker.refuse("BINDING_INVALID", why, self._place("flow"))
        for role in self.profile.roles:
            self.linker.check_name("role", role, roles, self._place("roles", role))
        if flow is not None and roles and not self.profile.models:
            why = f"no models for the roles {', '.join(sorted(roles))}; add models: {{standard: {{provider: …}}}}"
            self.linker.refuse("BINDING_INVALID", why, self._place())

    def _keeps_context(self, plugin: str) -> bool:
        linked = self.linker.get("flow", plugin)
        return linked is None or linked.spec.gives is None

    def _place(self, *keys: str) -> str:
        return profile_place(self.workspace.profile, *keys)


def _approvals(workspace: Workspace) -> dict[str, Any]:
    runs = {} if workspace.run_expires_s is None else {"run_expires_s": workspace.run_expires_s}
    return {"expires_s": workspace.expires_s, **runs}
