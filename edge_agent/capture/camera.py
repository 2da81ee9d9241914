"""One camera: a thread that reads its source, blackens what is private, and keeps the frame to be looked at ready."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from edge_agent.capture.camera_state import (
    CameraCounts,
    CameraPhase,
    CameraSettings,
    CameraState,
    Delivery,
    DropCause,
    checked_fps,
)
from edge_agent.capture.mask import PrivacyMask
from edge_agent.capture.source import (
    Captured,
    FrameSource,
    SourceFacts,
    SourceSpec,
    described,
    open_source,
    shown_url,
)
from edge_agent.capture.sources.frozen import FrozenWatch
from edge_agent.capture.sources.pacing import DueFrames, PlaybackPace, RetryPauses
from edge_agent.capture.sources.url import SourceKind
from fovea.core.errors import RejectedError, RetryableError, Unavailable
from fovea.core.frame import Frame, FrameId, size_of
from fovea.core.ports import Clock

__all__ = [
    "Camera",
    "CameraCounts",
    "CameraPhase",
    "CameraSettings",
    "CameraState",
    "Delivery",
    "DropCause",
]

_log = logging.getLogger(__name__)

_USUAL_FPS = 25.0
_CAMERAS = frozenset({SourceKind.RTSP, SourceKind.HTTP, SourceKind.V4L2})

OnFrame = Callable[[str], None]
OnChange = Callable[[CameraState], None]
Opener = Callable[[SourceSpec, Clock], FrameSource]


class Camera:
    """Reads one source on a daemon thread of its own, and connects again for ever when it is lost.

    `on_frame(name)` is called on that thread when a frame lies ready, `on_change(state)` when the phase changes or
    the resolution does; both have to return at once. Of a live source the newest frame wins; each frame of a source
    with an end is handed out once, the reader waits for it to be taken.
    """

    def __init__(
        self,
        name: str,
        spec: SourceSpec,
        settings: CameraSettings,
        clock: Clock,
        boot_id: str,
        on_frame: OnFrame,
        on_change: OnChange,
        open_it: Opener = open_source,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.name, self.spec, self.settings = name, spec, settings
        self._clock, self._boot_id = clock, boot_id
        self._on_frame, self._on_change, self._open_it = on_frame, on_change, open_it
        self._mask = PrivacyMask(settings.masks)
        self._frozen = FrozenWatch(settings.frozen_after_s)
        self._pauses = RetryPauses(settings.first_retry_s, settings.longest_retry_s, draw)
        self._due = DueFrames(settings.fps)
        self._stopping = threading.Event()
        self._facts: SourceFacts | None = None  # those shown last, of frames of this shape
        self._shape: tuple[int, ...] = ()
        self._changed = threading.Condition()  # guards all that follows
        self._slot: Frame | None = None
        self._sequence = 0
        self._frames = self._taken = self._attempts = self._connections = 0
        self._drops = dict.fromkeys(DropCause, 0)
        self._state = CameraState(name, CameraPhase.CONNECTING, clock.now(), clock.monotonic_s())
        self._thread = threading.Thread(target=self._run, name=f"camera-{name}", daemon=True)

    def __repr__(self) -> str:
        return f"Camera({self.name!r}, {shown_url(self.spec)!r}, {self._state.phase})"

    @property
    def state(self) -> CameraState:
        return self._state

    @property
    def is_finished(self) -> bool:
        """Whether no frame will come any more: the source ended and all was taken, or the camera was stopped."""
        return self._state.phase in (CameraPhase.FINISHED, CameraPhase.STOPPED)

    @property
    def drops(self) -> Mapping[DropCause, int]:
        return self.counts.drops

    @property
    def counts(self) -> CameraCounts:
        with self._changed:
            drops = MappingProxyType(dict(self._drops))
            return CameraCounts(self._frames, self._taken, self._attempts, self._connections, drops)

    def start(self) -> None:
        """Begins to connect; once."""
        self._thread.start()

    def take(self) -> Frame | None:
        """The frame that lies ready, or None; does not wait."""
        with self._changed:
            frame, self._slot = self._slot, None
            if frame is not None:
                self._taken += 1
                self._changed.notify_all()
            return frame

    def set_fps(self, fps: float | None) -> None:
        """Hands out at most `fps` frames per second from now on; None: all. Raises Malformed."""
        self._due = DueFrames(checked_fps(fps))

    def begin_stop(self) -> None:
        """Tells the thread to end and does not wait for it; for stopping many cameras at once."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()

    def stop(self, timeout_s: float) -> bool:
        """Ends the thread; False when it still sat in a read after `timeout_s`. It is left behind then: a daemon that
        hands nothing out any more."""
        self.begin_stop()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        with self._changed:
            if self._slot is not None:
                self._slot = None
                self._drops[DropCause.STOPPED] += 1
        if self._state.phase is not CameraPhase.FINISHED:
            self._change(CameraPhase.STOPPED)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._connect_and_read()
                break
            except RetryableError as error:
                self._lose(str(error))
            except RejectedError as error:
                if self.spec.kind not in _CAMERAS:
                    self._finish(str(error))
                    break
                self._lose(str(error))
            except Exception as error:
                _log.exception("camera %s: unexpected error while reading", self.name)
                self._lose(f"unexpected error: {type(error).__name__}")
            self._stopping.wait(self._pauses.next_s())

    def _connect_and_read(self) -> None:
        with self._changed:
            self._attempts += 1
        source = self._open_it(self.spec, self._clock)
        try:
            if self._read(source):
                self._finish(None)
        finally:
            source.close()

    def _read(self, source: FrameSource) -> bool:
        """Reads until the source ends (True) or the camera is stopped (False); raises when it breaks."""
        facts = source.facts
        pace = self._pace(facts)
        hands_out_every = self._hands_out_every(facts)
        first_s: float | None = None
        while not self._stopping.is_set():
            at_s = None if pace is None else self._wait_until(pace.next_at(self._clock.monotonic_s()))
            if not source.advance():
                return True
            if self._stopping.is_set():
                return False
            now_s = self._clock.monotonic_s()
            if first_s is not None and now_s - first_s > self.settings.longest_retry_s:
                self._pauses.reset()
            first_s = now_s if first_s is None else first_s
            if not self._due.is_due(now_s if at_s is None else at_s):
                self._count(DropCause.NOT_DUE)
                continue
            captured = self._pictured(source)
            if captured is not None:
                self._hand_out(captured, source.facts, hands_out_every)
        return False

    def _pace(self, facts: SourceFacts) -> PlaybackPace | None:
        if facts.kind in _CAMERAS or not self.settings.is_realtime:
            return None
        return PlaybackPace(facts.fps or self.settings.fps or _USUAL_FPS)

    def _hands_out_every(self, facts: SourceFacts) -> bool:
        if self.settings.delivery is not Delivery.AUTO:
            return self.settings.delivery is Delivery.EVERY
        return not facts.is_live or (facts.kind is SourceKind.SIM and not self.settings.is_realtime)

    def _wait_until(self, at_s: float) -> float:
        self._stopping.wait(max(0.0, at_s - self._clock.monotonic_s()))
        return at_s

    def _pictured(self, source: FrameSource) -> Captured | None:
        try:
            captured = source.picture()
        except RejectedError as error:
            self._count(DropCause.UNDECODABLE)
            _log.debug("camera %s: %s", self.name, error)
            return None
        if source.facts.kind in _CAMERAS and self._frozen.look(captured.pixels, captured.captured_mono_s):
            self._count(DropCause.FROZEN)
            raise Unavailable(
                f"frozen: the very same picture for {self.settings.frozen_after_s:g} s or longer"
            )
        return captured

    def _hand_out(self, captured: Captured, facts: SourceFacts, hands_out_every: bool) -> None:
        pixels = self._mask.apply(captured.pixels)
        shape = pixels.shape
        if facts is not self._facts or shape != self._shape or self._state.phase is not CameraPhase.ONLINE:
            self._facts, self._shape = facts, shape
            self._show_online(replace(facts, size=size_of(pixels)))
        with self._changed:
            self._frames += 1
            while hands_out_every and self._slot is not None and not self._stopping.is_set():
                self._changed.wait(1.0)
            if self._stopping.is_set():
                self._drops[DropCause.STOPPED] += 1
                return
            frame_id = FrameId(self.name, self._boot_id, self._sequence)
            self._sequence += 1
            frame = Frame(frame_id, pixels, captured.captured_at, captured.captured_mono_s)
            if self._slot is not None:
                self._drops[DropCause.REPLACED_BY_NEWER] += 1
            self._slot = frame
        self._on_frame(self.name)

    def _count(self, cause: DropCause) -> None:
        with self._changed:
            self._frames += 1
            self._drops[cause] += 1

    def _show_online(self, facts: SourceFacts) -> None:
        before = self._state
        if before.phase is CameraPhase.ONLINE and before.facts == facts:
            return
        if before.phase is CameraPhase.ONLINE:
            _log.info("camera %s: now %s", self.name, facts.size)
            self._change(CameraPhase.ONLINE, None, facts)
            return
        with self._changed:
            self._connections += 1
        away = ""
        if before.phase is CameraPhase.LOST:
            away = f" again after {self._clock.monotonic_s() - before.since_mono_s:.0f} s"
        _log.info("camera %s: online%s, %s", self.name, away, described(facts))
        self._change(CameraPhase.ONLINE, None, facts)

    def _lose(self, reason: str) -> None:
        if self._stopping.is_set() or self._state.phase is CameraPhase.LOST:
            return
        _log.warning("camera %s: lost, %s; trying again until it is back", self.name, reason)
        self._change(CameraPhase.LOST, reason)

    def _finish(self, reason: str | None) -> None:
        with self._changed:
            while self._slot is not None and not self._stopping.is_set():
                self._changed.wait(1.0)
        if self._stopping.is_set():
            return
        if reason is None:
            _log.info("camera %s: read to its end", self.name)
        else:
            _log.error("camera %s: cannot be read: %s", self.name, reason)
        self._change(CameraPhase.FINISHED, reason)

    def _change(
        self, phase: CameraPhase, reason: str | None = None, facts: SourceFacts | None = None
    ) -> None:
        with self._changed:
            if self._state.phase is CameraPhase.STOPPED:
                return
            now, mono_s = self._clock.now(), self._clock.monotonic_s()
            if self._state.phase is phase:
                now, mono_s = self._state.since_at, self._state.since_mono_s
            self._state = state = CameraState(self.name, phase, now, mono_s, reason, facts)
        self._on_change(state)


def stop_all(cameras: Iterable[Camera], timeout_s: float) -> list[str]:
    """Stops all of them within `timeout_s` together; the names of those whose thread had to be left behind."""
    together = list(cameras)
    for camera in together:
        camera.begin_stop()
    until_s = time.monotonic() + timeout_s
    return [camera.name for camera in together if not camera.stop(max(0.0, until_s - time.monotonic()))]
