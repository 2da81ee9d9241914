"""The labelling page over HTTP: one page, its files, and a small JSON interface to a desk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, FileSystemLoader, select_autoescape

from cloud.console.access import PAGE_HEADER, Access, Asked
from cloud.console.desk import Desk
from fovea.core.errors import (
    FoveaError,
    Malformed,
    NotFound,
    RejectedError,
    RetryableError,
    TooLarge,
)
from fovea.runtime.image_header import read_header

_HERE = Path(__file__).parent
_MOST_BODY_BYTES = 1_000_000
_TYPES = {
    "JPEG": "image/jpeg",
    "PNG": "image/png",
    "WebP": "image/webp",
    "BMP": "image/bmp",
    "GIF": "image/gif",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def create_app(desk: Desk, access: Access) -> FastAPI:
    """The page over a desk, for whoever has the token. Nothing runs until a server is given it."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    templates = Environment(loader=FileSystemLoader(_HERE / "templates"), autoescape=select_autoescape())

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = _refusal(request, access) or await call_next(request)
        response.headers.update(_HEADERS)
        return response

    @app.exception_handler(FoveaError)
    def tell(_request: Request, error: FoveaError) -> Response:
        return _told(_status(error), str(error))

    @app.get("/")
    def page(request: Request, token: str | None = None) -> Response:
        if token is not None:
            return _signed_in(request, access)
        html = templates.get_template("label.html.j2").render(
            desk=desk, classes=desk.classes(), page=access.page
        )
        return Response(html, media_type="text/html; charset=utf-8")

    @app.get("/api/frames")
    def frames() -> list[dict[str, Any]]:
        return desk.entries()

    @app.get("/api/frames/{case_id}")
    def frame(case_id: str) -> dict[str, Any]:
        return desk.sheet(case_id)

    @app.get("/api/frames/{case_id}/picture")
    def picture(case_id: str) -> Response:
        data = desk.picture(case_id)
        kind = _TYPES.get(read_header(data).format, "application/octet-stream")
        return Response(data, media_type=kind)

    @app.put("/api/frames/{case_id}")
    def save(case_id: str, said: Annotated[Any, Body()]) -> Any:
        body = _object(said, {"boxes", "by"})
        return desk.save(case_id, body.get("boxes"), _name(body))

    @app.post("/api/frames/{case_id}/refuse")
    def refuse(case_id: str, said: Annotated[Any, Body()]) -> Any:
        return desk.refuse(case_id, _name(_object(said, {"by"})))

    app.mount("/static", StaticFiles(directory=_HERE / "static"), name="static")
    return app


def cookie_of(request: Request) -> str:
    """One for each port: browsers do not tell the ports of a machine apart."""
    return f"fovea_label_{request.url.port or 0}"


def _refusal(request: Request, access: Access) -> Response | None:
    headers = request.headers
    if request.url.path == "/" and request.method == "GET" and access.serves(headers.get("host")):
        if access.admits(request.query_params.get("token")):
            return None
        if "token" in request.query_params:
            return _told(401, "that is not the token of this page")
    asked = Asked(
        request.method,
        headers.get("host"),
        headers.get("origin"),
        request.cookies.get(cookie_of(request)),
        headers.get(PAGE_HEADER),
    )
    told = access.find_refusal(asked)
    if told is not None:
        return _told(403, told)
    if request.method in ("PUT", "POST"):
        # Without a length a body could be endless.
        length = headers.get("content-length", "")
        if not length.isdecimal():
            return _told(411, "expected a body with its length")
        if int(length) > _MOST_BODY_BYTES:
            return _told(413, f"expected at most {_MOST_BODY_BYTES} bytes")
    return None


def _signed_in(request: Request, access: Access) -> Response:
    """The token goes out of the address bar, and into a cookie that scripts cannot read."""
    response = RedirectResponse("/", status_code=303)
    response.set_cookie(
        cookie_of(request), access.session, httponly=True, samesite="strict", secure=access.scheme == "https"
    )
    return response


def _object(said: Any, keys: set[str]) -> dict[str, Any]:
    if not isinstance(said, dict) or not set(said) <= keys:
        raise Malformed(f"expected an object with {' and '.join(sorted(keys))}")
    return said


def _name(body: dict[str, Any]) -> str:
    by = body.get("by", "")
    if not isinstance(by, str):
        raise Malformed("by: expected a name")
    return by


def _status(error: FoveaError) -> int:
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, TooLarge):
        return 413
    if isinstance(error, RejectedError):
        return 422
    return 503 if isinstance(error, RetryableError) else 500


def _told(status: int, text: str) -> Response:
    return JSONResponse({"told": text}, status_code=status)
