"""What each part of the loop gives: a student that knows only day meets another condition, taught in three ways."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from calibration.evaluate import Interval, MatchTable, compare, match, report
from calibration.predict import see
from cloud.learn.dataset import LabelledImage, Origin, Snapshot
from cloud.learn.distil import DistilRun, Mode, distil
from cloud.learn.street_cases import STREET_IDS, StreetShare, as_evaluated, labelled_by_teacher, street_images
from fovea.core.labels import LabelSet
from fovea.runtime.bundle import Bundle
from fovea.runtime.onnx_detector import OnnxDetector
from fovea.zoo.catalogue import path_of

FIRST_CLIP = 9000
"""Training clips from here on belong to this script: no bundled model was trained or fitted on them."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """Frames of each kind: of the new condition and of day labelled by the teacher, and with true labels of both;
    two frames a clip. `val_per_clip` frames of each of the 12 val clips of both conditions are evaluated."""

    new: int = 300
    replay: int = 300
    golden: int = 40
    val_per_clip: int = 4


@dataclass(frozen=True, slots=True)
class End:
    """When a training is over: after minutes of wall clock, or after so many turns through its images."""

    minutes: float | None = 5.0
    epochs: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One student: AP on the new condition and on day, and the difference to the student before (paired by clip)."""

    name: str
    new: float
    new_gain: Interval | None
    day: float
    day_gain: Interval | None
    minutes: float
    images_seen: float


def snapshot_of(
    folder: Path, condition: str, amounts: Amounts, teacher: Bundle, labels: LabelSet
) -> Snapshot:
    """Renders and labels the data set of one ablation."""
    detector = OnnxDetector.open(teacher, "auto")
    try:
        return Snapshot.write(folder, _images(folder, condition, amounts, detector, labels), labels)
    finally:
        detector.close()


def _images(
    folder: Path, condition: str, amounts: Amounts, teacher: OnnxDetector, labels: LabelSet
) -> Iterator[LabelledImage]:
    frames = folder / "frames"
    for origin, name, count, first in (
        (Origin.NEW, condition, amounts.new, FIRST_CLIP),
        (Origin.REPLAY, "day", amounts.replay, FIRST_CLIP),
    ):
        for image in street_images(frames, StreetShare("train", name, first, count // 2, 2), origin):
            yield labelled_by_teacher(image, teacher, labels)
    for name in (condition, "day"):
        share = StreetShare("train", name, FIRST_CLIP + 5000, amounts.golden // 4, 2)
        yield from street_images(frames, share, Origin.GOLDEN)


class Judge:
    """Evaluates students on the val clips of the new condition and of day, against the one before."""

    def __init__(self, folder: Path, condition: str, per_clip: int) -> None:
        self._frames = {
            name: [
                as_evaluated(image)
                for image in street_images(folder, StreetShare("val", name, 0, 12, per_clip), Origin.GOLDEN)
            ]
            for name in (condition, "day")
        }

    def tables(self, bundle: Bundle) -> list[MatchTable]:
        """Matches on the new condition, and on day."""
        detector = OnnxDetector.open(bundle, "cpu")
        try:
            return [match(list(see(detector, frames)), STREET_IDS) for frames in self._frames.values()]
        finally:
            detector.close()


def ablation(
    out: Path, condition: str, amounts: Amounts, end: End, modes: Iterable[Mode], seeds: Sequence[int]
) -> list[Row]:
    """A row for the student before, one for its teacher, and one for each mode and seed. What is there is reused."""
    student, teacher = Bundle.open(path_of("street-student-day-fp32")), Bundle.open(path_of("street-cloud"))
    labels = student.manifest.label_set
    started_s = time.monotonic()
    snapshot = snapshot_of(out / f"{condition}-data", condition, amounts, teacher, labels)
    print(f"{len(snapshot)} images, {time.monotonic() - started_s:.0f} s", flush=True)
    judge = Judge(out / f"{condition}-data" / "frames", condition, amounts.val_per_clip)
    before = judge.tables(student)
    rows = [Row("before", report(before[0]).ap, None, report(before[1]).ap, None, 0.0, 0.0)]
    of_teacher = judge.tables(replace_tta(teacher))
    rows.append(Row("teacher", report(of_teacher[0]).ap, None, report(of_teacher[1]).ap, None, 0.0, 0.0))
    for mode in modes:
        for seed in seeds:
            run = DistilRun(
                student, snapshot, out / f"{condition}-{mode}-{seed}", teacher, mode,
                minutes=end.minutes, epochs=end.epochs, seed=seed,
            )  # fmt: skip
            print(f"{mode}, seed {seed}", flush=True)
            outcome = distil(run, note=_say)
            after = judge.tables(outcome.bundle)
            gains = [compare(a, b) for a, b in zip(after, before, strict=True)]
            spent, seen = (float(outcome.facts[f"distil.{name}"]) for name in ("minutes", "images_seen"))
            values = [report(table).ap for table in after]
            rows.append(Row(f"{mode} (seed {seed})", values[0], gains[0], values[1], gains[1], spent, seen))
            print(line_of(rows[-1]), flush=True)
    return rows


def _say(line: str) -> None:
    print(f"  {line}", flush=True)


def replace_tta(bundle: Bundle) -> Bundle:
    """The bundle without its second look: one pass over the frame, as a student has."""
    return bundle.with_parts({}, tta=())


def line_of(row: Row) -> str:
    """A row as a line of a Markdown table."""
    gains = [
        "" if g is None else f"{g.value:+.3f} ({g.low:+.3f} to {g.high:+.3f})"
        for g in (row.new_gain, row.day_gain)
    ]
    return (
        f"| {row.name} | {row.new:.3f} | {gains[0]} | {row.day:.3f} | {gains[1]} | "
        f"{row.images_seen:.0f} | {row.minutes:.1f} |"
    )


def table_of(rows: Sequence[Row], condition: str) -> str:
    """All rows as a Markdown table."""
    head = f"| student | AP {condition} | gain | AP day | gain | images seen | minutes |\n{'|---' * 7}|"
    return "\n".join([head, *map(line_of, rows)])


def main(argv: Sequence[str] | None = None) -> None:
    """Run an ablation and print its table; frames, labels, checkpoints and `ablation.json` are kept in --out."""
    sizes = Amounts()
    parser = argparse.ArgumentParser(prog="cloud.learn.ablation", description=main.__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/ablation"))
    parser.add_argument("--condition", default="night")
    parser.add_argument("--modes", nargs="+", type=Mode, choices=list(Mode), default=list(Mode))
    parser.add_argument(
        "--minutes", type=float, help="training time of each student; 5 unless --epochs is given"
    )
    parser.add_argument("--epochs", type=float, help="turns of each student through its images")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    for name, value in asdict(sizes).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    args = parser.parse_args(argv)
    amounts = replace(sizes, **{name: getattr(args, name) for name in asdict(sizes)})
    end = End(args.minutes, args.epochs) if args.minutes or args.epochs else End()
    rows = ablation(args.out, args.condition, amounts, end, args.modes, args.seeds)
    (args.out / "ablation.json").write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    print(table_of(rows, args.condition))


if __name__ == "__main__":
    main()
