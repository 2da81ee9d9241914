"""Names the usual wrong files: what a download or a clone leaves behind where a model should be."""

from __future__ import annotations

_LOOKED_AT_BYTES = 512


def explain_wrong_file(data: bytes) -> str | None:
    """What `data` is instead of a bundle or a graph, or None when it is none of the known wrong files."""
    if data.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        return "a Python pickle, which is never loaded here"
    return explain_failed_download(data)


def explain_failed_download(data: bytes) -> str | None:
    """What a download left behind instead of any binary file ("an HTML page, ..."), or None."""
    if not data:
        return "an empty file"
    head = data[:_LOOKED_AT_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return "an HTML or XML page, most likely the error page of a download"
    if head.startswith(b"version https://git-lfs"):
        return "a git-LFS pointer, not the file it points to (run `git lfs pull`)"
    if head.startswith((b'{"', b"{\r", b"{\n", b"[{")):
        return "a JSON text, most likely the error answer of a download"
    if not any(data[:_LOOKED_AT_BYTES]):
        return "a file of zero bytes, most likely a download that reserved its space and stopped"
    return None
