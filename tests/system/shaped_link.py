"""A network between two processes that a test can make slow, cut, or turn into a hole that swallows all."""

from __future__ import annotations

from fovea.sim.link_shaper import HOLE, OPEN, Shape, ShapedLink, shaped_link

__all__ = ["HOLE", "OPEN", "Shape", "ShapedLink", "shaped_link"]
