"""Makes a bundled street model from nothing: render, train, export; one script with one dial."""

import argparse
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cloud.export_cut import CutExport, export_cut, largest_difference
from cloud.street_dataset import build_dataset
from cloud.street_trainer import TrainOutcome, TrainRun, train
from cloud.train_plan import MODELS, TrainPlan, plan_for


def export_all(plan: TrainPlan, weights: Path, out: Path) -> dict[str, dict[str, Any]]:
    """Export `weights` as 32-bit, and for server models also with 16-bit weights; returns facts by file name."""
    facts: dict[str, dict[str, Any]] = {}
    for half in (False, True) if plan.exports_half else (False,):
        path = out / f"{plan.artefact}{'.fp16' if half else ''}.onnx"
        export = export_cut(weights, path, plan.export_hw_px, half)
        facts[path.name] = export_facts(export) | {
            "difference_from_torch": largest_difference(export, weights)
        }
    return facts


def export_facts(export: CutExport) -> dict[str, Any]:
    """What a bundle has to know of an export, with its digest and size."""
    data = export.path.read_bytes()
    return {
        "sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data), "labels": list(export.labels),
        "strides": list(export.strides), "reg_max": export.reg_max, "input_hw": list(export.input_hw),
    }  # fmt: skip


def count_parameters(weights: Path) -> int:
    """Number of trainable values in a checkpoint."""
    from fovea.serving.vendor_env import load_ultralytics

    load_ultralytics()
    from ultralytics import YOLO

    return sum(int(p.numel()) for p in YOLO(str(weights)).model.parameters())


def run_facts(run: TrainRun, outcome: TrainOutcome, exports: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The metadata of a trained model: enough to judge it and to make it again."""
    dataset = run.data_yaml.with_name("dataset.json")
    plan = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(run.plan).items()}
    return {
        "model": run.plan.artefact,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "parameters": count_parameters(outcome.weights),
        "train_images": outcome.train_images,
        "epochs": outcome.epochs,
        "images_seen": outcome.progress.images_seen,
        "train_minutes": round(outcome.progress.elapsed_s / 60, 1),
        "val": {k: round(v, 4) for k, v in outcome.metrics.items()},
        "warm_start": str(run.warm_start) if run.warm_start else None,
        "seed": run.plan.seed,
        "dataset": json.loads(dataset.read_text()) if dataset.exists() else str(run.data_yaml),
        "plan": plan,
        "exports": exports,
    }


def data_for(plan: TrainPlan, root: Path, processes: int) -> Path:
    """Render what the plan needs and is not there yet; returns the path of `data.yaml`."""
    paths = build_dataset(root, [plan.view], plan.conditions, plan.train, plan.val, processes)
    return paths[plan.view.name]


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line of this script."""
    parser = argparse.ArgumentParser(prog="cloud.pretrain", description=__doc__)
    parser.add_argument("--model", required=True, choices=MODELS)
    parser.add_argument(
        "--dial", type=float, default=1.0, help="scales frames and epochs; 1 fits one CPU core"
    )
    parser.add_argument("--minutes", type=float, help="wall-clock budget; the learning rate falls to fit it")
    parser.add_argument("--data", type=Path, help="data.yaml that is ready, or a folder to render into")
    parser.add_argument("--out", type=Path, help="folder of this run (default out/zoo/runs/MODEL)")
    parser.add_argument("--resume", action="store_true", help="go on from the last epoch of a killed run")
    parser.add_argument("--warm-start", type=Path, help="weights (.pt) to begin from where shapes match")
    parser.add_argument("--device", default="auto", help="auto, cpu, or a CUDA number")
    parser.add_argument("--processes", type=int, default=1, help="renderers side by side")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Render, train, export and write `facts.json` beside the exports."""
    args = parse_arguments(argv)
    plan = plan_for(args.model, args.dial, args.seed)
    root: Path = args.data or Path("out/zoo/datasets") / plan.artefact
    run = TrainRun(
        plan=plan,
        data_yaml=root if root.suffix == ".yaml" else data_for(plan, root, args.processes),
        out_dir=(args.out or Path("out/zoo/runs") / plan.artefact).resolve(),
        device=args.device,
        budget_s=args.minutes * 60 if args.minutes else None,
        warm_start=args.warm_start,
        resumes=args.resume,
    )
    outcome = train(run)
    exports = export_all(plan, outcome.weights, run.out_dir)
    facts = run_facts(run, outcome, exports)
    (run.out_dir / "facts.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({"model": plan.artefact, "val": facts["val"], "exports": sorted(exports)}))


if __name__ == "__main__":
    main()
