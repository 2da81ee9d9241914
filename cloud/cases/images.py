"""The pictures of the case store: files named by their digest, on disk or in a bucket."""

from __future__ import annotations

from cloud.kept_files import KeptFiles

_ENDINGS = {"JPEG": "jpg", "PNG": "png", "WebP": "webp", "BMP": "bmp", "GIF": "gif"}


class CaseImages(KeptFiles):
    """See KeptFiles."""

    def __init__(self, url: str) -> None:
        """`url` is a folder, or what fsspec knows (s3://BUCKET/PREFIX). Raises Incompatible for an unknown kind."""
        super().__init__(url, "images")

    def path_of(self, digest: str, image_format: str) -> str:
        """Where a picture belongs, below the root: `ab/abcd....jpg`."""
        return f"{digest[:2]}/{digest}.{_ENDINGS.get(image_format, 'img')}"

    def named(self, path: str, digest: str) -> str:
        return f"case {digest[:12]}: its picture images/{path}"
