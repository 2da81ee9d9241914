"""Trains one detector with Ultralytics' trainer, at the model's own scale and within a wall-clock budget."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cloud.learning_rate import Horizon, rate_factor
from cloud.train_plan import TrainPlan
from fovea.serving.vendor_env import load_ultralytics

WARMUP_BATCHES = 150
WARM_START_RATE = 0.6  # a warm start begins near a minimum: the full rate would throw part of it away
PROGRESS_FILE = "progress.json"


@dataclass(frozen=True, slots=True)
class TrainRun:
    """One run of a plan: where it reads and writes, what it starts from, how long it may take."""

    plan: TrainPlan
    data_yaml: Path
    out_dir: Path
    device: str = "auto"
    budget_s: float | None = None
    warm_start: Path | None = None
    resumes: bool = False


@dataclass(slots=True)
class Progress:
    """What survives a kill beside the checkpoint: time spent and images seen."""

    elapsed_s: float = 0.0
    images_seen: int = 0


@dataclass(frozen=True, slots=True)
class TrainOutcome:
    """Last weights of a run with the facts that go into its metadata; `metrics` are those of validation."""

    weights: Path
    train_images: int
    epochs: int
    progress: Progress
    metrics: dict[str, float]


def train_arguments(run: TrainRun, device: str) -> dict[str, Any]:
    """Arguments of the Ultralytics trainer: light augmentation, since the renderer already varies everything."""
    plan = run.plan
    rate = plan.learning_rate * (WARM_START_RATE if run.warm_start else 1.0)
    last = run.out_dir / "weights" / "last.pt"
    return {
        "model": str(plan.architecture), "data": str(run.data_yaml), "save_dir": str(run.out_dir),
        "project": str(run.out_dir.parent), "name": run.out_dir.name, "exist_ok": True,
        "resume": str(last) if run.resumes else False,
        "pretrained": str(run.warm_start) if run.warm_start else False,
        "epochs": 10_000 if run.budget_s else plan.epochs, "patience": 0,
        "batch": plan.batch, "nbs": plan.batch, "imgsz": plan.train_width_px, "rect": True,
        "optimizer": "AdamW", "lr0": rate, "momentum": 0.9, "weight_decay": 5e-4, "warmup_epochs": 0.0,
        "mosaic": 0.0, "close_mosaic": 0, "mixup": 0.0, "scale": 0.25, "translate": 0.08, "fliplr": 0.5,
        "hsv_h": 0.01, "hsv_s": 0.3, "hsv_v": 0.2, "erasing": 0.0,
        "amp": "bf16" if device != "cpu" else False, "device": device, "workers": 4,
        "seed": plan.seed, "deterministic": False, "plots": True, "cache": False,
    }  # fmt: skip


def choose_device(wanted: str) -> str:
    """`auto` becomes the first GPU, or the CPU where there is none."""
    if wanted != "auto":
        return wanted
    import torch

    return "0" if torch.cuda.is_available() else "cpu"


def _trainer_class(val_width_px: int) -> Any:
    """Ultralytics' detection trainer with four departures, each explained where it is made."""
    load_ultralytics()
    import torch
    from ultralytics.models.yolo.detect import DetectionTrainer
    from ultralytics.nn.modules.block import ResNetBlock
    from ultralytics.utils.patches import override_configs

    class StreetTrainer(DetectionTrainer):  # type: ignore[misc]
        def build_dataset(self, img_path: str, mode: str = "train", batch: int | None = None) -> Any:
            # Training may use crops; validation always sees whole frames at the scale of inference.
            width = self.args.imgsz if mode == "train" else val_width_px
            with override_configs(self.args, {"imgsz": width}):
                return super().build_dataset(img_path, mode, batch)

        def get_model(self, cfg: Any = None, weights: Any = None, verbose: bool = True) -> Any:
            # Residual blocks start as identity (Goyal et al. 2017): deep nets train from the first step on, and
            # blocks that a warm start has no weights for do not disturb what it learned.
            model = super().get_model(cfg, None, verbose)
            for block in model.modules():
                if isinstance(block, ResNetBlock) and isinstance(block.shortcut, torch.nn.Identity):
                    torch.nn.init.zeros_(block.cv3.bn.weight)
            if weights is not None:
                model.load(weights)
            return model

        def preprocess_batch(self, batch: dict[str, Any]) -> dict[str, Any]:
            # Channels last trains a quarter faster on CPUs too; Ultralytics offers it on CUDA only.
            batch = super().preprocess_batch(batch)
            if self.device.type == "cpu":
                batch["img"] = batch["img"].contiguous(memory_format=torch.channels_last)
            return batch

        def build_optimizer(self, *args: Any, **kwargs: Any) -> Any:
            # One fused pass over the weights instead of a Python loop over tensors: 5 to 10 % of a step on CPUs.
            optimizer = super().build_optimizer(*args, **kwargs)
            for group in optimizer.param_groups:
                group["fused"] = True
            return optimizer

    return StreetTrainer


