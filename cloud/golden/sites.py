"""Sites: groups of cameras that stand together and are judged together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fovea.core.errors import Malformed, NotFound

DEFAULT = "default"
"""The site of every camera that no other site names."""

_LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Sites:
    """Which cameras are of which site. `patterns` are pairs of a site and the shell patterns of its cameras' names
    (`yard-*`); of several sites that fit a camera, the first has it."""

    patterns: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __post_init__(self) -> None:
        for name, cameras in self.patterns:
            if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable() or name != name.strip():
                raise Malformed(
                    f"site: expected a name of 1 to {_LONGEST_NAME} printable characters, got {name!r:.120}"
                )
            if not cameras or not all(cameras):
                raise Malformed(f"site {name}: expected patterns of camera names, got {list(cameras)!r:.120}")

    @classmethod
    def of(cls, sites: Mapping[str, Sequence[str]]) -> Sites:
        """From a configuration."""
        return cls(tuple((name, tuple(cameras)) for name, cameras in sites.items()))

    @property
    def names(self) -> tuple[str, ...]:
        """All sites, the default one last."""
        named = tuple(name for name, _ in self.patterns if name != DEFAULT)
        return (*named, DEFAULT)

    def site_of(self, camera: str) -> str:
        """The site of a camera."""
        for name, cameras in self.patterns:
            if any(fnmatchcase(camera, pattern) for pattern in cameras):
                return name
        return DEFAULT

    def checked(self, site: str) -> str:
        """`site`, if there is such a one. Raises NotFound, naming those that there are."""
        if site not in self.names:
            raise NotFound(f"site {site!r:.120}: there are {', '.join(self.names)}")
        return site
