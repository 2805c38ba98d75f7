"""Tell every target what it has not been told, once or until stopped; each has a thread, so none waits for another."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event
from typing import Final

import attrs
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_attempt,
    stop_when_event_set,
    wait_exponential_jitter,
)

from deedbook.format.errors import DeedbookError
from deedbook.format.files import Folder
from deedbook.format.waits import get_result

from .delivery import DeliveryError, Target
from .outbox import Outbox

POLL_SECONDS: Final = 1.0
ATTEMPTS: Final = 4
"""How often `--once` tries to deliver a message."""
FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 300.0

_FAILURES: Final = (DeliveryError, DeedbookError, OSError)

Report = Callable[[str, str], None]


@attrs.define(eq=False)
class Runner:
    """Tells *targets* about the workspace *name* with this *state* folder; *report* gets a target and its failure."""

    state: Folder
    name: str
    targets: Mapping[str, Target]
    report: Report
    stopped: Event = attrs.field(factory=Event)
    first_wait: float = FIRST_WAIT

    def run(self, *, once: bool) -> dict[str, int]:
        """Return how many messages each target got, -1 for one that failed; without *once* go on until stopped."""
        with ExitStack() as held, ThreadPoolExecutor(len(self.targets)) as pool:
            boxes = {name: held.enter_context(Outbox.open(self.state, name, self.name)) for name in self.targets}
            told = {name: pool.submit(self._serve, name, box, once=once) for name, box in boxes.items()}
            try:
                return {name: get_result(each) for name, each in told.items()}
            finally:
                self.stopped.set()

    def _serve(self, name: str, box: Outbox, *, once: bool) -> int:
        sent = 0
        while True:
            try:
                while self._retry_policy(name, once=once)(self._tell, name, box):
                    sent += 1
            except _FAILURES as problem:
                self.report(name, f"{problem}; it is sent by the next run")
                return -1
            if once or self.stopped.wait(POLL_SECONDS):
                return sent

    def _tell(self, name: str, box: Outbox) -> bool:
        """Deliver what is new; return whether there was a message."""
        batch = box.collect()
        if batch is None:
            return False
        if batch.message is not None:
            self.targets[name].deliver(batch.message)
        box.move(batch.end)
        return batch.message is not None

    def _retry_policy(self, name: str, *, once: bool) -> Retrying:
        def tell(state: RetryCallState) -> None:
            problem = state.outcome.exception() if state.outcome else None
            self.report(name, f"{problem}; attempt {state.attempt_number}, it is tried again")

        return Retrying(
            retry=retry_if_exception_type(_FAILURES),
            stop=stop_after_attempt(ATTEMPTS) if once else stop_when_event_set(self.stopped),
            wait=wait_exponential_jitter(initial=self.first_wait, max=LONGEST_WAIT, jitter=self.first_wait),
            sleep=sleep_using_event(self.stopped),
            before_sleep=tell,
            reraise=True,
        )
