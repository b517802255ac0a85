"""Owners, standbys and zombies over a log in memory, by one seed, and a ledger.

Nothing waits: the next event is simply the next. What Kafka and its client may do happens: an
append stands there late, twice, in another order or never, and what is reported of it is the truth
late, an error, or that it is there but not where. Nodes stop for seconds and go on as if nothing
had been; some die; owners hand the log over, and are mute while their disk hangs; standbys race;
for a while the log takes nothing from anybody.

The ledger, after each seed:
    what was promised is in the log that a new reader reads, at the position it was promised for;
    nobody serves after somebody with a newer epoch has begun to;
    the log's positions have no gap, and every node's copy is the same bytes.

`Believer` and `Idempotent` are the control: the same without the rule, on a log that keeps the
order of each writer and takes each batch once. It must fail, or the ledger would show nothing.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Final

from latermq_broker.replication.batch import Batch, decode_batch, encode_batch, fence_of
from latermq_broker.replication.entry import UNTOLD, Entry, Offset
from latermq_broker.replication.reader import Piece, Reader
from latermq_broker.replication.shipper import Shipment, ShipSizes
from latermq_broker.replication.tenure import TAKE_OVER_MS, Gap, Tenure
from latermq_broker.replication.validity import EMPTY, Standing, Verdict

SEGMENT_BYTES: Final = 320
SEGMENT_BEGIN: Final = b"SEGMENT!"
MESSAGE_BYTES: Final = 8
SIZES: Final = ShipSizes(ship_bytes=48, batch_bytes_max=80 + 64)
NODES: Final = 3
TURN_MS: Final = 150  # at most, between two of a node that is not stopped
HAND_OVER: Final = 0.03  # of an owner's turns


class Copy:
    """A shard's log as one reader has it; refuses, if it is `strict`, what does not follow."""

    def __init__(self, *, strict: bool = True) -> None:
        self.bytes = bytearray()
        self._strict = strict

    def write(self, piece: Piece) -> None:
        if not self._strict:
            end = piece.position + len(piece.data)
            self.bytes.extend(bytes(max(0, end - len(self.bytes))))
            self.bytes[piece.position : end] = piece.data
            return
        if piece.segment:
            assert piece.position % SEGMENT_BYTES == 0
            assert piece.data.startswith(SEGMENT_BEGIN)
            assert 0 <= piece.position - len(self.bytes) < SEGMENT_BYTES, "a gap"
            self.bytes.extend(bytes(piece.position - len(self.bytes)))
        assert piece.position == len(self.bytes), "a gap"
        self.bytes += piece.data

    def holds(self, message: int, position: int) -> bool:
        place = self.bytes[position : position + MESSAGE_BYTES]
        return place == message.to_bytes(MESSAGE_BYTES, "little")


class Believer(Reader):
    """Takes whatever comes for the first time, as if nobody but the owner could write."""

    def _verdict(self, entry: Entry) -> tuple[Verdict, Batch | None]:
        batch = decode_batch(entry.data, entry.offset)
        end = self.standing.end if self.standing is not None else 0
        segment_end = self.standing.segment_end if self.standing is not None else 0
        if batch.segment:
            segment_end = max(segment_end, batch.position + batch.segment)
        end = max(end, batch.position + len(batch.data))
        place = end, segment_end, end, segment_end
        self.standing = Standing(batch.epoch, batch.token, batch.sequence, *place)
        return Verdict.FENCE if batch.fence else Verdict.VALID, batch


class Idempotent(Tenure):
    """Believes what it is told: it was taken, so it is there, and nobody else writes."""

    def reported(self, shipment: Shipment, offset: Offset, now_ms: int) -> None:
        shipment.in_flight = False
        self.valid_end = max(self.valid_end, shipment.batch.position + len(shipment.batch.data))
        self._proven_ms = max(self._proven_ms, shipment.shipped_ms)
        self.shipper.settle(shipment.batch.sequence)


