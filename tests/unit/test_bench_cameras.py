"""The benchmark of many cameras: its arithmetic, and a small run with a real agent and a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from fovea.bench.cameras import Arrived, CamerasSettings, run, stream_figures
from fovea.bench.result_lines import Published
from fovea.core.errors import BrokenError
from tests.builders import tiny_bundle


def arrived(
    camera: str, sequence: int, captured_s: float, late_s: float = 0.01, revision: int = 0
) -> Arrived:
    answer = Published(camera, sequence, revision, captured_s, False, True, {})
    return Arrived(answer, captured_s + late_s)


def stream(camera: str, frames: int, fps: float = 5.0, begin_s: float = 100.0) -> list[Arrived]:
    return [arrived(camera, number, begin_s + number / fps) for number in range(frames)]


def test_all_frames_in_time_are_a_hundred_percent() -> None:
    seen = stream("a", 50) + stream("b", 50)
    figures = stream_figures(seen, ["a", "b"], 5.0, 100.0, 110.0)
    assert figures["due_frames_processed_pct"] == pytest.approx(100)
    assert figures["publish_p99_ms"] == pytest.approx(10, abs=0.1)


def test_a_camera_that_is_behind_or_silent_is_missed_and_a_fast_one_makes_up_for_nothing() -> None:
    seen = stream("a", 100, fps=10.0) + stream("b", 25, fps=2.5)
    figures = stream_figures(seen, ["a", "b", "silent"], 5.0, 100.0, 110.0)
    assert figures["due_frames_processed_pct"] == pytest.approx(100 * (50 + 25) / 150)


def test_frames_of_before_and_after_and_later_answers_do_not_count() -> None:
    seen = [
        *stream("a", 50),
        arrived("a", 900, 99.9, late_s=50.0),
        arrived("a", 901, 110.0, late_s=50.0),
        arrived("a", 3, 100.6, late_s=50.0, revision=1),
        arrived("a", 3, 100.6, late_s=50.0),  # told twice by the broker: the first counts
    ]
    figures = stream_figures(seen, ["a"], 5.0, 100.0, 110.0)
    assert figures["due_frames_processed_pct"] == pytest.approx(100)
    assert figures["publish_p99_ms"] == pytest.approx(10, abs=0.1)


def test_late_frames_show_in_the_p99() -> None:
    seen = [*stream("a", 49), arrived("a", 49, 109.8, late_s=0.7)]
    assert stream_figures(seen, ["a"], 5.0, 100.0, 110.0)["publish_p99_ms"] > 300


def test_nothing_arrived_is_said() -> None:
    with pytest.raises(BrokenError, match="no result arrived"):
        stream_figures([arrived("a", 1, 50.0)], ["a"], 5.0, 100.0, 110.0)


def test_three_cameras_run_through_one_agent_and_a_real_broker(tmp_path: Path) -> None:
    pytest.importorskip("amqtt")
    settings = CamerasSettings(
        cameras=3,
        seconds=2.0,
        frames=4,
        clips=1,
        conditions=("fog", "day"),
        bundle=tiny_bundle().write(tmp_path),
    )
    result = run(settings, tmp_path / "videos", tmp_path / "work")
    assert set(result.figures) == {"cpu_cores", "rss_mb", "due_frames_processed_pct", "publish_p99_ms"}
    assert 0 < result.figures["due_frames_processed_pct"] <= 100
    assert result.figures["publish_p99_ms"] > 0
    assert result.figures["rss_mb"] > 10
    assert result.settings["videos"] == 2
    assert (tmp_path / "work" / "agent.log").is_file()
