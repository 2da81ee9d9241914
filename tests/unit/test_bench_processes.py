"""What the benchmarks of processes stand on: children on their cores, videos, and the results that agents write."""

from __future__ import annotations

import json
import os
import signal
import socket
from itertools import repeat
from pathlib import Path

import cv2
import pytest

from fovea.bench.bare_loop import BareLook, frames_per_s, read_video
from fovea.bench.children import child, free_ports, is_listening, pinned, two_cores
from fovea.bench.measured_tiers import cpu_parts_ms
from fovea.bench.result_lines import escalation_overheads_ms, lines_between, published
from fovea.bench.street_videos import Coding, StreetVideo, street_videos
from fovea.core.errors import BrokenError, DeadlineExceeded, Malformed
from tests.builders import scene, tiny_bundle

WAITS = ("-c", "import time; print('here', flush=True); time.sleep(60)")


def result_line(
    sequence: int,
    revision: int = 0,
    route: str = "local",
    camera: str = "gate",
    captured_mono_s: float = 100.0,
    **stage_ms: float,
) -> bytes:
    told = {
        "camera": camera,
        "sequence": sequence,
        "revision": revision,
        "captured_mono_s": captured_mono_s,
        "decision": {"route": route},
        "stage_ms": stage_ms,
    }
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def test_a_child_runs_on_its_core_alone_and_this_thread_keeps_its_own(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    core, _ = two_cores()
    with child("waiter", WAITS, tmp_path / "log", {core}) as waiter:
        waiter.wait_for(lambda: "here" in (tmp_path / "log").read_text(), "word", 30)
        assert os.sched_getaffinity(waiter.pid) == {core}
        assert os.sched_getaffinity(0) == before
        assert waiter.cpu_s() >= 0
        assert 1 < waiter.rss_mb() < 500
    with pytest.raises(BrokenError, match="waiter ended with exit code -15"):
        waiter.cpu_s()


def test_a_child_is_ended_also_when_the_measurement_breaks_and_when_it_will_not_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); time.sleep(60)"
    monkeypatch.setattr("fovea.bench.children._STOP_WITHIN_S", 0.2)
    with (
        pytest.raises(ZeroDivisionError),
        child("deaf", ("-c", deaf), tmp_path / "log", os.sched_getaffinity(0)) as it,
    ):
        it.wait_for(lambda: "deaf" in (tmp_path / "log").read_text(), "word", 30)
        _ = 1 / 0
    with pytest.raises(BrokenError, match=f"exit code -{int(signal.SIGKILL)}"):
        it.check()


def test_a_child_that_breaks_is_named_with_its_last_lines(tmp_path: Path) -> None:
    cores = os.sched_getaffinity(0)
    with (
        child("broken", ("-c", "raise SystemExit('no camera')"), tmp_path / "log", cores) as broken,
        pytest.raises(BrokenError, match=r"(?s)broken ended with exit code 1.*no camera"),
    ):
        broken.wait(30)
    with child("waiter", WAITS, tmp_path / "log", cores) as waiter:
        with pytest.raises(DeadlineExceeded, match="waiter: no sign within 0 s"):
            waiter.wait_for(lambda: False, "sign", 0.2)
        with pytest.raises(DeadlineExceeded, match="waiter: not finished after 0 s"):
            waiter.wait(0.1)
    with child("fine", ("-c", "pass"), tmp_path / "log", cores) as fine:
        fine.wait(30)


def test_pinning_ends_with_its_block() -> None:
    before = os.sched_getaffinity(0)
    with pinned({max(before)}):
        assert os.sched_getaffinity(0) == {max(before)}
    assert os.sched_getaffinity(0) == before
    core, other = two_cores()
    assert (core == other) == (len(before) == 1)


def test_free_ports_are_different_and_free() -> None:
    ports = free_ports(3)
    assert len(set(ports)) == 3
    assert not is_listening("127.0.0.1", ports[0])
    with socket.create_server(("127.0.0.1", ports[0])):
        assert is_listening("127.0.0.1", ports[0])


