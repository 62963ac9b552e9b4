"""Leader epochs of what was copied: how a log that lost its end is known, also when it has grown again.

After an unclean election the same offsets may hold other records. Each batch carries the epoch of the leader that took
it, and a leader knows where each epoch of its log ends: asked with the epoch of the last batch copied, it says whether
it ever had that batch. A reign is one such epoch, with the first offset that we have read of it. It rides with the
progress, so an order begins with the question that its predecessor would have asked next.

What must stay true: a reign belongs to the batch right below an offset. Where that batch is not known (offsets that
were passed over, positions set by hand, formats without epochs) there is none, and nothing is asked: a guess would
stop a log that is whole. Asking is left to the fetcher, and to `resolve/states`.
"""

from __future__ import annotations

import collections
from typing import NamedTuple


class Reign(NamedTuple):
    """An epoch of a source partition, and the first offset that was read of it."""

    epoch: int = -1
    since: int = -1

    def __str__(self) -> str:
        return f"{self.epoch}@{self.since}" if self.epoch >= 0 else ""

    def cut(self, epoch: int, end: int) -> int:
        """Where our copy and a log part, if the last epoch of that log up to ours is `epoch` and ends at `end`.

        Should it hold records of an older epoch at offsets where we have read this one, then the two parted before.
        """
        return end if epoch == self.epoch else min(end, self.since)


UNKNOWN = Reign()


def parse_reign(text: str) -> Reign:
    """A reign as progress holds it; unknown if there is none, or if it is damaged."""
    epoch, _, since = text.partition("@")
    return Reign(int(epoch), int(since)) if epoch.isdecimal() and since.isdecimal() else UNKNOWN


class Reigns:
    """Those of one partition in one order, oldest first: of what is committed, and of what was fetched since."""

    def __init__(self, first: Reign) -> None:
        self._known = collections.deque([first])

    @property
    def newest(self) -> Reign:
        return self._known[-1]

    def note(self, epoch: int, offset: int) -> None:
        """The batch at this offset was written under this epoch; -1: that is not known."""
        if epoch != self._known[-1].epoch:
            self._known.append(Reign(epoch, offset))

    def below(self, offset: int) -> Reign:
        """Of the batch that ends at this offset."""
        return next((reign for reign in reversed(self._known) if reign.since < offset), UNKNOWN)

    def forget_below(self, offset: int) -> None:
        """Nobody goes back behind this offset any more."""
        while len(self._known) > 1 and self._known[1].since < offset:
            self._known.popleft()

    def forget_from(self, offset: int) -> None:
        """What was fetched from here on is given up."""
        while self._known and self._known[-1].since >= offset:
            self._known.pop()
        if not self._known:
            self._known.append(UNKNOWN)
