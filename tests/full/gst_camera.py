"""An H.264 camera behind GStreamer's RTSP server; run by the Python that has GStreamer, not by ours.

Arguments: port, width, height, user and password (both may be empty). Says `ready` when it listens.
"""

from __future__ import annotations

import sys
from typing import Any

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402


def main(port: str, width: str, height: str, user: str, password: str) -> None:
    Gst.init(None)
    server: Any = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(port)
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_shared(True)
    factory.set_launch(
        f"( videotestsrc is-live=true pattern=ball ! video/x-raw,width={width},height={height},framerate=15/1 "
        "! x264enc tune=zerolatency speed-preset=ultrafast key-int-max=15 ! rtph264pay name=pay0 pt=96 )"
    )
    if user:
        auth = GstRtspServer.RTSPAuth()
        auth.set_supported_methods(2)  # digest
        token = GstRtspServer.RTSPToken()
        token.set_string("media.factory.role", "viewer")
        auth.add_digest(user, password, token)
        server.set_auth(auth)
        role = GstRtspServer.RTSPPermissions()
        role.add_permission_for_role("viewer", "media.factory.access", True)
        role.add_permission_for_role("viewer", "media.factory.construct", True)
        factory.set_permissions(role)
    server.get_mount_points().add_factory("/main", factory)
    server.attach(None)
    print("ready", flush=True)
    GLib.MainLoop().run()


if __name__ == "__main__":
    main(*sys.argv[1:6])