@dataclass
class Promise:
    """What a client waits for: `message` at `position`, and that the log up to `end` is valid."""

    message: int
    position: int
    end: int


@dataclass
class Story:
    """What happened under one seed."""

    kept: int = 0  # promises
    owners: int = 0  # that began to serve
    fenced: int = 0
    outrun: int = 0  # claims that lost a race
    handed_over: int = 0
    taken_back: int = 0  # of these, by the one that handed it over
    gaps: int = 0
    stale: int = 0  # batches of owners before, among those of the next
    pauses: int = 0
    refused: int = 0  # appends while the log took nothing
    hangs: int = 0  # of an owner's disk
    mute: int = 0  # owners that learned so that another one owns the log
    faults: list[str] = field(default_factory=list)


class Node:
    """One broker's part for the shard: follows, claims, owns, is stopped, wakes, begins anew."""

    def __init__(self, world: "World", rank: int) -> None:
        self.world = world
        self.rank = rank
        self.reader = world.new_reader(EMPTY, 0)
        self.copy = Copy(strict=world.rule)
        self.written = Copy(strict=world.rule)  # by its directory's file, as it owned the log
        self.tenure: Tenure | None = None
        self.claiming: Batch | None = None
        self.claimed_ms = 0
        self.heard_ms = 0
        self.others_ms = 0  # when it last heard of another owner
        self.mine = 0, 0  # epoch and token of its last fence
        self.epoch = 0
        self.yields = False  # leaves what it handed over to others, for a while
        self.end = self.segment_end = 0  # of what it wrote
        self.promises: list[Promise] = []
        self.stopped_until_ms = self.hangs_until_ms = 0
        self.served = False  # since it claimed
        self.life = 0  # what was begun in an earlier one comes to nobody

    def turn(self) -> None:
        world = self.world
        self.world.after(world.random.randint(10, TURN_MS), self.turn)
        if world.now_ms < self.stopped_until_ms:
            return
        if self.tenure is not None:
            self._own(self.tenure)
        elif self.claiming is None:
            self._follow(len(world.entries))
            silent_ms = world.now_ms - self.heard_ms
            forced = world.random.random() < 0.002 or self._free()
            if forced or silent_ms >= TAKE_OVER_MS + world.random.choice((0, 0, 700)) * self.rank:
                self._claim()

    # --- a standby -----------------------------------------------------------------------------

    def _follow(self, end: int) -> None:
        for offset in range(self.reader.offset, end):
            verdict, pieces = self.reader.read(Entry(offset, self.world.entries[offset]))
            if verdict in (Verdict.FENCE, Verdict.VALID):
                self.heard_ms = self.world.now_ms
                standing = self.reader.standing
                assert standing is not None
                if standing.ownerless:
                    self.others_ms = 0
                elif (standing.epoch, standing.token) != self.mine:
                    self.others_ms = self.heard_ms
            for piece in pieces:
                self.copy.write(piece)

    def _free(self) -> bool:
        """Tell whether it was handed over, or this one's fence stands last: it is taken at once."""
        standing = self.reader.standing
        assert standing is not None
        if standing == EMPTY or (self.yields and standing.epoch == self.epoch + 1):
            return False
        return standing.ownerless or (standing.epoch, standing.token) == self.mine

    def _claim(self) -> None:
        world = self.world
        assert self.reader.standing is not None
        epoch = self.reader.standing.epoch + 1
        self.mine = epoch, world.random.getrandbits(64)
        self.claiming = fence_of(1, 1, *self.mine)
        self.claimed_ms = world.now_ms
        world.append(encode_batch(self.claiming), self._when_up(self._claimed))

    def _claimed(self, offset: int | None) -> None:
        """Read up to the fence: whose is the log?"""
        fence, self.claiming = self.claiming, None
        assert fence is not None
        if offset is None or offset == UNTOLD:
            return  # claims again, if nobody else does
        self._follow(offset)
        before = self.reader.standing
        assert before is not None
        self._follow(offset + 1)
        standing = self.reader.standing
        assert standing is not None
        if (standing.epoch, standing.token) != (fence.epoch, fence.token):
            self.world.story.outrun += 1
            return
        self.world.story.taken_back += before.ownerless and before.epoch == self.epoch + 1
        self.epoch = fence.epoch
        self.end, self.segment_end = standing.whole_end, standing.whole_segment_end
        known = self.world.new_reader(standing, offset + 1)
        self.written.bytes[:] = self.copy.bytes
        self.tenure = self.world.owner(fence, known, self.claimed_ms, self.others_ms, SIZES)
        self.promises, self.served = [], False
        if self.world.rule and self.world.random.random() < 0.3:  # told to end while it claimed
            self._hand_over(self.tenure)

    # --- an owner ------------------------------------------------------------------------------

    def _own(self, tenure: Tenure) -> None:
        world = self.world
        if tenure.look(world.now_ms):
            self.promises.clear()  # the connections they are for
        tenure.mute = world.now_ms < self.hangs_until_ms
        self._answer(tenure)
        if tenure.mute and (rest := tenure.rest()):
            self._read_soon(tenure, rest)
        if world.rule and world.random.random() < HAND_OVER:
            self._hand_over(tenure)
        if world.random.random() < 0.6:
            self._write(tenure)
        self._exchange(tenure)

    def _hand_over(self, tenure: Tenure) -> None:
        tenure.hand_over()
        self.yields = self.world.random.random() < 0.5

    def _exchange(self, tenure: Tenure) -> None:
        """Hand the log what is to go, and read what is not known."""
        for shipment in tenure.step(self.world.now_ms):
            done = self._when_up(partial(self._reported, tenure, shipment))
            self.world.append(shipment.entry, done)
        gap = tenure.gap()
        if gap is not None:
            self._read_soon(tenure, gap)

    def _read_soon(self, tenure: Tenure, gap: Gap) -> None:
        delay_ms = self.world.random.choice((5, 30, 400))
        self.world.after(delay_ms, self._when_up(partial(self._read, tenure, gap)))

    def _reported(self, tenure: Tenure, shipment: Shipment, offset: int | None) -> None:
        if tenure.look(self.world.now_ms):
            self.promises.clear()
        if offset is None:
            tenure.failed(shipment, self.world.now_ms)
        else:
            tenure.reported(shipment, offset, self.world.now_ms)
        self._answer(tenure)
        if self.world.random.random() < 0.5:
            self._exchange(tenure)

    def _read(self, tenure: Tenure, gap: Gap) -> None:
        if tenure.look(self.world.now_ms):
            self.promises.clear()
        if self.world.random.random() < 0.1:
            tenure.unread(gap)
            return
        end = len(self.world.entries) if gap.end is None else gap.end
        entries = [Entry(at, self.world.entries[at]) for at in range(gap.begin, end)]
        judged = self.world.random.randrange(len(entries) + 1)
        for entry in entries[:judged]:  # the others come later, if at all
            tenure.take(entry)
        self._answer(tenure)
        if self.tenure is tenure:
            rest = partial(self._read_on, tenure, gap, entries[judged:], end)
            self.world.after(self.world.random.choice((0, 5, 400)), self._when_up(rest))

    def _read_on(self, tenure: Tenure, gap: Gap, entries: list[Entry], end: int) -> None:
        if tenure.look(self.world.now_ms):
            self.promises.clear()
        if self.world.random.random() < 0.1:
            tenure.unread(gap)
            return
        for entry in entries:
            tenure.take(entry)
        tenure.read(gap, end, self.world.now_ms)
        self._answer(tenure)

    def _answer(self, tenure: Tenure) -> None:
        world = self.world
        if tenure.fenced:
            world.story.fenced += not tenure.handed_over
            world.story.mute += tenure.mute and not tenure.handed_over
            world.story.handed_over += tenure.handed_over
            self.begin_anew()
            return
        if not tenure.serving(world.now_ms):
            return
        world.serves(self)
        self.served = True
        while self.promises and self.promises[0].end <= tenure.valid_end:
            world.promised.append(self.promises.pop(0))

    def _write(self, tenure: Tenure) -> None:
        """Append a group: some messages, over the end of a segment if need be."""
        pieces: list[Piece] = []
        data, position, segment = b"", self.end, 0
        positions: list[tuple[int, int]] = []
        for _ in range(self.world.random.choice((1, 1, 2, 3, 20))):
            if position + len(data) + MESSAGE_BYTES > self.segment_end:
                if data:
                    pieces.append(Piece(position, data, segment))
                position, data, segment = self.segment_end, SEGMENT_BEGIN, SEGMENT_BYTES
                self.segment_end += SEGMENT_BYTES
            self.world.messages += 1
            positions.append((self.world.messages, position + len(data)))
            data += self.world.messages.to_bytes(MESSAGE_BYTES, "little")
        pieces.append(Piece(position, data, segment))
        self.end = position + len(data)
        for piece in pieces:
            tenure.add(piece, last=piece is pieces[-1])
            self.written.write(piece)
        self.promises += [Promise(message, at, self.end) for message, at in positions]

    # --- what befalls it -----------------------------------------------------------------------

    def begin_anew(self) -> None:
        """Die and start again, as a standby: with what was noted when it claimed, or just now."""
        if self.tenure is not None:
            self.world.story.gaps += self.tenure.gaps
            reader = self.tenure.reader
            standing = reader.standing
            if self.served and self.world.noted() and reader.between_groups:
                assert standing is not None
                self.reader = reader
                self.copy.bytes[:] = self.written.bytes[: standing.whole_end]
        known = self.reader.standing
        assert known is not None
        mine = (known.epoch, known.token) == self.mine
        # All that there is of others may be in the note, or be forgotten by who just followed them.
        alone = known.ownerless or (mine and (known.sequence > 0 or known.epoch == 1))
        self.others_ms = 0 if alone else self.world.now_ms
        self.tenure = self.claiming = None
        self.life += 1
        self.hangs_until_ms = 0
        self.heard_ms = self.world.now_ms

    def _when_up(self, done: Callable[..., None]) -> Callable[..., None]:
        """Have `done` called in this life only, and when the node is not stopped."""
        life = self.life

        def call(*given: int | None) -> None:
            if self.life != life:
                return
            wait_ms = self.stopped_until_ms - self.world.now_ms
            if wait_ms > 0:
                self.world.after(wait_ms, partial(call, *given))
            else:
                done(*given)

        return call


