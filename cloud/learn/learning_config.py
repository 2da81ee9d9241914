"""What the cloud is told about learning: whose students, how long a round trains, and when one may be judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from cloud.learn.triggers_config import TriggersConfig
from fovea.process.config_parts import BundleName, FilePath, Part, resolved_bundle


class LearningConfig(Part):
    """Rounds of learning: cases become a better camera model (`fovea loop run`)."""

    family: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,59}$")] = "street-student"
    """the family of camera models in the registry"""
    student: BundleName = "zoo:street-student-fp32"
    """the FP32 model that a family begins with, where the registry knows none yet"""
    champion: BundleName = "zoo:street-student-int8"
    """the INT8 model made from it, which the cameras run to begin with"""
    folder: FilePath = "rounds"
    """holds a folder for each round"""
    mode: Literal["none", "pseudo", "pseudo_kd"] = "pseudo_kd"
    """what of the teacher a student gets: nothing, its labels, or also its doubts"""
    minutes: Annotated[float, Field(gt=0, le=10_000)] = 4.0
    """of training in each round"""
    new_cases: Annotated[int, Field(ge=1, le=1_000_000)] = 300
    """cases at most that show what is new"""
    replay_cases: Annotated[int, Field(ge=0, le=1_000_000)] = 300
    """cases at most that keep the past in mind"""
    recipes: Annotated[int, Field(ge=1, le=50)] = 4
    """INT8 recipes that are tried at most"""
    threads: Annotated[int, Field(ge=1, le=256)] = 1
    """of the training"""
    tracking: bool = True
    """record each training in MLflow, in the folder of rounds"""
    min_golden_frames: Annotated[int, Field(ge=1)] = 80
    """golden frames that judge (three fifths of those that people have labelled do) before a model can be promoted"""
    min_new_frames: Annotated[int, Field(ge=1)] = 30
    """of them, such that show what the round was to teach"""
    triggers: TriggersConfig | None = None
    """when rounds begin by themselves; only by hand (`fovea loop run`) when it is left out"""

    def resolved(self, folder: Path) -> LearningConfig:
        """The same with paths that do not depend on the current folder."""
        return self.model_copy(
            update={
                "student": resolved_bundle(self.student, folder),
                "champion": resolved_bundle(self.champion, folder),
                "folder": str(folder / self.folder),
            }
        )
