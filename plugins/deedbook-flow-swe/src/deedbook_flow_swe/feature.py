"""The feature `swe`: compiles the files of pipelines into the charter, and keeps what tasks teach.

When a session ends, the rewards of its tasks go into the workspace ledger. From there, gates get the evidence about
patterns and the revisions of routing as facts. When a person has answered a task, its page says so.
"""

from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

from deedbook.contract.features import FeatureSpec, featureimpl

from .learning.workspace_events import (
    EVENTS,
    EVIDENCE_FACT,
    FACTS,
    ROUTING_FACT,
    TASK_REWARDED,
    LearnedIndex,
    build_entry,
    find_rewards,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from deedbook.contract import Object
    from deedbook.contract.features import Check
    from deedbook.workspace.declarations import Workspace
    from deedbook.workspace.documents import Document
    from deedbook.workspace.trees import SourceReader, SourceTree

    from .registry.registry import PipelineRegistry


class SweFeature:
    """Turns the files of pipelines into abilities, and keeps rewards and revisions of routing."""

    spec: ClassVar[FeatureSpec] = FeatureSpec(records=EVENTS, facts=FACTS)

    def __init__(self) -> None:
        self._learned: LearnedIndex | None = None
        self._loading = Lock()

    @featureimpl
    def read_section(
        self, reader: "SourceReader", tree: "SourceTree", document: "Document | None", packs: "Sequence[SourceTree]"
    ) -> "PipelineRegistry":
        """Return the pipelines of ``.system/swe`` and of *packs*; *document* names further folders of agents."""
        from .registry.registry import PipelineRegistry

        return PipelineRegistry.read(reader, tree, document, packs)

    @featureimpl
    def session_facts(self, kernel: Any) -> "Mapping[str, Callable[[Any], Object]]":
        """Return the readers of the facts; the workspace ledger is read when the first fact is."""
        return {
            ROUTING_FACT: lambda _caller: self._get_learned(kernel).read_routing(),
            EVIDENCE_FACT: lambda _caller: self._get_learned(kernel).read_evidence(),
        }

    @featureimpl
    def session_ended(self, kernel: Any, session: Any) -> None:
        """Keep the rewards of the session's tasks."""
        from .learning.ledger_files import find_session, read_session

        payloads = list(find_rewards(read_session(find_session(kernel.state.path, session.id))))
        if payloads:
            ledger = kernel.ledger
            ledger.append([build_entry(ledger, TASK_REWARDED, payload) for payload in payloads], durable=True)

    @featureimpl
    def ledger_extended(self, workspace: "Workspace", name: str) -> None:
        """Say on the pages of tasks that wait for a person which of them have an answer."""
        from deedbook.maintenance.opening import OWN

        registry: Any = workspace.sections.get("swe")
        if name == OWN and registry is not None and registry.definitions:
            from .running.review_page import update_review_pages

            update_review_pages(workspace.root, workspace.state, registry.definitions.values())

    @featureimpl
    def examine(self, workspace: "Workspace") -> "Iterator[Check]":
        """Return the checks of rewards and revisions: each is computed again from the events of its tasks."""
        from .learning.examination import check_learning

        return check_learning(workspace.state)

    def _get_learned(self, kernel: Any) -> LearnedIndex:
        with self._loading:
            if self._learned is None:
                self._learned = LearnedIndex.load(kernel.ledger)
            return self._learned
