"""Putting together what another keeper of the same home says. Pure."""

from nsqd.replication.fellows import FellowHas, FellowStanding
from nsqd.replication.frames import AnyFrame, CopiedTopic, FellowCopy, Finished, Had, Told
from nsqd.replication.holdings import Holdings, add_finished


class FellowHears:
    """Puts together what another keeper says."""

    def __init__(self) -> None:
        self.copies: list[FellowHas] = []
        self.done = False
        self._names: dict[int, str] = {}

    def take(self, frame: AnyFrame) -> bool:
        """Take one frame; False when it cannot be said now."""
        if isinstance(frame, FellowCopy):
            if frame.standing not in list(FellowStanding):
                return False
            self.copies.append(FellowHas(frame.appointment, FellowStanding(frame.standing), Holdings()))
            self._names = {}
        elif isinstance(frame, Told):
            self.done = True
        elif not self.copies:
            return False
        else:
            return self._of_copy(frame, self.copies[-1].holdings)
        return True

    def _of_copy(self, frame: AnyFrame, holdings: Holdings) -> bool:
        if isinstance(frame, CopiedTopic):
            self._names[frame.folder] = frame.name
            holdings.held.setdefault(frame.name, [])
        elif isinstance(frame, Had) and frame.folder in self._names:
            name = self._names[frame.folder]
            holdings.held[name] = [*holdings.held[name], *frame.ranges]
        elif isinstance(frame, Finished) and frame.folder in self._names:
            add_finished(holdings, self._names[frame.folder], frame)
        else:
            return False
        return True
