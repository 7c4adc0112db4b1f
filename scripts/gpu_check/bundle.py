"""Whether a file is a whole bundle of make bundle: looked at before the clock starts, for every step would fail without it."""

import hashlib
import pathlib
import tarfile
import zlib


def sha256_of(file):
    digest = hashlib.sha256()
    for block in iter(lambda: file.read(1 << 20), b""):
        digest.update(block)
    return digest.hexdigest()


def fault_of(path):
    """What is wrong with the bundle, or ""."""
    try:
        with tarfile.open(path) as archive:
            found = {}
            sums = None
            for member in archive:
                if member.isfile():
                    name = pathlib.PurePosixPath(member.name).name
                    if name == "SHA256SUMS":
                        sums = archive.extractfile(member).read().decode()
                    else:
                        found[name] = sha256_of(archive.extractfile(member))
    except (tarfile.TarError, OSError, EOFError, UnicodeDecodeError, zlib.error):  # a tar that is cut may read as anything
        return f"{path} is cut or no tar of make bundle"
    expected = [line.split(None, 1) for line in (sums or "").splitlines()]
    if not expected or any(len(pair) != 2 for pair in expected):
        return f"{path} is cut or no tar of make bundle"
    bad = [name.strip() for digest, name in expected if found.get(name.strip()) != digest]
    return f"{path} was cut or changed ({', '.join(bad)})" if bad else ""
