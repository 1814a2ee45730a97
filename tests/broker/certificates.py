"""An authority and certificates of brokers, made with openssl, for tests."""

import subprocess
from pathlib import Path

BOTH = "serverAuth, clientAuth"
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(folder: Path, *words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, cwd=folder)


def make_authority(folder: Path) -> None:
    """`ca.pem` and its key."""
    openssl(
        folder, "req", "-x509", *CURVE, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2"
    )


def make_certificate(
    folder: Path, file: str, subject: str, *, usages: str = BOTH, names: str = ""
) -> tuple[Path, Path]:
    """A certificate that the authority of the folder signed, and its key."""
    lines = [f"extendedKeyUsage = {usages}"] * bool(usages) + [f"subjectAltName = {names}"] * bool(names)
    (folder / f"{file}.ext").write_text("\n".join(lines))
    openssl(folder, "req", *CURVE, "-keyout", f"{file}.key", "-out", f"{file}.csr", "-subj", subject)
    signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{file}.ext")
    openssl(folder, "x509", "-req", "-in", f"{file}.csr", *signing, "-out", f"{file}.pem")
    return folder / f"{file}.pem", folder / f"{file}.key"
