"""The changes between two charters, in words."""

import attrs


@attrs.frozen
class Difference:
    """Changes as texts: *looser* allows more (or may), *tighter* allows less, *other* is neither."""

    looser: tuple[str, ...] = ()
    tighter: tuple[str, ...] = ()
    other: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.looser or self.tighter or self.other)
