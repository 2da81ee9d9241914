"""Pinhole camera over a ground plane: world metres to pixels and back."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]

NEAR_M = 0.4


@dataclass(frozen=True, slots=True, eq=False)
class Camera:
    """A fixed camera. World axes: x along the street, y to its left, z up, all in metres.

    `rotation` rows are the camera's right, down and forward axes in world coordinates.
    """

    position_m: Points
    rotation: Points
    focal_px: float
    size_px: tuple[int, int]

    @classmethod
    def looking(
        cls,
        position_m: tuple[float, float, float],
        yaw_rad: float,
        tilt_rad: float,
        roll_rad: float,
        focal_px: float,
        size_px: tuple[int, int],
    ) -> Camera:
        """Build from yaw (left of +x), tilt (downwards) and roll (clockwise), radians."""
        cy, sy, ct, st = math.cos(yaw_rad), math.sin(yaw_rad), math.cos(tilt_rad), math.sin(tilt_rad)
        right = np.array([sy, -cy, 0.0])
        down = np.array([-cy * st, -sy * st, -ct])
        forward = np.array([cy * ct, sy * ct, -st])
        cr, sr = math.cos(roll_rad), math.sin(roll_rad)
        rotation = np.stack([cr * right + sr * down, -sr * right + cr * down, forward])
        return cls(np.array(position_m, dtype=np.float64), rotation, focal_px, size_px)

    @property
    def centre_px(self) -> tuple[float, float]:
        """Principal point, pixels."""
        return self.size_px[0] / 2.0, self.size_px[1] / 2.0

    def to_view(self, points_m: Points) -> Points:
        """World points [N,3] to camera coordinates [N,3] (right, down, forward)."""
        return (points_m - self.position_m) @ self.rotation.T

    def view_to_px(self, view_m: Points) -> Points:
        """Camera coordinates [N,3] with positive depth to pixels [N,2]."""
        cx, cy = self.centre_px
        scale = self.focal_px / view_m[:, 2]
        out = np.empty((len(view_m), 2))
        out[:, 0] = cx + view_m[:, 0] * scale
        out[:, 1] = cy + view_m[:, 1] * scale
        return out

    def project(self, points_m: Points) -> tuple[Points, Points]:
        """World points [N,3] to pixels [N,2] and depth [N]; depth is clamped to the near plane."""
        view = self.to_view(points_m)
        depth = view[:, 2].copy()
        np.maximum(view[:, 2], NEAR_M, out=view[:, 2])
        return self.view_to_px(view), depth

    def polygon_px(self, points_m: Points) -> Points | None:
        """A world polygon [N,3] cut at the near plane, in pixels [M,2]; None if wholly behind."""
        view = self.to_view(points_m)
        if view[:, 2].min() >= NEAR_M:
            return self.view_to_px(view)
        if view[:, 2].max() < NEAR_M:
            return None
        return self.view_to_px(cut_near(view))

    def plane(self, origin_m: Points, u_axis: Points, v_axis: Points) -> Points:
        """Homography [3,3] from a pixel (x, y, 1) to (a, b, 1)/depth of origin + a*u + b*v."""
        cx, cy = self.centre_px
        intrinsics = np.array([[self.focal_px, 0, cx], [0, self.focal_px, cy], [0, 0, 1.0]])
        columns = np.stack([u_axis, v_axis, origin_m - self.position_m], axis=1)
        return np.asarray(np.linalg.inv(intrinsics @ self.rotation @ columns), np.float64)

    def ground_plane(self) -> Points:
        """Homography from pixels to ground (x, y, 1)/depth."""
        return self.plane(np.zeros(3), np.array([1.0, 0, 0]), np.array([0, 1.0, 0]))

    def distance_m(self, x_m: float, y_m: float, z_m: float = 0.0) -> float:
        """Straight distance from the camera to a world point, metres."""
        p = self.position_m
        return math.sqrt((x_m - p[0]) ** 2 + (y_m - p[1]) ** 2 + (z_m - p[2]) ** 2)


def cut_near(view_m: Points) -> Points:
    """Cut a polygon in camera coordinates [N,3] at the near plane (Sutherland-Hodgman)."""
    out: list[Points] = []
    count = len(view_m)
    for i in range(count):
        a, b = view_m[i], view_m[(i + 1) % count]
        a_in, b_in = a[2] >= NEAR_M, b[2] >= NEAR_M
        if a_in:
            out.append(a)
        if a_in != b_in:
            out.append(a + (b - a) * ((NEAR_M - a[2]) / (b[2] - a[2])))
    return np.array(out)