class World:
    """The log, the time and what befalls all of them, by `seed`."""

    def __init__(self, seed: int, *, rule: bool = True, owner: type[Tenure] = Tenure) -> None:
        self.random = Random(seed)
        self._notes = Random(seed)
        self.rule = rule
        self.owner = owner
        self.now_ms = 10_000
        self.entries: list[bytes] = []
        self.promised: list[Promise] = []
        self.messages = 0
        self.story = Story()
        self.trouble = self.random.choice((0.0, 0.05, 0.2, 0.5)) if rule else 0.0
        self._away_until_ms = 0
        self._served_epoch = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._ties = 0
        self._nodes = [Node(self, rank) for rank in range(NODES)]

    def new_reader(self, standing: Standing | None, offset: Offset) -> Reader:
        return (Reader if self.rule else Believer)(1, 1, standing, offset)

    def noted(self) -> bool:
        """Tell whether a node that dies has noted what it knows; a control believes too much."""
        return self.owner is Tenure and self._notes.random() < 0.5

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._ties += 1
        heappush(self._events, (self.now_ms + delay_ms, self._ties, call))

    def run(self, seconds: int = 10) -> Story:
        end_ms = self.now_ms + seconds * 1_000
        for node in self._nodes:
            self.after(0, node.turn)
        self.after(500, self._befall)
        while self._events and self._events[0][0] < end_ms:
            self.now_ms, _, call = heappop(self._events)
            call()
        self._audit()
        return self.story

    def append(self, entry: bytes, done: Callable[[int | None], None]) -> None:
        """Do with an append what Kafka and networks do."""
        random = self.random
        away_ms = self._away_until_ms - self.now_ms
        if away_ms > 0 and self.rule:  # it takes nothing: what waits is given up, or there then
            self.story.refused += 1
            if random.random() < 0.5:
                self.after(random.choice((5, away_ms)), partial(done, None))
            else:
                self.after(away_ms + random.randint(1, 50), partial(self._land, entry, done, 5))
            return
        if random.random() >= self.trouble:
            self.after(
                random.randint(1, 15), partial(self._land, entry, done, random.randint(1, 9))
            )
            return
        late_ms = random.choice((30, 300, 1_500, 4_000))
        quick_ms = random.choice((5, 100))
        match random.randrange(7):
            case 0:  # there, and told late
                self.after(quick_ms, partial(self._land, entry, done, late_ms))
            case 1:  # there late, and told so
                self.after(late_ms, partial(self._land, entry, done, 5))
            case 2:  # there, and nobody knows
                self.after(quick_ms, partial(self._land, entry, None, 0))
                self.after(late_ms, partial(done, None))
            case 3:  # there long after everybody gave it up
                self.after(quick_ms, partial(done, None))
                self.after(late_ms, partial(self._land, entry, None, 0))
            case 4:  # never
                self.after(late_ms, partial(done, None))
            case 5:  # there twice, one of them told
                told = [done, None]
                random.shuffle(told)
                self.after(quick_ms, partial(self._land, entry, told[0], 5))
                self.after(late_ms, partial(self._land, entry, told[1], 5))
            case _:  # there, but where?
                self.after(quick_ms, partial(self._land, entry, None, 0))
                self.after(quick_ms + 5, partial(done, UNTOLD))

    def _land(self, entry: bytes, done: Callable[[int | None], None] | None, told_ms: int) -> None:
        self.entries.append(entry)
        if done is not None:
            self.after(told_ms, partial(done, len(self.entries) - 1))

    def _befall(self) -> None:
        random = self.random
        node = random.choice(self._nodes)
        what = random.random()
        if what < 0.5:
            self.story.pauses += 1
            node.stopped_until_ms = self.now_ms + random.choice((200, 900, 1_500, 2_500, 5_000))
        elif what < 0.6:
            node.begin_anew()
        elif what < 0.65:
            self._away_until_ms = self.now_ms + random.choice((500, 2_000, 4_000))
        elif what < 0.8 and self.rule and node.tenure is not None:
            self.story.hangs += 1
            node.hangs_until_ms = self.now_ms + random.choice((500, 2_000, 5_000))
        self.after(random.randint(200, 2_500), self._befall)

    def serves(self, node: Node) -> None:
        """Note that a node answers its clients at this moment."""
        if node.epoch > self._served_epoch:
            self._served_epoch = node.epoch
            self.story.owners += 1
        elif node.epoch < self._served_epoch:
            fault = f"epoch {node.epoch} serves at {self.now_ms}, after {self._served_epoch} did"
            self.story.faults.append(fault)

    def _audit(self) -> None:
        story, whole = self.story, Copy(strict=self.rule)
        reader = self.new_reader(None, 0)
        for offset, data in enumerate(self.entries):
            verdict, pieces = reader.read(Entry(offset, data))
            story.stale += verdict is Verdict.STALE
            for piece in pieces:
                whole.write(piece)
        for promise in self.promised:
            story.kept += 1
            if not whole.holds(promise.message, promise.position):
                story.faults.append(f"message {promise.message} was promised and is lost")
        for node in self._nodes:
            story.gaps += node.tenure.gaps if node.tenure is not None else 0
            if self.rule and whole.bytes[: len(node.copy.bytes)] != node.copy.bytes:
                story.faults.append(f"node {node.rank} has another copy")


def main() -> None:
    """Tell what happened under one seed."""
    story = World(int(sys.argv[1])).run()
    print(story)
    sys.exit(1 if story.faults else 0)


if __name__ == "__main__":
    main()
