"""What a street model is trained on and for how long, as values: one dial scales frames and epochs together."""

from dataclasses import dataclass
from pathlib import Path

from cloud.street_dataset import VIEWS, Amount, View
from fovea.sim.conditions import CONDITIONS

ARCHITECTURES = Path(__file__).parent / "architectures"
MODELS = ("student", "student-day", "edge", "cloud")


@dataclass(frozen=True, slots=True)
class TrainPlan:
    """Everything that decides a training run; sizes are pixels, `export_hw_px` is (height, width)."""

    model: str
    architecture: Path
    view: View
    conditions: tuple[str, ...]
    train: Amount
    val: Amount
    epochs: int
    batch: int
    train_width_px: int
    val_width_px: int
    export_hw_px: tuple[int, int]
    exports_half: bool
    learning_rate: float
    seed: int = 0

    @property
    def artefact(self) -> str:
        """File stem of what comes out, such as `street-edge`."""
        return f"street-{self.model}"


def plan_for(model: str, dial: float = 1.0, seed: int = 0) -> TrainPlan:
    """The plan of one of `MODELS`. At dial 1 it fits an hour or two of one CPU core; 10 suits a GPU.

    Frames and epochs both grow with the square root of the dial, so the images seen grow with the dial itself.
    Raises ValueError for an unknown model or a dial that is not positive.
    """
    if model not in MODELS:
        raise ValueError(f"model: expected one of {', '.join(MODELS)}, got {model!r}")
    if not dial > 0:
        raise ValueError(f"dial: expected a positive number, got {dial}")
    is_day = model == "student-day"
    family = "student" if is_day else model
    conditions = ("day",) if is_day else tuple(CONDITIONS)
    clips, epochs, batch, rate = {
        "student": (100, 10, 8, 1.5e-3), "student-day": (300, 10, 8, 1.5e-3),
        "edge": (200, 4, 8, 1.5e-3), "cloud": (200, 2, 8, 1.5e-3),
    }[model]  # fmt: skip
    view = VIEWS[family]
    width = view.frame_wh_px[0]
    return TrainPlan(
        model=model,
        architecture=ARCHITECTURES / f"street-{family}.yaml",
        view=view,
        conditions=conditions,
        train=Amount(max(2, round(clips * dial**0.5)), 10 if family == "student" else 6),
        val=Amount(12, 6) if is_day else Amount(6, 2),
        epochs=max(1, round(epochs * dial**0.5)),
        batch=batch,
        train_width_px=view.crop_wh_px[0] if view.crop_wh_px else width,
        val_width_px=width,
        export_hw_px={"student": (192, 320), "edge": (352, 608), "cloud": (544, 960)}[family],
        exports_half=family != "student",
        learning_rate=rate,
        seed=seed,
    )
