"""Certificate authorities for tests of TLS, made by openssl; they are good for 127.0.0.1 and two days."""

from __future__ import annotations

import subprocess
from pathlib import Path

from protos.tls import Pems


class Authority:
    """An authority of its own in `folder`; every `pems` is a new certificate that it signs."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._made = 0
        new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        self._openssl(*new, "-subj", f"/CN={name}", "-keyout", "ca.key", "-out", "ca.pem")

    def pems(self) -> Pems:
        self._made += 1
        name = f"tier-{self._made}"
        (self._folder / "names.cnf").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        self._openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"]
        names = ["-extfile", "names.cnf", "-out", f"{name}.pem"]
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signed, *names)
        ca, cert, key = (
            (self._folder / file).read_bytes() for file in ("ca.pem", f"{name}.pem", f"{name}.key")
        )
        return Pems(ca, cert, key)

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self._folder, check=True, capture_output=True)
