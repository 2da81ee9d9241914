"""One thing that is followed: its motion, its class, and who believes in it how much."""

from __future__ import annotations

from collections import deque

from edge_agent.track.tracking import Box
from fovea.core.frame import ImageSize
from fovea.core.routing import Tier

_MEMORY = 6
"""Looks after which the motion filter stops getting stiffer."""
_LONGEST_GUESS_S = 1.5
"""Motion is carried on this far at most: afterwards the thing is taken to stand still."""
_SIZE_RATE_PER_S = 0.3
"""A guess grows or shrinks by this share of its size in a second at most."""
_VOTE_MEMORY = 0.9
_TIER_VOTES = {Tier.AGENT: 1.0, Tier.EDGE: 3.0, Tier.CLOUD: 6.0}
_FADE_HALF_LIFE_S = 0.5
_BORDER_SHARE = 0.01
_LEAVING_RATE_PER_S = 0.1
"""What moves by less of its size in a second stands; jitter of the box looks like that, too."""

# Four plain floats are an order of magnitude faster than a numpy array of four.


class Followed:
    """Mutable state behind a Track. All times are the tracker's own, which never steps back.

    The four edges of the box follow one alpha-beta filter each, with the gains of a growing memory (a least squares
    line through the looks so far) that stop at `_MEMORY` looks.
    """

    __slots__ = (
        "_guessed", "_guessed_s", "at_s", "box", "gain", "hits", "id", "is_confirmed", "own_hits", "own_score",
        "own_seen_s", "past", "seen_s", "speed", "started_s", "told_s", "told_score", "told_tier", "votes",
    )  # fmt: skip

    def __init__(self, track_id: int, box: Box, at_s: float) -> None:
        self.id = track_id
        self.box = box
        self.speed: Box = (0.0, 0.0, 0.0, 0.0)
        self.at_s = at_s
        self.started_s = self.seen_s = self.own_seen_s = at_s
        self.gain = 1
        self.hits = 1
        self.own_hits = 0
        self.own_score = 0.0
        self.told_score = 0.0
        self.told_s = at_s
        self.told_tier = Tier.AGENT
        self.is_confirmed = False
        self.votes: dict[int, float] = {}
        self.past: deque[tuple[float, Box]] = deque([(at_s, box)])
        self._guessed_s, self._guessed = at_s, box

    @property
    def class_id(self) -> int:
        """The class that most was said for."""
        votes = self.votes
        return next(iter(votes)) if len(votes) == 1 else max(votes, key=votes.__getitem__)

    def vote(self, class_id: int, score: float, tier: Tier) -> None:
        """One more opinion on the class; a higher tier counts more, and all fade as new ones come."""
        votes = self.votes
        for known in votes:
            votes[known] *= _VOTE_MEMORY
        votes[class_id] = votes.get(class_id, 0.0) + (score + 0.01) * _TIER_VOTES[tier]

    def box_at(self, at_s: float) -> Box:
        """Where it was, is or will be: between two looks on the line between them, else carried on; not clipped."""
        past = self.past
        if at_s >= self.at_s or len(past) == 1:
            if at_s != self._guessed_s:  # asked several times for each frame
                self._guessed_s, self._guessed = at_s, self._guess(at_s)
            return self._guessed
        if at_s <= past[0][0]:
            first_s, first = past[0]
            return _moved(first, self.speed, max(at_s - first_s, -_LONGEST_GUESS_S))
        later_s, later = self.at_s, self.box
        for earlier_s, earlier in reversed(past):
            if earlier_s <= at_s:
                break
            later_s, later = earlier_s, earlier
        if later_s <= earlier_s:
            return later
        share = (at_s - earlier_s) / (later_s - earlier_s)
        return (
            earlier[0] + share * (later[0] - earlier[0]), earlier[1] + share * (later[1] - earlier[1]),
            earlier[2] + share * (later[2] - earlier[2]), earlier[3] + share * (later[3] - earlier[3]),
        )  # fmt: skip

    def look(self, box: Box, at_s: float, memory_s: float) -> None:
        """Takes in where it was seen at `at_s`, which is not before the last look."""
        guess = self._guess(at_s)
        self.gain = k = min(self.gain + 1, _MEMORY)
        alpha, beta = 2 * (2 * k - 1) / (k * (k + 1)), 6 / (k * (k + 1))
        passed_s = at_s - self.at_s
        off = (box[0] - guess[0], box[1] - guess[1], box[2] - guess[2], box[3] - guess[3])
        self.box = _moved(guess, off, alpha)
        if passed_s > 0:
            self.speed = _moved(self.speed, off, beta / passed_s)
        self.at_s = at_s
        self.seen_s = max(self.seen_s, at_s)
        self.hits += 1
        self._remember(memory_s)

    def stand(self, since_s: float, at_s: float, score: float, memory_s: float) -> None:
        """Takes in that nothing moved between `since_s` and `at_s`: it stays where it was, and its speed fades."""
        self.box = self.box_at(since_s)
        k = self.gain
        self.speed = _moved(self.speed, self.speed, -6 / (k * (k + 1)))
        self.at_s = self.seen_s = self.own_seen_s = at_s
        self.own_score = score
        self._remember(memory_s)

    def shift(self, off: Box, share: float) -> None:
        """Moves the box by a share of what an older look was off: sharper eyes say how it really lies."""
        box = _moved(self.box, off, share)
        if box[0] < box[2] and box[1] < box[3]:
            self.box = box
            self.past[-1] = (self.at_s, box)
            self._guessed_s, self._guessed = self.at_s, box

    def score_at(self, at_s: float, told_half_life_s: float) -> tuple[float, Tier]:
        """How much it is believed in, and by whom: the stronger of the own, faded, and the told, aged."""
        own = self.own_score
        if own and at_s != self.own_seen_s:
            own *= 0.5 ** ((at_s - self.own_seen_s) / _FADE_HALF_LIFE_S)
        if self.told_score > 0:
            told = self.told_score * 0.5 ** ((at_s - self.told_s) / told_half_life_s)
            if told > own:
                return told, self.told_tier
        return own, Tier.AGENT

    def has_left(self, guess: Box, size: ImageSize) -> bool:
        """True when most of where it should be lies outside the frame."""
        area = (guess[2] - guess[0]) * (guess[3] - guess[1])
        inside = clipped(guess, size)
        return (inside[2] - inside[0]) * (inside[3] - inside[1]) < 0.5 * area or area <= 0

    def is_leaving(self, guess: Box, size: ImageSize) -> bool:
        """True when it touches the border and moves outwards."""
        near_x, near_y = size.width * _BORDER_SHARE + 1, size.height * _BORDER_SHARE + 1
        least_x = (guess[2] - guess[0]) * _LEAVING_RATE_PER_S
        least_y = (guess[3] - guess[1]) * _LEAVING_RATE_PER_S
        speed_x, speed_y = self.speed[0] + self.speed[2], self.speed[1] + self.speed[3]
        return (
            (guess[0] <= near_x and speed_x < -least_x)
            or (guess[2] >= size.width - near_x and speed_x > least_x)
            or (guess[1] <= near_y and speed_y < -least_y)
            or (guess[3] >= size.height - near_y and speed_y > least_y)
        )

    def _remember(self, memory_s: float) -> None:
        past = self.past
        past.append((self.at_s, self.box))
        self._guessed_s, self._guessed = self.at_s, self.box
        oldest_s = self.at_s - memory_s
        while past[0][0] < oldest_s:
            past.popleft()

    def _guess(self, at_s: float) -> Box:
        """The box carried on to `at_s`; it moves as a whole, and changes its size slowly."""
        passed_s = min(at_s - self.at_s, _LONGEST_GUESS_S)
        if passed_s <= 0:
            return self.box
        x1, y1, x2, y2 = self.box
        v1, u1, v2, u2 = self.speed
        wider, taller = (x2 - x1) * _SIZE_RATE_PER_S, (y2 - y1) * _SIZE_RATE_PER_S
        move_x, move_y = (v1 + v2) / 2 * passed_s, (u1 + u2) / 2 * passed_s
        grow_x = min(max(v2 - v1, -wider), wider) / 2 * passed_s
        grow_y = min(max(u2 - u1, -taller), taller) / 2 * passed_s
        return (x1 + move_x - grow_x, y1 + move_y - grow_y, x2 + move_x + grow_x, y2 + move_y + grow_y)


def clipped(box: Box, size: ImageSize) -> Box:
    """The part of a box that lies within the frame; of no area where there is none."""
    width, height = float(size.width), float(size.height)
    if 0 <= box[0] <= box[2] <= width and 0 <= box[1] <= box[3] <= height:
        return box
    x1, y1 = min(max(box[0], 0.0), width), min(max(box[1], 0.0), height)
    return (x1, y1, min(max(box[2], x1), width), min(max(box[3], y1), height))


def _moved(box: Box, step: Box, times: float) -> Box:
    return (
        box[0] + step[0] * times, box[1] + step[1] * times, box[2] + step[2] * times, box[3] + step[3] * times,
    )  # fmt: skip
