"""Writes gate files and renderings, and reports edits of the renderings; outside of every branch."""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from deedbook import Failed, Run
from deedbook_flow_swe.events import RENDERING_EDITED
from deedbook_flow_swe.learning.metrics import build_line, render_line

from .files import digest_text
from .material import TaskMaterial
from .renderings import SHARED, Parts, describe_state, meta_path, read_part, render_meta, render_shared
from .state import PipelineState

_ATTEMPTS: Final = 50
"""How often the shared files are read again: another task may have written its part in between."""
_CONFLICT: Final = "WRITE_CONFLICT"


@attrs.define
class Publisher:
    """Publishes where the task of *material* stands. *rollbacks*, *waits* and *metrics* are its lines so far."""

    run: Run
    material: TaskMaterial
    rollbacks: list[str] = attrs.field(factory=list)
    waits: list[str] = attrs.field(factory=list)
    metrics: list[str] = attrs.field(factory=list)
    _parts: dict[str, str] = attrs.field(factory=dict)
    _meta: str = ""

    def measure(self, phase: str, iteration: int) -> None:
        """Add a line with the metrics of the task after a run of *phase*."""
        record = self.material.record
        if record is not None:
            line = build_line(record, phase, iteration, self.material.time)
            self.metrics.append(render_line(line).rstrip("\n"))

    def publish(self, state: PipelineState, files: Mapping[str, str]) -> dict[str, str]:
        """Write *files*, the task's page and the shared files; return the digests of *files* by path."""
        material = self.material
        material.task = {**material.task, "status": state.state}
        for tries in range(_ATTEMPTS):
            found = self._read()
            try:
                return self._write(state, files, found, tries)
            except Failed as failure:
                if failure.code != _CONFLICT:
                    raise
        raise Failed(_CONFLICT, f"other tasks wrote the shared files {_ATTEMPTS} times in a row", retryable=True)

    def _read(self) -> dict[str, tuple[str, str]]:
        """Return the renderings that are there: path in the data folder, text and digest."""
        material = self.material
        names = {material.path(name): name for name in (*SHARED, meta_path(material.id))}
        result: Any = self.run.call(material.ability("read"), {"paths": [], "optional": list(names)})
        return {names[each["path"]]: (each["text"], each["digest"]) for each in result["files"]}

    def _write(  # an attempt that lost against another task may have written the first of its files
        self, state: PipelineState, files: Mapping[str, str], found: Mapping[str, tuple[str, str]], tries: int
    ) -> dict[str, str]:
        material = self.material
        self._report_edits(found)
        parts = Parts(
            state=describe_state(material.id, state),
            rollbacks=tuple(self.rollbacks),
            waits=tuple(self.waits),
            metrics=tuple(self.metrics),
        )
        meta = meta_path(material.id)
        rendered = {
            meta: render_meta(material.task, state.state),
            **render_shared(material.definition, material.id, parts, {name: text for name, (text, _) in found.items()}),
        }
        texts = {**files, **{material.path(name): text for name, text in rendered.items()}}
        expected: dict[str, str | None] = {material.path(name): found.get(name, ("", ""))[1] for name in rendered}
        if not self._meta:  # a task that is there already is not begun again
            mine = tries > 0 and found.get(meta, ("", ""))[1] == digest_text(rendered[meta])
            expected[material.path(meta)] = digest_text(rendered[meta]) if mine else ""
        digests = material.write(self.run, texts, expected)
        self._parts = {name: read_part(name, material.id, rendered[name]) for name in SHARED}
        self._meta = digests[material.path(meta)]
        material.approved[material.path(meta)] = self._meta
        return {path: digests[path] for path in files}

    def _report_edits(self, found: Mapping[str, tuple[str, str]]) -> None:
        """Record each rendering whose part of this task is not as it was written."""
        material = self.material
        if not self._meta:
            return
        meta = meta_path(material.id)
        own = {name: read_part(name, material.id, found.get(name, ("", ""))[0]) for name in SHARED}
        edited = {name: digest_text(own[name]) for name in SHARED if own[name] != self._parts[name]}
        wanted = {name: digest_text(self._parts[name]) for name in edited}
        if found.get(meta, ("", ""))[1] != self._meta:
            edited[meta], wanted[meta] = found.get(meta, ("", ""))[1], self._meta
        for name, digest in sorted(edited.items()):
            payload = {"path": material.path(name), "found": digest, "expected": wanted[name]}
            material.note(self.run, RENDERING_EDITED, payload)
