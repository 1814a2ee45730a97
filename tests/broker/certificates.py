"""Certificates for tests, made with openssl."""

import subprocess
from pathlib import Path

BOTH = "serverAuth, clientAuth"
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")

CONFIG = """[ca]
default_ca = own
[own]
database = index
default_md = sha256
default_crl_days = 2
unique_subject = no
"""


class Authority:
    """Signs certificates; its own is in the folder, and stays there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "ca.pem"
        if not self.certificate.exists():
            key = ("-keyout", "ca.key", "-out", "ca.pem")
            self._openssl("req", "-x509", *CURVE, *key, "-subj", "/CN=authority", "-days", "2")
            (folder / "index").write_text("")
            (folder / "ca.cnf").write_text(CONFIG)

    def issue(self, file: str, *, subject: str | None = None, usages: str = BOTH, names: str = "") -> tuple[Path, Path]:
        """A certificate and its key; its common name is that of the files, unless `subject` says otherwise."""
        lines = [f"extendedKeyUsage = {usages}"] * bool(usages) + [f"subjectAltName = {names}"] * bool(names)
        (self.folder / f"{file}.ext").write_text("\n".join(lines))
        asked = ("-subj", f"/CN={file}" if subject is None else subject)
        self._openssl("req", *CURVE, "-keyout", f"{file}.key", "-out", f"{file}.csr", *asked)
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{file}.ext")
        self._openssl("x509", "-req", "-in", f"{file}.csr", *signing, "-out", f"{file}.pem")
        return self.folder / f"{file}.pem", self.folder / f"{file}.key"

    def revoke(self, *names: str) -> Path:
        """Take certificates back; the list of all that were."""
        signing = ("-config", "ca.cnf", "-cert", "ca.pem", "-keyfile", "ca.key")
        for name in names:
            self._openssl("ca", *signing, "-revoke", f"{name}.pem")
        self._openssl("ca", *signing, "-gencrl", "-out", "crl.pem")
        return self.folder / "crl.pem"

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=self.folder)
