"""The dials of a distillation, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field

from cloud.learn.batches import SHARES
from cloud.learn.dataset import Origin
from cloud.learn.pictures import Augmentation
from fovea.core.errors import Malformed


@dataclass(frozen=True, slots=True)
class DistilSettings:
    """How a student is trained.

    `rate` is the peak of the cosine. `raw_gain`, `candidate_gain` and `relation_gain` weigh the three distillation
    losses (see `cloud.learn.kd_losses`) against the detection loss. The teacher looks at `most_looks` images at most,
    new ones first: a look of the bundled cloud model costs as much CPU as eight training images. `calm_share` is the
    last part of the run, in which pictures are no longer moved or recoloured.
    """

    batch: int = 16
    rate: float = 6e-4
    weight_decay: float = 5e-4
    warmup_steps: int = 30
    average_over_steps: int = 60
    largest_gradient: float = 10.0
    shares: dict[Origin, float] = field(default_factory=lambda: dict(SHARES))
    augmentation: Augmentation = field(default_factory=Augmentation)
    calm_share: float = 0.15
    raw_gain: float = 1.0
    candidate_gain: float = 0.5
    relation_gain: float = 2.0
    places: int = 64
    most_looks: int = 400
    val_images: int = 96
    validations: int = 10
    checkpoint_every_s: float = 20.0

    def __post_init__(self) -> None:
        for name in ("batch", "average_over_steps", "places", "validations"):
            if getattr(self, name) < 1:
                raise Malformed(f"distillation {name}: expected 1 or more, got {getattr(self, name)}")
        for name in ("rate", "largest_gradient", "checkpoint_every_s"):
            if not getattr(self, name) > 0:
                raise Malformed(f"distillation {name}: expected more than 0, got {getattr(self, name)}")
        if not 0 <= self.calm_share <= 1:
            raise Malformed(f"distillation calm_share: expected 0 to 1, got {self.calm_share}")
        if min(self.shares.values(), default=-1.0) < 0:
            raise Malformed("distillation shares: expected a share of 0 or more for each origin")