class Pace:
    """Callbacks that set the rate before each batch, end the run when its time is up and keep its progress."""

    def __init__(self, run: TrainRun, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.run = run
        self.clock_s = clock_s
        self.file = run.out_dir / PROGRESS_FILE
        self.progress = Progress(**json.loads(self.file.read_text())) if run.resumes else Progress()
        self.last_s = clock_s()
        self.batches = self.progress.images_seen // run.plan.batch

    def share(self, trainer: Any) -> float:
        """Share of the run that is over."""
        total = len(trainer.train_loader) * trainer.epochs
        return Horizon(total, self.run.budget_s).progress(self.batches, self.progress.elapsed_s)

    def on_pretrain_routine_end(self, trainer: Any) -> None:
        """Lay the weights out like the images."""
        if trainer.device.type == "cpu":
            import torch

            trainer.model.to(memory_format=torch.channels_last)

    def on_train_batch_start(self, trainer: Any) -> None:
        """Set this batch's learning rate."""
        factor = rate_factor(self.share(trainer), self.batches, WARMUP_BATCHES)
        for group in trainer.optimizer.param_groups:
            group["lr"] = group["initial_lr"] * factor

    def on_train_batch_end(self, trainer: Any) -> None:
        """Count the batch and its time."""
        now_s = self.clock_s()
        self.progress.elapsed_s += now_s - self.last_s
        self.last_s = now_s
        self.progress.images_seen += self.run.plan.batch
        self.batches += 1
        if self.share(trainer) >= 1.0:
            trainer.stop = True

    def on_model_save(self, trainer: Any) -> None:
        """Keep the progress beside the checkpoint that was just written."""
        partial = self.file.with_suffix(".part")
        partial.write_text(json.dumps(asdict(self.progress)))
        partial.replace(self.file)

    def attach(self, trainer: Any) -> None:
        """Register every `on_...` method of this object under its own name."""
        for name in dir(self):
            if name.startswith("on_"):
                trainer.add_callback(name, getattr(self, name))


def train(run: TrainRun) -> TrainOutcome:
    """Train, validate after every epoch, keep the averaged weights in `out_dir/weights/last.pt`.

    Curves lie in `results.csv` and `results.png`. A killed run goes on from its last epoch with `resumes=True`.
    Raises FileNotFoundError where there is nothing to resume.
    """
    last = run.out_dir / "weights" / "last.pt"
    if run.resumes and not last.is_file():  # Ultralytics would go on with the latest other run that it finds
        raise FileNotFoundError(f"{last}: no checkpoint to resume from")
    run.out_dir.mkdir(parents=True, exist_ok=True)
    device = choose_device(run.device)
    trainer = _trainer_class(run.plan.val_width_px)(overrides=train_arguments(run, device))
    # The last weights are the result: by then the rate is at its floor, and choosing the best epoch on a small
    # validation set would choose noise and flatter the reported figure.
    trainer.best = trainer.last
    pace = Pace(run)
    pace.attach(trainer)
    trainer.train()
    metrics = {key: float(value) for key, value in (trainer.metrics or {}).items()}
    return TrainOutcome(
        trainer.last, len(trainer.train_loader.dataset), trainer.epoch + 1, pace.progress, metrics
    )
