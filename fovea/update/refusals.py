"""What a TUF error means, in plain words: which attack it would be, and what was expected."""

from __future__ import annotations

import re
from typing import Final

from tuf.api.exceptions import (
    BadVersionNumberError,
    DownloadError,
    DownloadHTTPError,
    DownloadLengthMismatchError,
    ExpiredMetadataError,
    LengthOrHashMismatchError,
    RepositoryError,
    UnsignedMetadataError,
)
from tuf.api.serialization import DeserializationError

from fovea.core.errors import FoveaError, Unavailable, UntrustedRelease

_SIGNED_BY: Final = re.compile(r"(?P<role>.+) was signed by (?P<signed>\d+)/(?P<threshold>\d+) keys")


def refusal(error: Exception, url: str) -> FoveaError:
    """The error of ours that a TUF exception stands for; `url` is what was fetched last."""
    file = url.rpartition("/")[2] or "metadata"
    if isinstance(error, DownloadLengthMismatchError):
        return UntrustedRelease(f"endless data: {error}")
    if isinstance(error, DownloadHTTPError):
        return Unavailable(str(error))
    if isinstance(error, DownloadError):
        return Unavailable(f"{file}: {error.__cause__ or error}")
    if isinstance(error, ExpiredMetadataError):
        return UntrustedRelease(
            f"expired: {error}; an old state is being held before this device (freeze), "
            "or it was not signed again in time"
        )
    if isinstance(error, UnsignedMetadataError):
        return UntrustedRelease(_signatures(str(error)))
    if isinstance(error, BadVersionNumberError):
        return UntrustedRelease(_version(str(error), file))
    if isinstance(error, LengthOrHashMismatchError):
        return UntrustedRelease(
            f"mix-and-match: {file} is not the one that was signed for this state: {error}"
        )
    if isinstance(error, DeserializationError):
        return UntrustedRelease(
            f"{file}: expected signed metadata, got something that cannot be read as such"
        )
    if isinstance(error, RepositoryError) and (
        "missing info" in str(error) or "does not contain" in str(error)
    ):
        return UntrustedRelease(f"mix-and-match: a role has gone from the snapshot: {error}")
    return UntrustedRelease(f"{file}: {error}")


def _signatures(said: str) -> str:
    match = _SIGNED_BY.fullmatch(said)
    if match is None:
        return f"signatures: {said}"
    signed, threshold = int(match["signed"]), int(match["threshold"])
    if signed == 0:
        return (
            f"unknown key: {match['role']} is signed by none of the {threshold} or more keys that may sign it"
        )
    return f"below threshold: {match['role']} is signed by {signed} of the {threshold} keys that it takes"


def _version(said: str, file: str) -> str:
    if re.fullmatch(r"Expected .+ v\d+, got v\d+\.", said) or said.startswith("Expected snapshot version"):
        return f"mix-and-match: {file} is not of the version that was signed for this state: {said}"
    if said.startswith("Expected root version"):
        return f"rollback: {said}"
    return f"rollback: an older state than this device has seen: {said}"
