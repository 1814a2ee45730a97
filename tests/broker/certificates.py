"""Certificates for tests, made with openssl."""

import subprocess
from pathlib import Path

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Signs certificates, and takes them back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "ca.pem"
        self._openssl(
            "req", "-x509", *CURVE, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2"
        )

    def issue(self, name: str) -> tuple[Path, Path]:
        """A certificate and its key."""
        self._openssl("req", *CURVE, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem")
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=self.folder)
