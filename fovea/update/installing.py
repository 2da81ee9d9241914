"""Brings a signed model into the store: room, download, verification, trial. What runs is not touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fovea.core.errors import FoveaError, Incompatible, RejectedError, UntrustedRelease
from fovea.core.release import DesiredState, ModelPin, Phase, TargetFacts
from fovea.runtime.bundle import Bundle
from fovea.runtime.store import BundleStore
from fovea.update.download import DownloadLimits, fetch_file
from fovea.update.floors import Floors
from fovea.update.judging import Machine, check_compat, check_facts
from fovea.update.ports import Surroundings, Trial, Web
from fovea.update.trust import SignedRelease, SignedTarget


class TrialFailed(Exception):
    """A sound file that does not do on this device: the same file will not do tomorrow. Goes no further than the
    updater, which writes it down."""


class Installer:
    """`incoming` has to be on the disk of the store."""

    def __init__(
        self,
        incoming: Path,
        store: BundleStore,
        web: Web,
        trial: Trial,
        machine: Machine,
        limits: DownloadLimits,
        surroundings: Surroundings,
    ) -> None:
        self._incoming = incoming
        self._store = store
        self._web = web
        self._trial = trial
        self._machine = machine
        self._limits = limits
        self._surroundings = surroundings

    def bring(
        self,
        signed: SignedRelease,
        pin: ModelPin,
        desired: DesiredState,
        floors: Floors,
        tell: Callable[[Phase], None],
    ) -> TargetFacts:
        """Puts the model into the store if it is not there, and gives what its signer says of it. `tell` hears of
        each phase. Raises TrialFailed for a model that was tried in vain, and for all else, which may do another
        time, what `SignedRelease.target`, `fovea.update.judging` and `fetch_file` raise."""
        target = signed.target(pin)
        check_facts(target.facts, pin, desired, floors)
        check_compat(target.facts.compat, self._machine)
        if self._store.has(pin.ref) and self._is_whole(pin):
            return target.facts
        path = self._fetch(target, tell)
        try:
            tell(Phase.VERIFYING)
            self._verify(path, pin, target.facts)
            tell(Phase.TRYING)
            self._try(path, desired.probation.max_ms_p95)
        except (RejectedError, TrialFailed):
            path.unlink(missing_ok=True)
            raise
        self._store.adopt(path)
        return target.facts

    def _is_whole(self, pin: ModelPin) -> bool:
        """What was stored once was tried once; what the disk has spoilt since is fetched again."""
        try:
            self._store.get(pin.ref)
        except FoveaError:
            return False
        return True

    def _fetch(self, target: SignedTarget, tell: Callable[[Phase], None]) -> Path:
        self._incoming.mkdir(parents=True, exist_ok=True)
        path = self._incoming / f"{target.wanted.sha256}.fovea"
        for leftover in self._incoming.iterdir():
            if not leftover.name.startswith(path.name):
                leftover.unlink()
        tell(Phase.FETCHING)
        fetch_file(self._web, target.wanted, path, self._limits, self._surroundings)
        return path

    def _verify(self, path: Path, pin: ModelPin, facts: TargetFacts) -> None:
        bundle = Bundle.open(path)
        if bundle.ref != pin.ref:
            raise UntrustedRelease(f"mix-and-match: {pin.target} holds {bundle.ref}, signed is {pin.ref}")
        size = bundle.manifest.input.size
        if (size.height, size.width) != facts.compat.input_hw:
            raise Incompatible(
                f"{pin.ref}: its input is {size.height}x{size.width} px, its signer says "
                f"{facts.compat.input_hw[0]}x{facts.compat.input_hw[1]}"
            )

    def _try(self, path: Path, max_ms: float | None) -> None:
        try:
            self._trial.try_model(path, max_ms)
        except RejectedError as error:
            raise TrialFailed(str(error)) from error
