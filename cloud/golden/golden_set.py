"""The golden set of each site: which frames people are asked to label, how many they have, and what follows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import select

from cloud.database import reading, writing
from cloud.golden.picking import Pick
from cloud.golden.sites import Sites
from cloud.golden.tables import GoldenFrameRow
from cloud.labels.label import PersonLabel
from cloud.labels.store import LabelStore
from fovea.core.errors import Malformed


class FrameState(StrEnum):
    """wanted: nobody has labelled it yet. done: a person has. unusable: a person cannot tell what is in it."""

    WANTED = "wanted"
    DONE = "done"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class GoldenSettings:
    """frames: how many are picked for each site. enough: how many people have to have labelled before a new model of
    the site may do more than run in the shadow."""

    frames: int = 200
    enough: int = 150

    def __post_init__(self) -> None:
        if not 1 <= self.enough <= self.frames:
            raise Malformed(f"golden enough: expected 1 to frames ({self.frames}), got {self.enough} frames")


@dataclass(frozen=True, slots=True, eq=False)
class GoldenFrame:
    """One frame of a golden set; `label` is what a person said."""

    case_id: str
    site: str
    stratum: str
    wanted_at: datetime
    label: PersonLabel | None

    @property
    def state(self) -> FrameState:
        if self.label is None:
            return FrameState.WANTED
        return FrameState.DONE if self.label.is_usable else FrameState.UNUSABLE


@dataclass(frozen=True, slots=True)
class GoldenState:
    """Where a site stands. Until people have labelled `enough` frames nothing that no model made is known of it."""

    site: str
    wanted: int
    done: int
    unusable: int
    enough: int

    @property
    def is_shadow_only(self) -> bool:
        """True: no new model may be promoted for this site."""
        return self.done < self.enough

    def __str__(self) -> str:
        if not self.is_shadow_only:
            return f"site {self.site}: {self.done} golden frames are labelled; new models can be judged"
        if not self.wanted + self.done + self.unusable:
            return f"site {self.site}: shadow only, it has no golden frames yet (`fovea golden start`)"
        return (
            f"site {self.site}: shadow only, {self.done} of {self.enough} golden frames are labelled "
            "(`fovea golden label`)"
        )


class GoldenSet:
    """The golden frames of all sites, in the database of the labels. Used from any thread."""

    def __init__(
        self, labels: LabelStore, sites: Sites = Sites(), settings: GoldenSettings = GoldenSettings()
    ) -> None:
        self._labels = labels
        self.sites = sites
        self.settings = settings

    def want(self, site: str, picks: Iterable[Pick]) -> int:
        """Asks people for these frames; those that are wanted already stay as they are. Says how many are new.
        Raises NotFound for no such site."""
        self.sites.checked(site)
        new = 0
        with writing(self._labels.engine) as session:
            for pick in picks:
                if session.get(GoldenFrameRow, pick.case_id) is None:
                    session.add(
                        GoldenFrameRow(
                            case_id=pick.case_id,
                            site=site,
                            wanted_at=self._labels.now(),
                            stratum=pick.stratum,
                        )
                    )
                    new += 1
        return new

    def frames(self, site: str | None = None) -> tuple[GoldenFrame, ...]:
        """The frames of a site, or of all, in the order in which they were picked. Raises NotFound."""
        question = select(GoldenFrameRow).order_by(
            GoldenFrameRow.site, GoldenFrameRow.wanted_at, GoldenFrameRow.stratum, GoldenFrameRow.case_id
        )
        if site is not None:
            question = question.where(GoldenFrameRow.site == self.sites.checked(site))
        with reading(self._labels.engine) as session:
            rows: Sequence[GoldenFrameRow] = session.scalars(question).all()
        said = self._labels.find_persons(row.case_id for row in rows)
        return tuple(
            GoldenFrame(row.case_id, row.site, row.stratum, row.wanted_at, said.get(row.case_id))
            for row in rows
        )

    def golden_state(self, site: str) -> GoldenState:
        """Where a site stands. Raises NotFound."""
        states = [frame.state for frame in self.frames(site)]
        return GoldenState(
            site,
            wanted=states.count(FrameState.WANTED),
            done=states.count(FrameState.DONE),
            unusable=states.count(FrameState.UNUSABLE),
            enough=self.settings.enough,
        )

    def states(self) -> tuple[GoldenState, ...]:
        """Where every site stands."""
        return tuple(self.golden_state(site) for site in self.sites.names)
