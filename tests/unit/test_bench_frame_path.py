"""The frame path benchmark, small: real processes, tiny models, and the export of the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from fovea import zoo
from fovea.bench.bare_loop import read_video
from fovea.bench.frame_path import FramePathSettings, run, student_architecture
from fovea.bench.same_weights import check_same, ultralytics_onnx, why_not
from fovea.bench.street_videos import Coding, StreetVideo, street_videos
from fovea.core.errors import Incompatible
from fovea.runtime.bundle import Bundle
from tests.builders import tiny_bundle

VIDEO = StreetVideo((("fog", 0),), frames=3, coding=Coding.RAW)
FIGURES = {
    "agent_fps_over_bare",
    "agent_cpu_ms_per_frame",
    "decide_cpu_ms_p50",
    "decide_cpu_ms_p99",
    "decide_wall_ms_p99",
    "escalation_overhead_ms_p50",
    "bytes_per_escalation",
    "agent_cpu_ms.capture",
    "agent_cpu_ms.walk",
    "agent_cpu_ms.ask",
    "bare_cpu_ms.letterbox",
    "bare_cpu_ms.run",
    "bare_cpu_ms.decode",
    "bare_cpu_ms.reading",
    "rss_mb.agent",
    "rss_mb.edge",
    "rss_mb.cloud",
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("videos")
    street_videos(made, [VIDEO], 1, lambda done, every: None)
    return made


def test_every_figure_comes_from_running_processes(cache: Path, tmp_path: Path) -> None:
    bundle = tiny_bundle().write(tmp_path)
    settings = FramePathSettings(
        rounds=2,
        seconds=1.0,
        asked_share=0.3,
        video=VIDEO,
        int8=bundle,
        fp32=bundle,
        edge=bundle,
        cloud=bundle,
        architecture=None,
    )
    steps: list[str] = []
    result = run(settings, cache, tmp_path / "work", steps.append)
    assert set(result.figures) == FIGURES
    assert all(value > 0 for name, value in result.figures.items() if name != "bare_cpu_ms.reading")
    assert result.figures["bare_cpu_ms.reading"] >= 0
    assert result.figures["decide_cpu_ms_p50"] <= result.figures["decide_cpu_ms_p99"]
    assert 0.05 < float(result.settings["asked_share_measured"]) < 0.6
    assert str(result.settings["ultralytics"]).startswith("left out: ")
    assert any("agent_fps_over_ultralytics is left out" in step for step in steps)
    # The second round runs the other way round.
    turns = [step.partition(": ")[2] for step in steps if step.startswith("round ")]
    assert turns == ["bare loop", "agent", "agent", "bare loop"]


def test_the_student_can_be_built_where_the_cloud_is_installed() -> None:
    architecture = student_architecture()
    assert architecture is not None
    assert architecture.name == "street-student.yaml"


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_ultralytics_exports_the_very_weights_of_the_student(cache: Path, tmp_path: Path) -> None:
    architecture = student_architecture()
    assert architecture is not None
    bundle = Bundle.open(zoo.path_of("street-student-fp32"))
    exported = ultralytics_onnx(bundle, architecture, tmp_path)
    assert exported.is_file()
    frame = next(read_video(cache / VIDEO.file_name))
    check_same(bundle, exported, frame)
    with pytest.raises(Incompatible, match="see different boxes"):
        check_same(Bundle.open(zoo.path_of("street-student-day-fp32")), exported, frame)
    with pytest.raises(Incompatible, match=r"does not fit street-student\.yaml"):
        ultralytics_onnx(tiny_bundle(), architecture, tmp_path)
