"""cpex: two hook points and one plugin that allows; nothing is validated, nothing is recorded."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cpex.framework import (
    GlobalContext,
    Plugin,
    PluginManager,
    ToolPostInvokePayload,
    ToolPostInvokeResult,
    ToolPreInvokePayload,
    ToolPreInvokeResult,
)

from benchmarks.peers.work import BATCH, TEXT, Batch, Peer

_CONFIG = """
plugins:
  - name: allow
    kind: {kind}
    hooks: [tool_pre_invoke, tool_post_invoke]
    mode: sequential
"""


class Allow(Plugin):
    """Goes on, whatever it is asked."""

    async def tool_pre_invoke(self, payload: ToolPreInvokePayload, context: Any) -> ToolPreInvokeResult:
        """Allow the call."""
        return ToolPreInvokeResult(continue_processing=True)

    async def tool_post_invoke(self, payload: ToolPostInvokePayload, context: Any) -> ToolPostInvokeResult:
        """Leave the result as it is."""
        return ToolPostInvokeResult(continue_processing=True)


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[Batch]:
    config = folder / "cpex.yaml"
    config.write_text(_CONFIG.format(kind=f"{__name__}.{Allow.__name__}"))
    manager = PluginManager(str(config))
    await manager.initialize()

    async def batch() -> None:
        for number in range(BATCH):
            context = GlobalContext(request_id=str(number))
            before = ToolPreInvokePayload(name="echo", args={"text": TEXT})
            result, local = await manager.invoke_hook("tool_pre_invoke", before, context)
            assert result.continue_processing
            after = ToolPostInvokePayload(name="echo", result={"text": TEXT})
            await manager.invoke_hook("tool_post_invoke", after, context, local)

    yield batch
    await manager.shutdown()


PEERS = (Peer("cpex", 3, 6.3, _opened, awaited=True),)