def test_videos_are_drawn_once_and_hold_the_frames_that_they_name(tmp_path: Path) -> None:
    wanted = [
        StreetVideo((("fog", 0),), frames=2, coding=Coding.RAW),
        StreetVideo((("fog", 0),), frames=2, stride=2, fps=5.0),
    ]
    drawn: list[tuple[int, int]] = []
    files = street_videos(tmp_path, wanted, 2, lambda done, every: drawn.append((done, every)))
    assert drawn == [(1, 2), (2, 2)]
    assert [file.name for file in files] == [
        "street-v1-fog0-2x1-10fps.avi",
        "street-v1-fog0-2x2-5fps.mp4",
    ]
    raw, coded = (list(read_video(file)) for file in files)
    assert [len(raw), len(coded)] == [2, 2]
    assert raw[0].shape == coded[0].shape == (540, 960, 3)
    # The same moment in both files, through two codings.
    assert cv2.absdiff(raw[0], coded[0]).mean() < 6
    assert not list(tmp_path.glob("part-*"))
    assert street_videos(tmp_path, wanted, 2, lambda done, every: pytest.fail("drawn again")) == files


def test_what_is_no_video_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.avi").write_text("no video")
    with pytest.raises(Malformed, match="not a video that can be read"):
        next(read_video(tmp_path / "text.avi"))


def test_the_bare_loop_sees_what_the_detector_sees_and_counts_frames() -> None:
    from fovea.runtime.onnx_detector import OnnxDetector, nms_for_answers

    bundle, frame = tiny_bundle(), scene(96, 128, 3)
    look = BareLook(bundle)
    seen = look(frame)
    wanted = OnnxDetector.open(bundle, "cpu", nms=nms_for_answers(bundle)).detect([frame])[0].candidates
    assert len(seen) > 0
    assert seen.boxes_xyxy.tolist() == wanted.boxes_xyxy.tolist()
    assert frames_per_s(repeat(frame), look, 0.05) > 0
    parts_ms = look.parts_ms([frame] * 3)
    assert list(parts_ms) == ["letterbox", "run", "decode"]
    assert all(ms > 0 for ms in parts_ms.values())


def test_the_cpu_time_of_an_agent_is_told_by_what_its_threads_are_for() -> None:
    stats = {
        "cameras": [{"frames": 60}, {"frames": 40}],
        "threads_cpu_s": {
            "MainThread": 9.0, "agent": 0.5, "camera": 0.1, "case": 0.2, "escalation": 0.03,
            "link 127.0.0.1:9": 0.01, "others": 0.02,
        },
    }  # fmt: skip
    assert cpu_parts_ms(stats) == pytest.approx({"walk": 5.0, "capture": 1.0, "ask": 0.6})
    assert cpu_parts_ms({"cameras": [{"frames": 0}], "threads_cpu_s": {}}) == {}


def test_a_line_says_what_the_figures_need() -> None:
    answer = published(result_line(7, 1, "edge", "yard", 12.5, since_capture=80.0))
    assert (answer.camera, answer.sequence, answer.revision, answer.captured_mono_s) == ("yard", 7, 1, 12.5)
    assert answer.is_asked
    assert answer.is_looked_at
    assert answer.stage_ms == {"since_capture": 80.0}
    still = published(result_line(8, 0, "skip"))
    assert not still.is_looked_at
    assert not still.is_asked


def test_only_lines_that_end_between_two_sizes_count(tmp_path: Path) -> None:
    lines = [result_line(number) for number in range(5)]
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"".join(lines))
    size = len(lines[0])
    assert [a.sequence for a in lines_between(path, 0, 2 * size)] == [0, 1]
    # Begun in the middle of line 1, ended in the middle of line 4.
    assert [a.sequence for a in lines_between(path, size + 3, 4 * size + 3)] == [2, 3]
    assert lines_between(path, size + 3, size + 9) == []


def test_overhead_is_what_asking_took_beside_the_looks_of_both() -> None:
    lines = [
        result_line(1, 0, "edge", wait=2.0, detect=6.0),
        result_line(2, 0, "local", wait=1.0, detect=6.0),
        result_line(1, 1, "edge", since_capture=60.0, upper_queue=5.0, upper_open=3.0, upper_infer=30.0),
        result_line(9, 1, "edge", since_capture=60.0),  # asked before the measurement began
    ]
    assert escalation_overheads_ms(published(line) for line in lines) == [pytest.approx(14.0)]
