"""Tiers that prove themselves to each other, and what is said when one does not."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from fovea.core.errors import Unavailable
from fovea.link.encoding import PixelEncoding
from fovea.link.link import LinkStatus
from fovea.link.remote_detector import RemoteDetector, RemoteSettings
from fovea.link.upstream import Upstream, UpstreamSettings
from fovea.serving.server import ServerSettings
from protos.calls import DetectQuestion
from protos.tls import Pems, server_credentials
from tests.builders import scene
from tests.certificates import Authority
from tests.contract.serving_thread import served
from tests.fakes import FakeDetector

WAIT_S = 20.0


class Tiers(NamedTuple):
    """Certificates of a server, of a client of the same authority, and of one of another."""

    server: Pems
    client: Pems
    stranger: Pems


@pytest.fixture(scope="module")
def tiers(tmp_path_factory: pytest.TempPathFactory) -> Tiers:
    ours = Authority(tmp_path_factory.mktemp("ours"))
    others = Authority(tmp_path_factory.mktemp("others"))
    return Tiers(ours.pems(), ours.pems(), others.pems())


@pytest.fixture
def secure(tiers: Tiers) -> ServerSettings:
    return ServerSettings(credentials=server_credentials(tiers.server))


def wait_until(holds: Callable[[], bool]) -> None:
    ends_s = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < ends_s
        time.sleep(0.01)


@pytest.mark.parametrize("encoding", [PixelEncoding.AUTO, PixelEncoding.RAW])
def test_tiers_of_one_authority_understand_each_other_as_without_tls(
    encoding: PixelEncoding, tiers: Tiers, secure: ServerSettings
) -> None:
    pixels = scene(40, 50)
    with served(FakeDetector(), secure) as server:
        remote = RemoteDetector.connect(
            server.address, RemoteSettings(WAIT_S, encoding=encoding, tls=tiers.client)
        )
        [far] = remote.detect([pixels])
        remote.close()
    [near] = FakeDetector().detect([pixels])
    np.testing.assert_array_equal(far.detections.boxes_xyxy, near.detections.boxes_xyxy)
    np.testing.assert_array_equal(far.detections.scores, near.detections.scores)


def test_who_is_of_another_authority_is_not_answered_on_either_side(
    tiers: Tiers, secure: ServerSettings
) -> None:
    unknown_to_server = replace(tiers.stranger, ca=tiers.server.ca)
    server_unknown = replace(tiers.client, ca=tiers.stranger.ca)
    with served(FakeDetector(), secure) as server:
        for pems in (tiers.stranger, unknown_to_server, server_unknown, None):
            with pytest.raises(Unavailable):
                RemoteDetector.connect(server.address, RemoteSettings(5.0, tls=pems))
        remote = RemoteDetector.connect(server.address, RemoteSettings(WAIT_S, tls=tiers.client))
        assert len(remote.detect([scene()])) == 1
        remote.close()
    with served(FakeDetector()) as plain, pytest.raises(Unavailable):
        RemoteDetector.connect(plain.address, RemoteSettings(5.0, tls=tiers.client))


def test_an_upstream_goes_up_with_the_right_certificate(tiers: Tiers, secure: ServerSettings) -> None:
    with served(FakeDetector(), secure) as server:
        upstream = Upstream(server.address, UpstreamSettings(tls=tiers.client))
        wait_until(lambda: upstream.state.status is LinkStatus.UP)
        image = upstream.encode(scene())
        assert isinstance(image, np.ndarray), "raw within the machine, also with TLS"
        assert upstream.ask(DetectQuestion(image), WAIT_S).revision == 1
        upstream.close()


def test_an_upstream_with_the_wrong_one_is_down_says_why_and_is_not_thrown_out(
    tiers: Tiers, secure: ServerSettings
) -> None:
    nonsense = Pems(*(b"-----BEGIN %s-----\nnonsense\n-----END %s-----\n" % (kind, kind) for kind in KINDS))
    with served(FakeDetector(), secure) as server:
        for pems, told in ((tiers.stranger, "CERTIFICATE_VERIFY_FAILED"), (nonsense, "")):
            upstream = Upstream(server.address, UpstreamSettings(tls=pems, check_timeout_s=1.0))
            wait_until(lambda upstream=upstream: "not asked yet" not in refusal_of(upstream))  # type: ignore[misc]
            assert told in refusal_of(upstream)
            assert not upstream.state.is_up
            upstream.close()


KINDS = (b"CERTIFICATE", b"CERTIFICATE", b"PRIVATE KEY")


def refusal_of(upstream: Upstream) -> str:
    with pytest.raises(Unavailable) as told:
        upstream.ask(DetectQuestion(scene()), 1.0)
    return str(told.value)


def test_no_key_is_shown_by_settings_that_hold_one(tiers: Tiers) -> None:
    for settings in (UpstreamSettings(tls=tiers.client), RemoteSettings(tls=tiers.client)):
        assert "PRIVATE" not in repr(settings)
