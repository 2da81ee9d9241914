"""What `fovea release status` says of a repository."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloud.release.keys import KeyFolder
from cloud.release.live import families_of, groups_of, signers_of

if TYPE_CHECKING:
    from cloud.release.live import Live
    from cloud.release.repository import Repository, Signing


def facts_of(repository: Repository, online: Path) -> dict[str, Any]:
    """Roles, models, groups, and what waits for signatures, as JSON can hold them."""
    live = repository.live()
    waiting = repository.waiting()
    states = [each for each in map(repository.desired, groups_of(live)) if each]
    models = [each for family in families_of(live) for each in repository.models(family)]
    return {
        "roles": [_role_facts(role, metadata, live, online) for role, metadata in live.all_roles()],
        "models": [
            {
                "target": each.pin.target,
                "release": each.counter,
                "released": time_text(each.released_at),
                "devices": ", ".join(each.compat.device_classes) or "all",
            }
            for each in models
        ],
        "groups": [
            {
                "group": each.group,
                "serial": each.serial,
                "runs": str(each.champion.ref),
                "stage": each.stage.value,
                "expires": time_text(each.expires_at),
            }
            for each in states
        ],
        "waiting": waiting_text(waiting) if waiting else None,
    }


def _role_facts(role: str, metadata: Any, live: Live, online: Path) -> dict[str, Any]:

    needed, known = signers_of(role, live.root.signed, live.targets.signed)
    here = KeyFolder(online)
    shown = [f"{keyid[:16]}{' (here)' if here.has(role, keyid) else ''}" for keyid in known]
    told = f"{needed.threshold} of {', '.join(shown)}" if len(shown) > 1 else shown[0]
    return {
        "role": role,
        "version": metadata.signed.version,
        "expires": time_text(metadata.signed.expires),
        "signed by": told,
    }


def waiting_text(signing: Signing) -> str:
    """A change and the signatures that it still needs."""
    return f"{signing.why}; still {', and '.join(map(str, signing.missing)) or 'to be published'}"


def time_text(instant: datetime) -> str:
    """To the minute, in UTC."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
