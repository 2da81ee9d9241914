"""What an agent is told about updates beyond what every device is told."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fovea.process.config_parts import Part
from fovea.process.update_config import UpdatesConfig


class ShadowConfig(Part):
    """A candidate that looks beside the model which runs; its answers are only compared."""

    most_share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """of the frames at most, whatever is ordered; frames that are asked about come on top"""
    busy_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    """of the time it may look; it rests in between, and frames that come meanwhile are skipped"""
    waiting: Annotated[int, Field(ge=1, le=64)] = 4
    """frames that were asked about may wait for it, at most; the oldest are skipped"""


class AgentUpdatesConfig(UpdatesConfig):
    """Signed models from a release repository, tried before they run. `bundle` is then the factory model: the one of
    the first start, and the last way back. `folder` has to outlive updates of the system."""

    shadow: ShadowConfig = ShadowConfig()
    """what a candidate may take while it looks beside the model that runs"""
