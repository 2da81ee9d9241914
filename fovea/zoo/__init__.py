"""The bundled street models: the default that makes Fovea run without an account or a download.

Only data and a way to find it; the models are trained by `cloud.pretrain` and described in docs/zoo.md.
"""

from fovea.zoo.catalogue import names, path_of

__all__ = ["names", "path_of"]
