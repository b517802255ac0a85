"""How full the disk is, and what is refused because of it.

    fine ──free < low──► low: old messages go early ──free < needed──► full: sends are refused

Inodes are room, too: where hardly one is left, the disk is full. Both ways back are taken a little
later than the ways there, so that nothing flaps. `full` also holds from the moment a segment could
not be prepared until one could. Receives, acknowledgements and retries go on in what is kept
prepared; only sends are refused, before anything of them is stored. Knows no file system: it is
told what one has free.
"""

from typing import Final

from latermq_broker.config.config import StoreConfig
from latermq_broker.errors import StoreBusyError, StoreFullError
from latermq_broker.store.files import Space

LOW_BACK_PERCENT: Final = 120  # of the threshold: low no longer
FULL_BACK_PERCENT: Final = 125
FILES_NEEDED: Final = 16  # free inodes: for the files of a checkpoint, and a segment
FILES_BACK: Final = 20


class DiskPressure:
    """See the module. `look` once a second, `admit` before every send."""

    def __init__(self, config: StoreConfig) -> None:
        self.space = Space(0, 0)  # as last looked at
        self.low = False
        self.sends_refused = 0  # since the start
        self.full_count = 0  # how often the disk became full
        self._config = config
        self._short = False  # of free space
        self._starved = ""  # why a segment could not be prepared
        self._fileless = False  # hardly an inode is left

    def reconfigure(self, config: StoreConfig) -> None:
        """Go on with other thresholds, from the next look on."""
        self._config = config

    @property
    def full(self) -> bool:
        """Tell whether sends are refused."""
        return self._short or self._fileless or bool(self._starved)

    @property
    def starved(self) -> bool:
        """Tell whether a segment could not be prepared; somebody should try again."""
        return bool(self._starved)

    @property
    def needed_bytes(self) -> int:
        """Return what must be free for sends; of a full disk never what there is already."""
        threshold = self._threshold()
        if self._short and self.space.free >= threshold:
            return threshold * FULL_BACK_PERCENT // 100
        return threshold

    def _threshold(self) -> int:
        percent = self._config.disk_full_percent
        if not percent:
            return 0
        return max(self.space.total * percent // 100, 2 * self._config.segment_bytes)

    def look(self, space: Space) -> None:
        self.space = space
        needed = self._threshold()
        was_full = self.full
        self._short = space.free < (needed * FULL_BACK_PERCENT // 100 if self._short else needed)
        files = space.files if needed else None  # 0 percent: nothing is refused by a look
        needed_files = FILES_BACK if self._fileless else FILES_NEEDED
        self._fileless = files is not None and files < needed_files
        low = space.total * self._config.disk_low_percent // 100
        low = low * LOW_BACK_PERCENT // 100 if self.low else low
        self.low = self._short or space.free < low
        self._count(was_full)

    def no_room(self, error: StoreFullError) -> None:
        """Note that a segment could not be prepared, and why."""
        was_full = self.full
        self._starved = str(error)
        self._count(was_full)

    def room(self) -> None:
        """Note that a segment could be prepared."""
        self._starved = ""

    def ran_out(self, error: StoreFullError) -> StoreFullError:
        """Note that a send found no room for a segment; return the error it gets."""
        if isinstance(error, StoreBusyError):
            return error  # a file could not be read: a segment can be made
        self.no_room(error)
        return self.refusal()

    def admit(self) -> None:
        """Admit a send. Raises StoreFullError when the disk is full."""
        if self.full:
            raise self.refusal()

    def refusal(self) -> StoreFullError:
        """Make the error a refused send gets, and count it."""
        self.sends_refused += 1
        return StoreFullError(f"{self.why}; sends are refused until there is room again")

    @property
    def why(self) -> str:
        """Tell why sends are refused, for an operator who has to make room; "" if they are not."""
        if self._short:
            needed = self.needed_bytes or self._config.segment_bytes
            return f"disk full: need {needed:,} bytes free, there are {self.space.free:,}"
        if self._fileless:
            return (
                f"disk full: no inodes for files: need {FILES_NEEDED} free, "
                f"there are {self.space.files}"
            )
        return self._starved

    def _count(self, was_full: bool) -> None:
        if self.full and not was_full:
            self.full_count += 1
