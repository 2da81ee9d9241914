"""Pictures in a bucket, spoken to over HTTP as any S3 is: kept, damaged, deleted, away."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cloud.cases.retention import Retention
from cloud.cases.store import CaseStore, StoreAddress
from fovea.core.errors import StoreCorrupt, Unavailable
from tests.full.database_server import free_port
from tests.unit.hard_cases import CAPTURED_AT, hard_case

pytest.importorskip("s3fs", reason="the client of S3 is not installed here (extra `s3`)")
pytest.importorskip("moto.server", reason="the test server of S3 is not installed here (moto[server])")

BUCKET = "a-bucket"


class Bucket:
    """An S3 of its own on 127.0.0.1, that can go away and come back with all that it held."""

    def __init__(self) -> None:
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._server: Any = None

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer("127.0.0.1", self._port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None

    def forget(self) -> None:
        """What earlier tests of this process have put there."""
        request = urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200

    def client(self) -> Any:
        import boto3

        return boto3.client("s3", endpoint_url=self.url, region_name="us-east-1")

    def keys(self) -> list[str]:
        return [item["Key"] for item in self.client().list_objects_v2(Bucket=BUCKET).get("Contents", [])]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    import s3fs

    made = Bucket()
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "a-key"),
        ("AWS_SECRET_ACCESS_KEY", "a-secret"),
        ("AWS_ENDPOINT_URL", made.url),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_MAX_ATTEMPTS", "1"),
    ):
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    made.start()
    made.forget()
    made.client().create_bucket(Bucket=BUCKET)
    yield made
    made.stop()
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def store(bucket: Bucket, tmp_path: Path) -> Iterator[CaseStore]:
    opened = CaseStore.open(
        StoreAddress(f"sqlite:///{tmp_path / 'cases.sqlite'}", f"s3://{BUCKET}/site/cases")
    )
    yield opened
    opened.close()


def test_a_picture_is_kept_in_the_bucket_byte_for_byte(store: CaseStore, bucket: Bucket) -> None:
    case = hard_case()
    assert store.add(case).is_new
    assert not store.add(case).is_new
    found = store.get(case.id)
    assert bucket.keys() == [f"site/cases/{found.image_path}"]
    assert store.load_image(found) == case.jpeg
    assert store.sweep() == 0


def test_a_missing_and_a_damaged_picture_are_told_by_name_and_mended_by_the_next_delivery(
    store: CaseStore, bucket: Bucket
) -> None:
    case = hard_case()
    store.add(case)
    found = store.get(case.id)
    key = f"site/cases/{found.image_path}"
    bucket.client().put_object(Bucket=BUCKET, Key=key, Body=case.jpeg[:-1])
    with pytest.raises(StoreCorrupt, match=f"{case.id[:12]}.*damaged"):
        store.load_image(found)
    bucket.client().delete_object(Bucket=BUCKET, Key=key)
    with pytest.raises(StoreCorrupt, match=f"{case.id[:12]}.*missing"):
        store.load_image(found)
    store.add(case)
    assert store.load_image(found) == case.jpeg


def test_pruning_deletes_from_the_bucket_what_no_row_needs_and_nothing_else(
    store: CaseStore, bucket: Bucket
) -> None:
    bucket.client().put_object(Bucket=BUCKET, Key="somebody/elses", Body=b"x")
    ids = [store.add(hard_case(seed)).id for seed in range(5)]
    store.protect([ids[2]], "golden:yard")
    assert store.prune(Retention(max_bytes=0)).cases == 4
    assert bucket.keys() == [f"site/cases/{store.get(ids[2]).image_path}", "somebody/elses"]
    assert store.prune(Retention(max_bytes=0)).cases == 0
    assert store.add(hard_case(0)).is_new
    assert len(bucket.keys()) == 3


def test_a_bucket_that_is_away_is_unavailable_and_nothing_is_lost_or_half_kept(
    store: CaseStore, bucket: Bucket
) -> None:
    store.add(hard_case(1))
    found = store.get(hard_case(1).id)
    bucket.stop()
    with pytest.raises(Unavailable, match="images"):
        store.add(hard_case(2, captured_at=CAPTURED_AT + timedelta(days=1)))
    with pytest.raises(Unavailable, match="images"):
        store.load_image(found)
    with pytest.raises(Unavailable, match="images"):
        store.prune(Retention(max_bytes=0))
    assert store.count() == 0, "the rows went first; the pictures go when the bucket is back"
    bucket.start()
    assert store.prune(Retention(max_bytes=0)).cases == 0
    assert bucket.keys() == []


def test_a_bucket_that_is_not_there_is_told_and_no_secret_is(bucket: Bucket, tmp_path: Path) -> None:
    store = CaseStore.open(StoreAddress(f"sqlite:///{tmp_path / 'x'}", "s3://no-such-bucket/cases"))
    with pytest.raises(Unavailable, match="images: cannot keep") as refused:
        store.add(hard_case())
    assert "a-secret" not in str(refused.value) and "a-key" not in str(refused.value)
    assert store.count() == 0
    store.close()
