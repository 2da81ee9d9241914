"""Follows things from frame to frame, and carries late answers forward onto what is still in view."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from edge_agent.track.association import MOVED, SAME_MOMENT, is_covered, overlap_of, pairs_of
from edge_agent.track.followed import Followed, clipped
from edge_agent.track.tracker_settings import TrackerSettings as TrackerSettings
from edge_agent.track.tracking import Box as Box
from edge_agent.track.tracking import Track as Track
from edge_agent.track.tracking import Tracking as Tracking
from fovea.core.detections import Detections
from fovea.core.errors import Malformed
from fovea.core.frame import ImageSize
from fovea.core.routing import Tier

_SAME_THING = 0.5
"""Plain IoU from which two boxes of one frame are taken for one thing."""
_HIDDEN_SHARE = 0.5
"""What is covered by a seen track to this share is hidden, not gone."""
_UNCONFIRMED = 0.8
"""What an overlap counts for a track seen only once."""
_TOLD_SHARE = 0.5
"""How far an older look by sharper eyes moves a box that the camera has seen since; 1 moves it all the way."""


class Tracker:
    """For one camera, and one thread at a time.

    After ByteTrack (Zhang et al. 2022): every answered box may continue a track, only a strong one starts one.
    """

    def __init__(self, settings: TrackerSettings = TrackerSettings()) -> None:
        self.settings = settings
        self._alive: list[Followed] = []
        self._gone: deque[tuple[float, Followed]] = deque()
        self._last_id = 0
        self._size: ImageSize | None = None
        self._at_s = 0.0
        self._ahead_s = 0.0
        """Own time minus the caller's: grows when the caller's clock steps back, so that own time never does."""

    def update(self, detections: Detections, at_mono_s: float) -> Tracking:
        """Takes in the answer to a new frame that was captured at `at_mono_s`.

        A clock that steps back counts as no time passed. A pause longer than `lost_after_s` or a new image size ends
        every track. Raises Malformed for a time that is not finite.
        """
        ended = self._advance(at_mono_s, detections.image_size)
        boxes: list[Box] = list(map(tuple, detections.boxes_xyxy.tolist()))
        scores, class_ids = detections.scores.tolist(), detections.class_ids.tolist()
        claimed = self._match(boxes, class_ids)
        for row, track in claimed.items():
            self._see(track, boxes[row], scores[row], class_ids[row])
        unclaimed = [row for row in range(len(boxes)) if row not in claimed]
        for row in self._starting(boxes, unclaimed, scores):
            track = self._start(boxes[row], self._at_s, class_ids[row], scores[row], Tier.AGENT)
            self._see_own(track, scores[row])
        ended += self._give_up()
        return self._tracking(ended)

    def still(self, at_mono_s: float) -> Tracking:
        """Takes in that a frame of the same size, captured at `at_mono_s`, shows what the one before it showed.

        What was in view then, seen by the camera or told by a late answer, still is, at the same place; what was
        missing already stays missing. No pause is too long for that. Raises Malformed as `update` does, and when
        there was no frame yet.
        """
        if self._size is None:
            raise Malformed("tracker: expected a frame before one that is still")
        since_s = self._at_s
        self._pass_time(at_mono_s)
        half_life_s = self.settings.told_half_life_s
        for track in self._alive:
            score, tier = track.score_at(since_s, half_life_s)
            is_told = tier is not Tier.AGENT and since_s - track.told_s <= half_life_s
            if track.is_confirmed and (track.seen_s >= since_s or is_told):
                track.stand(since_s, self._at_s, min(score, 1.0), self.settings.history_s)
        return self._tracking(self._give_up())

    def carry(self, late: Detections, captured_mono_s: float, tier: Tier) -> Tracking:
        """Takes in what `tier` says about an older frame, captured at `captured_mono_s` on the same clock.

        A box that belongs to a track goes where that track is now, and lends it class and score. One that belongs
        to a track which has ended since is dropped: what left is not called back. One that the camera missed starts
        a track where it was seen; if that is older than `adopt_within_s`, it stays unconfirmed until anybody sees it
        again, since nobody knows how it moved. An answer about a frame that the tracker does not know (too old,
        another size, from before a clock step) changes nothing. Raises Malformed when there was no frame yet.
        """
        captured_s = captured_mono_s + self._ahead_s
        if (
            late.image_size != self._size
            or not self._at_s - self.settings.history_s <= captured_s <= self._at_s + 1e-6
        ):
            return self._tracking([])
        known = self._alive + [track for ended_s, track in self._gone if ended_s >= captured_s]
        alive_count = len(self._alive)
        boxes: list[Box] = list(map(tuple, late.boxes_xyxy.tolist()))
        scores, class_ids = late.scores.tolist(), late.class_ids.tolist()
        places = [track.box_at(captured_s) for track in known]
        pairs = pairs_of(_classes(known), places, boxes, class_ids, SAME_MOMENT)
        for row, place in pairs.items():
            if place < alive_count:
                self._tell(known[place], boxes[row], captured_s)
                self._believe(known[place], class_ids[row], scores[row], captured_s, tier)
        self._adopt(
            [
                (boxes[row], class_ids[row], scores[row])
                for row in range(len(boxes))
                if row not in pairs and scores[row] >= self.settings.adopt_score
            ],
            captured_s,
            tier,
        )
        return self._tracking([])

    def forget(self) -> Tracking | None:
        """Ends every track, as after a change of the view; ids go on. None before the first frame."""
        ended = self._end(self._alive)
        return None if self._size is None else self._tracking(ended)

    def _advance(self, at_mono_s: float, size: ImageSize) -> list[Followed]:
        """Moves own time on to the new frame; the tracks that this ends."""
        before_s, before = self._at_s, self._size
        self._pass_time(at_mono_s)
        self._size = size
        is_pause = self._at_s - before_s > self.settings.lost_after_s
        return self._end(self._alive) if before is not None and (is_pause or size != before) else []

    def _pass_time(self, at_mono_s: float) -> None:
        if not math.isfinite(at_mono_s):
            raise Malformed(f"tracker at_mono_s: expected a finite number, got {at_mono_s}")
        at_s = at_mono_s + self._ahead_s
        if self._size is not None and at_s < self._at_s:
            self._ahead_s = self._at_s - at_mono_s
            at_s = self._at_s
        self._at_s = at_s
        oldest_s = at_s - self.settings.history_s
        while self._gone and self._gone[0][0] < oldest_s:
            self._gone.popleft()

    def _match(self, boxes: Sequence[Box], class_ids: Sequence[int]) -> dict[int, Followed]:
        """Which row of the answer continues which track."""
        expected = [track.box_at(self._at_s) for track in self._alive]
        pairs = pairs_of(_classes(self._alive), expected, boxes, class_ids, MOVED)
        return {row: self._alive[place] for row, place in pairs.items()}

    def _see(self, track: Followed, box: Box, score: float, class_id: int) -> None:
        track.look(box, self._at_s, self.settings.history_s)
        track.vote(class_id, score, Tier.AGENT)
        self._see_own(track, score)

    def _see_own(self, track: Followed, score: float) -> None:
        track.own_score, track.own_seen_s = score, self._at_s
        track.own_hits += 1
        if track.own_hits >= self.settings.confirm_hits or track.told_score > 0:
            track.is_confirmed = True

    def _starting(self, boxes: Sequence[Box], unclaimed: list[int], scores: list[float]) -> list[int]:
        """The rows that start a track: strong, and not a second box around a thing that is followed already."""
        strong = [row for row in unclaimed if scores[row] >= self.settings.start_score]
        room = self.settings.most_tracks - len(self._alive)
        if not strong or room <= 0:
            return []
        seen = [track.box for track in self._alive if track.seen_s >= self._at_s]
        strong = [row for row in strong if all(overlap_of(boxes[row], box) < _SAME_THING for box in seen)]
        return strong[:room]

    def _start(self, box: Box, at_s: float, class_id: int, score: float, tier: Tier) -> Followed:
        track = Followed(self._new_id(), box, at_s)
        track.vote(class_id, score, tier)
        self._alive.append(track)
        return track

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _give_up(self) -> list[Followed]:
        """Ends what was unseen for too long or has left; the confirmed ones among them."""
        assert self._size is not None
        over = []
        for track in self._alive:
            unseen_s = self._at_s - track.seen_s
            if unseen_s <= 0:
                continue
            guess = track.box_at(self._at_s)
            if (
                unseen_s > self.settings.lost_after_s
                or not (track.is_confirmed or track.told_score > 0)
                or track.has_left(guess, self._size)
                or (unseen_s > self.settings.leave_after_s and track.is_leaving(guess, self._size))
            ):
                over.append(track)
        return self._end(over)

    def _end(self, over: Sequence[Followed]) -> list[Followed]:
        ids = {track.id for track in over}
        ended = [track for track in over if track.is_confirmed]
        self._gone.extend((self._at_s, track) for track in ended)
        self._alive = [track for track in self._alive if track.id not in ids]
        return ended

    def _tell(self, track: Followed, box: Box, captured_s: float) -> None:
        """Takes over where a late answer saw a track: as a look, or as a correction if the camera looked later."""
        if captured_s >= track.at_s:
            track.look(box, captured_s, self.settings.history_s)
            return
        then = track.box_at(captured_s)
        off = (box[0] - then[0], box[1] - then[1], box[2] - then[2], box[3] - then[3])
        track.shift(off, _TOLD_SHARE)
        track.hits += 1

    def _believe(self, track: Followed, class_id: int, score: float, captured_s: float, tier: Tier) -> None:
        """Takes over what a higher tier says of a track's class; if it is sure enough, others may be told, too."""
        track.vote(class_id, score, tier)
        if captured_s >= track.told_s or score > track.told_score:
            track.told_score, track.told_s, track.told_tier = score, captured_s, tier
        track.seen_s = max(track.seen_s, captured_s)
        track.is_confirmed = track.is_confirmed or score >= self.settings.adopt_score

    def _adopt(self, late: list[tuple[Box, int, float]], captured_s: float, tier: Tier) -> None:
        """Starts tracks for boxes that the camera missed, where they were seen."""
        assert self._size is not None
        late = late[: max(self.settings.most_tracks - len(self._alive), 0)]
        if not late:
            return
        present = [track.box_at(self._at_s) for track in self._alive]
        for box, class_id, score in late:
            overlaps = [overlap_of(box, other) for other in present]
            most = max(overlaps, default=0.0)
            if most >= _SAME_THING:
                self._believe(self._alive[overlaps.index(most)], class_id, score, captured_s, tier)
                continue
            track = self._start(box, captured_s, class_id, score, tier)
            self._believe(track, class_id, score, captured_s, tier)
            track.is_confirmed = self._at_s - captured_s <= self.settings.adopt_within_s
            present.append(box)

    def _tracking(self, ended: Sequence[Followed]) -> Tracking:
        """What to tell now."""
        if self._size is None:
            raise Malformed("tracker: expected a frame before anything is carried")
        now_s, coast_s, vanish_s = self._at_s, self.settings.coast_s, self.settings.vanish_s
        shown, vanished = [], []
        seen = [track.box for track in self._alive if track.seen_s >= now_s]
        for track in self._alive:
            unseen_s = now_s - track.seen_s
            is_shown = unseen_s <= coast_s or (
                track.told_score > 0 and now_s - track.told_s <= self.settings.told_half_life_s
            )
            is_vanished = 0 < unseen_s <= vanish_s and track.is_confirmed and self._is_missed(track, seen)
            if is_shown or is_vanished:
                told = self._told(track)
                if is_shown:
                    shown.append(told)
                if is_vanished:
                    vanished.append(told)
        return Tracking(
            now_s - self._ahead_s,
            self._size,
            tuple(shown),
            tuple(vanished),
            tuple(self._told(track) for track in ended),
        )

    def _is_missed(self, track: Followed, seen: Sequence[Box]) -> bool:
        """The camera has seen it before, and it neither left by the border nor hides behind one of those `seen`."""
        assert self._size is not None
        if not track.own_hits:
            return False
        guess = track.box_at(self._at_s)
        if track.is_leaving(guess, self._size):
            return False
        return not is_covered(clipped(guess, self._size), seen, _HIDDEN_SHARE)

    def _told(self, track: Followed) -> Track:
        assert self._size is not None
        score, tier = track.score_at(self._at_s, self.settings.told_half_life_s)
        return Track(
            track.id,
            track.class_id,
            clipped(track.box_at(self._at_s), self._size),
            min(score, 1.0),
            track.started_s - self._ahead_s,
            track.seen_s - self._ahead_s,
            track.hits,
            track.is_confirmed,
            tier,
        )


def _classes(tracks: Sequence[Followed]) -> list[tuple[int, float]]:
    """The class of each, and how much an overlap with it counts."""
    return [(track.class_id, 1.0 if track.is_confirmed else _UNCONFIRMED) for track in tracks]
