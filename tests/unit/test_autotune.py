"""Choosing what a machine can afford: the rule on made-up trials, and real measurements of small models."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from edge_agent.config import load_config as load_agent_config
from edge_agent.run import tuned as tuned_agent
from edge_server.config import load_config as load_edge_config
from edge_server.run import tuned as tuned_edge
from fovea.cli import agent, edge
from fovea.core.arrays import ImageArray
from fovea.core.errors import DetectorFailed, FoveaError, Incompatible, Malformed, NotFound
from fovea.core.frame import ImageSize
from fovea.runtime.autotune import (
    FrameTimer,
    Trial,
    TuneSettings,
    Variant,
    autotune,
    choose,
    measure,
    thread_counts,
    usable_cores,
)
from fovea.runtime.bundle import Bundle
from fovea.runtime.tuned_file import TunedModel, find_tuned, this_machine
from tests.builders import tiny_bundle

SMALL = Variant(Path("small.fovea"), "small", ImageSize(320, 192), 500_000, 0.16, 1)
LARGE = Variant(Path("large.fovea"), "large", ImageSize(480, 288), 2_700_000, 0.21, 1)


def trial(variant: Variant, p95_ms: float, threads: int = 1, is_cut_short: bool = False) -> Trial:
    return Trial(replace(variant, threads=threads), 0.8 * p95_ms, p95_ms, 30, is_cut_short)


def test_the_best_model_within_the_target_is_chosen() -> None:
    choice = choose([trial(SMALL, 20), trial(LARGE, 60)], 80)
    assert choice.trial.variant.name == "large"
    assert choice.meets_target
    choice = choose([trial(SMALL, 20), trial(LARGE, 60)], 40)
    assert choice.trial.variant.name == "small"
    assert "quality within 40 ms" in choice.reason


def test_of_one_model_the_fewest_threads_that_do_are_taken() -> None:
    choice = choose([trial(LARGE, 60, 1), trial(LARGE, 35, 2), trial(LARGE, 20, 4)], 40)
    assert choice.trial.variant.threads == 2


def test_when_nothing_is_within_the_target_the_fastest_is_taken_and_it_is_said() -> None:
    choice = choose([trial(LARGE, 60), trial(SMALL, 20, 2), trial(SMALL, 25)], 10)
    assert (choice.trial.variant.name, choice.trial.variant.threads) == ("small", 2)
    assert not choice.meets_target
    assert "none is within 10 ms" in choice.reason


def test_without_figures_of_quality_the_larger_input_counts() -> None:
    unknown = replace(SMALL, quality=None)
    choice = choose([trial(unknown, 20), trial(LARGE, 30)], 80)
    assert choice.trial.variant.name == "large"
    assert "input size" in choice.reason


def test_a_trial_that_was_cut_short_never_meets_a_target() -> None:
    choice = choose([trial(LARGE, 60, is_cut_short=True), trial(SMALL, 20)], 80)
    assert choice.trial.variant.name == "small"


trials = st.lists(
    st.builds(
        trial,
        st.sampled_from([SMALL, LARGE, replace(SMALL, name="twin"), replace(LARGE, quality=None)]),
        st.floats(1, 500),
        st.integers(1, 8),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@given(trials, st.floats(1, 500))
def test_the_target_is_kept_whenever_it_can_be(tried: list[Trial], target_ms: float) -> None:
    choice = choose(tried, target_ms)
    can_be = any(each.p95_ms <= target_ms and not each.is_cut_short for each in tried)
    assert choice.meets_target == can_be
    if can_be:
        assert choice.trial.p95_ms <= target_ms
    else:
        assert choice.trial.p95_ms == min(each.p95_ms for each in tried)
    assert choose(tried[::-1], target_ms).trial.p95_ms == choice.trial.p95_ms


class FakeTimer:
    """Says in turn how long frames took."""

    def __init__(self, times_ms: Iterator[float]) -> None:
        self._times_ms = times_ms
        self.is_closed = False
        self.frames: list[ImageArray] = []

    def time_ms(self, pixels: ImageArray) -> float:
        self.frames.append(pixels)
        return next(self._times_ms)

    def close(self) -> None:
        self.is_closed = True


def frames(count: int) -> list[ImageArray]:
    return [np.zeros((4, 4, 3), np.uint8)] * count


def test_the_first_frames_warm_up_and_do_not_count() -> None:
    measured = measure(FakeTimer(iter([900.0, 500.0, *[10.0] * 20])), frames(22), SMALL)
    assert (measured.p50_ms, measured.p95_ms, measured.frames) == (10.0, 10.0, 20)


def test_a_variant_that_is_plainly_too_slow_is_not_measured_to_the_end() -> None:
    timer = FakeTimer(iter([100.0] * 100))
    measured = measure(timer, frames(100), SMALL, target_ms=30)
    assert measured.is_cut_short
    assert len(timer.frames) == 6
    assert not measure(FakeTimer(iter([100.0] * 100)), frames(50), SMALL, target_ms=40).is_cut_short


def test_a_measurement_without_frames_is_refused() -> None:
    with pytest.raises(Malformed, match="more than 2 frames"):
        measure(FakeTimer(iter([1.0, 1.0])), frames(2), SMALL)


@pytest.fixture
def bundles(tmp_path: Path) -> list[Path]:
    poor = tiny_bundle(name="poor", report={"ap.all": 0.1}).write(tmp_path)
    good = tiny_bundle(name="good", report={"ap.all": 0.3}).write(tmp_path)
    return [poor, good]


def timers(
    ms: Callable[[str, int], float], opened: list[FakeTimer]
) -> Callable[[Bundle, int, str], FrameTimer]:
    def open_timer(bundle: Bundle, threads: int, device: str) -> FrameTimer:
        took_ms = ms(bundle.manifest.name, threads)
        opened.append(FakeTimer(iter(lambda: took_ms, None)))
        return opened[-1]

    return open_timer


def test_every_model_is_tried_with_every_thread_count_and_closed(bundles: list[Path]) -> None:
    opened: list[FakeTimer] = []
    slow = {"poor": 20.0, "good": 60.0}
    settings = TuneSettings(40.0, 5, ImageSize(32, 16), threads=(4, 1, 2))
    tuned = autotune(bundles, settings, open_timer=timers(lambda name, threads: slow[name] / threads, opened))
    assert [(each.variant.path, each.variant.threads) for each in tuned.trials] == [
        (path, threads) for path in bundles for threads in (1, 2, 4)
    ]
    assert tuned.choice.trial.variant.path == bundles[1]
    assert tuned.choice.trial.variant.threads == 2
    assert all(timer.is_closed for timer in opened)
    assert opened[0].frames[0].shape == (16, 32, 3)
    assert not np.array_equal(opened[0].frames[0], opened[0].frames[1])


def test_more_threads_are_not_tried_where_twice_as_many_did_not_help(bundles: list[Path]) -> None:
    opened: list[FakeTimer] = []
    settings = TuneSettings(40.0, 5, threads=(1, 2, 4, 8))
    tuned = autotune(bundles[:1], settings, open_timer=timers(lambda name, threads: 20.0, opened))
    assert [each.variant.threads for each in tuned.trials] == [1, 2]


def test_what_does_not_run_here_is_left_out_and_named(bundles: list[Path]) -> None:
    def check(path: Path) -> None:
        if path == bundles[1]:
            raise Incompatible("the dry run ended by SIGILL")

    told: list[str] = []
    opened: list[FakeTimer] = []
    settings = TuneSettings(40.0, 5, threads=(1,))
    tuned = autotune(bundles, settings, check, told.append, timers(lambda name, threads: 9.0, opened))
    assert tuned.refused == ((bundles[1].name, "the dry run ended by SIGILL"),)
    assert tuned.choice.trial.variant.path == bundles[0]
    assert any("left out" in text for text in told)


def test_a_model_that_breaks_while_it_is_timed_is_closed_and_left_out(bundles: list[Path]) -> None:
    class Broken(FakeTimer):
        def time_ms(self, pixels: ImageArray) -> float:
            raise DetectorFailed("it broke")

    broken = Broken(iter(()))
    settings = TuneSettings(40.0, 5, threads=(1,))
    with pytest.raises(Malformed, match=r"none of the models runs here; .*it broke"):
        autotune(bundles[:1], settings, open_timer=lambda bundle, threads, device: broken)
    assert broken.is_closed


def test_no_model_at_all_is_refused() -> None:
    with pytest.raises(Malformed, match="at least one variant"):
        autotune([], TuneSettings(40.0))


@pytest.mark.parametrize(
    "changes", [{"target_ms": 0.0}, {"target_ms": float("nan")}, {"frames": 4}, {"threads": (0,)}]
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(Malformed, match="autotune"):
        TuneSettings(**({"target_ms": 40.0} | changes))  # type: ignore[arg-type]


def test_thread_counts_double_up_to_the_cores() -> None:
    assert thread_counts(1) == (1,)
    assert thread_counts(4) == (1, 2, 4)
    assert thread_counts(6) == (1, 2, 4, 6)
    assert thread_counts(0) == (1,)


@pytest.mark.parametrize(
    ("quota", "cores"), [("100000 100000", 1), ("50000 100000", 1), ("odd", None), ("max 1", None)]
)
def test_the_quota_of_a_container_counts(tmp_path: Path, quota: str, cores: int | None) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text(quota)
    assert usable_cores(tmp_path) == (usable_cores(tmp_path / "nowhere") if cores is None else cores)


@pytest.mark.parametrize("command", [agent, edge])
def test_the_commands_measure_real_models_and_say_what_to_configure(
    command: object, bundles: list[Path], tmp_path: Path
) -> None:
    found = tmp_path / "found.json"
    text = run(
        command, "autotune", *bundles, "--target-ms", 60_000, "--frames", 5, "--threads", "1", "--frame-size",
        "96x64", "--json", found,
    )  # fmt: skip
    assert f"bundle: {bundles[1]}" in text.replace("\n", "")
    assert "threads: 1" in text
    said = json.loads(found.read_text())
    assert said["meets_target"] is True
    assert said["chosen"]["bundle"] == str(bundles[1])
    assert len(said["trials"]) == 2


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        (["nowhere.fovea"], Malformed, r"none of the models runs here"),
        (["zoo:nothing"], NotFound, "bundled model"),
        (["zoo:street-student-int8", "--threads", "many"], Malformed, "--threads: expected whole numbers"),
        (
            ["zoo:street-student-int8", "--frame-size", "big"],
            Malformed,
            "--frame-size: expected WIDTHxHEIGHT",
        ),
    ],
)
def test_commands_refuse_what_they_cannot_use(options: list[str], error: type[FoveaError], word: str) -> None:
    with pytest.raises(error, match=word):
        run(agent, "autotune", *options)


@pytest.mark.parametrize("command", [agent, edge])
def test_the_group_without_a_command_still_wants_a_configuration(command: object) -> None:
    with pytest.raises(Malformed, match="expected --config FILE"):
        run(command)


def run(command: object, *arguments: object) -> str:
    app = command.app  # type: ignore[attr-defined]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


# From the measurement to the next start


def tuned_text(**changes: object) -> str:
    chosen = {"bundle": "zoo:street-student-int8", "threads": 2} | changes
    return json.dumps({"machine": this_machine(), "chosen": chosen})


def agent_config(tmp_path: Path, bundle: Path, more: str = "tuned_file: tuned.json") -> Path:
    config = tmp_path / "agent.yaml"
    config.write_text(
        f"device: d\nbundle: {bundle}\n{more}\ncameras: [{{name: front, url: clip.mp4, fps: 0.5}}]\n"
    )
    return config


def test_what_autotune_finds_for_an_agent_is_what_its_next_start_runs(
    bundles: list[Path], tmp_path: Path
) -> None:
    config = agent_config(tmp_path, bundles[0])
    before = load_agent_config(config)
    assert tuned_agent(before) == before, "nothing was measured yet"
    run(
        agent,
        "autotune",
        *bundles,
        "--config",
        config,
        "--frames",
        5,
        "--threads",
        "1",
        "--frame-size",
        "96x64",
    )
    started = tuned_agent(load_agent_config(config))
    assert (started.bundle, started.threads) == (str(bundles[1]), 1)
    assert started.cameras == before.cameras


def test_what_autotune_finds_for_an_edge_is_what_its_next_start_runs(
    bundles: list[Path], tmp_path: Path
) -> None:
    config = tmp_path / "edge.yaml"
    config.write_text(f"bundle: {bundles[0]}\ndevice: cpu\nthreads: 3\ntuned_file: tuned.json\n")
    run(edge, "autotune", "--config", config, "--frames", 5, "--threads", "1", "--frame-size", "96x64")
    started = tuned_edge(load_edge_config(config))
    assert (started.bundle, started.threads) == (str(bundles[0]), 1), (
        "its own model is tried when none is named"
    )


def test_the_target_is_what_the_cameras_leave_time_for(bundles: list[Path], tmp_path: Path) -> None:
    config = agent_config(tmp_path, bundles[0])
    run(agent, "autotune", "--config", config, "--frames", 5, "--threads", "1", "--frame-size", "96x64")
    assert "within 1600 ms" in json.loads((tmp_path / "tuned.json").read_text())["reason"]


def test_a_configuration_without_a_place_for_it_is_refused(bundles: list[Path], tmp_path: Path) -> None:
    config = agent_config(tmp_path, bundles[0], more="threads: 1")
    with pytest.raises(Malformed, match=r"agent\.yaml: expected a tuned_file"):
        CliRunner().invoke(agent.app, ["autotune", "-c", str(config)], catch_exceptions=False)


def test_neither_a_model_nor_a_configuration_is_refused() -> None:
    with pytest.raises(Malformed, match="expected at least one BUNDLE, or --config"):
        CliRunner().invoke(agent.app, ["autotune"], catch_exceptions=False)


def test_a_measurement_of_another_machine_is_not_used_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tuned.json"
    file.write_text(tuned_text())
    assert find_tuned(file) == TunedModel("zoo:street-student-int8", 2, this_machine())
    file.write_text(tuned_text().replace(this_machine(), "mips, 1 cores"))
    assert find_tuned(file) is None
    assert "holds for mips, 1 cores" in caplog.text


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"chosen": 3}', tuned_text(threads=0), tuned_text(threads="2"), tuned_text(bundle="")],
)
def test_a_tuned_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tuned.json"
    file.write_text(text)
    with pytest.raises(Malformed, match=r"tuned_file tuned.json: expected"):
        find_tuned(file)
