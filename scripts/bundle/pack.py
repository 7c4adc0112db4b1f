"""Packs what building needs besides LibTorch, a CUDA toolkit and a compiler into one tar (make bundle).

usage: pack.py [-o FILE.tar] [--downloads FOLDER] [--pins FILE] [--limit-mb N]
Runs on Debian 12 with pip and a network. Each download is checked against pins.txt, stripped of what building does not
need, and packed anew with xz; SHA256SUMS inside the tar holds the parts to what was packed. use.sh takes it from there.
Exit codes: 0 packed; 2 wrong pins; 5 something could not be downloaded or is not what was pinned; 10 the bundle is too large.
"""

import argparse
import fnmatch
import hashlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_MB = 40
KINDS = ("wheel", "source", "deb")

# Of each download: the folder within it that is packed, and patterns of what is left out. Without a line the whole of its only folder is.
KEPT = {
    "cmake": ("cmake/data", ("bin/cpack", "doc/*", "share/*/Help/*", "share/bash-completion/*", "share/emacs/*", "share/vim/*")),
    "ninja": ("ninja*.data/scripts", ()),
    "openmpi": ("openmpi-*.data/data", ()),
    "zlib": ("*", ("doc/*", "examples/*", "contrib/*", "old/*", "amiga/*", "msdos/*", "os400/*", "qnx/*", "watcom/*")),
    "hdf5": ("*", ("test/*", "testpar/*", "tools/*", "java/*", "c++/*", "fortran/*", "hl/*", "doc/*", "doxygen/*", "examples/*",
                   "configure", "aclocal.m4")),
    "fmtlib": ("*", ("doc/*", "test/*")),
    "spdlog": ("*", ("bench/*", "tests/*", "example/*", "logos/*")),
    "cli11": ("*", ("docs/*", "tests/*", "test_package/*", "examples/*")),
    "googletest": ("*", ("docs/*", "ci/*", "*/test/*", "*/samples/*", "*/docs/*")),
    "benchmark": ("*", ("docs/*", "test/*", "bindings/*", "tools/*")),
    "libtomlplusplus-dev": ("usr", ("lib/*", "share/doc-base/*", "share/doc/*/examples/*", "share/doc/*/docs/*")),
    "nlohmann-json3-dev": ("usr", ("share/doc/*/examples/*",)),
}


class Problem(Exception):
    """What is wrong, with the remedy, and the exit code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def read_pins(path):
    pins = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = line.split()
        if len(fields) != 5 or fields[0] not in KINDS or len(fields[4]) != 64:
            raise Problem(2, f"{path}:{number}: not 'kind name version file sha256' with a kind of {', '.join(KINDS)}")
        pins.append(dict(zip(("kind", "name", "version", "file", "sha256"), fields)))
    return pins


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def source_lists(folder):
    """apt's own sources, asked for source packages instead of binary ones. The machine's settings stay as they are."""
    parts = folder / "parts"
    parts.mkdir()
    apt = pathlib.Path(os.environ.get("SHARDMARK_APT", "/etc/apt"))
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if not path.is_file() or path.suffix not in (".list", ".sources"):
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        if path.suffix == ".sources":
            lines = ["Types: deb-src" if line.startswith("Types:") else line for line in lines]
        else:
            lines = [line.replace("deb", "deb-src", 1) for line in lines if line.startswith("deb ")]
        (parts / path.name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    return ["-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={parts}",
            "-o", f"Dir::State::lists={folder / 'lists'}", "-o", f"Dir::Cache={folder / 'cache'}"]


def call(command, folder):
    """The last line of what a failed command said, or None."""
    try:
        result = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        return str(error)
    lines = [line for line in result.stdout.splitlines() if line.strip() and not line.startswith("W:")]
    return None if result.returncode == 0 else (lines or [f"exit code {result.returncode}"])[-1]


def download(pins, folder):
    """Fetches what is not there yet; returns what went wrong, one text each."""
    problems = []
    absent = [pin for pin in pins if not (folder / pin["file"]).exists()]
    sources = []
    scratch = pathlib.Path(tempfile.mkdtemp(dir=folder))
    try:
        if any(pin["kind"] == "source" for pin in absent):
            sources = source_lists(scratch)
            call(["apt-get", *sources, "update", "-qq"], folder)  # a dead list shows below, where it matters
        for pin in absent:
            print(f"bundle: downloading {pin['file']}", file=sys.stderr)
            name, version = pin["name"], pin["version"]
            command = {
                "wheel": [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
                          "--dest", str(folder), f"{name}=={version}"],
                "source": ["apt-get", *sources, "source", "-qq", "--download-only", "--tar-only", name],
                "deb": ["apt-get", "download", "-qq", f"{name}={version}"],
            }[pin["kind"]]
            said = call(command, folder)
            if not (folder / pin["file"]).exists():
                problems.append(f"{pin['file']}: {' '.join(command[:3])} ... {name} did not bring it"
                                f" ({said or 'it brought another version'}); run it on Debian 12 with a network, or lay the"
                                f" file into {folder}")
    finally:
        shutil.rmtree(scratch)
    return problems


def check(pins, folder):
    problems = []
    for pin in pins:
        path = folder / pin["file"]
        if path.exists():
            found = sha256_of(path)
            if found != pin["sha256"]:
                problems.append(f"{pin['file']}: sha256 is {found}, pinned {pin['sha256']}; it was cut or changed: "
                                f"delete {path} and try again")
    return problems


def members(pin, path):
    """(name, executable, content or link target) of a download's files and links, in any order."""
    if pin["kind"] == "wheel":
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not entry.is_dir():
                    yield entry.filename, bool(entry.external_attr >> 16 & 0o100), archive.read(entry)
        return
    stream = None
    if pin["kind"] == "deb":
        stream = io.BytesIO(subprocess.run(["dpkg-deb", "--fsys-tarfile", str(path)], check=True, stdout=subprocess.PIPE).stdout)
    with tarfile.open(None if stream else path, fileobj=stream) as archive:
        for entry in archive:
            name = entry.name[2:] if entry.name.startswith("./") else entry.name
            if entry.isfile():
                yield name, bool(entry.mode & 0o100), archive.extractfile(entry).read()
            elif entry.issym():
                yield name, False, entry.linkname


def within(name, pattern):
    """The rest of `name` behind the folders that `pattern` names, or None."""
    depth = pattern.count("/") + 1
    parts = name.split("/")
    if len(parts) <= depth or not all(map(fnmatch.fnmatchcase, parts[:depth], pattern.split("/"))):
        return None
    return "/".join(parts[depth:])


def kept_members(pin, path):
    folder, left_out = KEPT.get(pin["name"], ("*", ()))
    for name, executable, content in members(pin, path):
        rest = within(name, folder)
        if rest is None or any(fnmatch.fnmatchcase(rest, pattern) for pattern in left_out):
            continue
        yield rest, executable, content


def repack(pin, path, target):
    """The kept files as NAME/..., equal bytes for equal input: sorted, without times and owners."""
    entries = sorted(kept_members(pin, path), key=lambda entry: entry[0])
    if not entries:
        raise Problem(5, f"{pin['file']}: nothing of it is kept; its layout is not the one that pack.py's KEPT describes")
    with tarfile.open(target, "w:xz", preset=9, format=tarfile.GNU_FORMAT) as archive:
        for name, executable, content in entries:
            entry = tarfile.TarInfo(f"{pin['name']}/{name}")
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
            else:
                entry.size, entry.mode = len(content), 0o755 if executable else 0o644
                archive.addfile(entry, io.BytesIO(content))


def add_file(archive, name, path):
    entry = tarfile.TarInfo(f"shardmark-bundle/{name}")
    entry.size, entry.mode = path.stat().st_size, 0o644
    with open(path, "rb") as file:
        archive.addfile(entry, file)


def pack(pins, downloads, output, limit_mb):
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(output.name + ".partial")
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        parts = []
        for pin in pins:
            part = pathlib.Path(folder) / f"{pin['name']}.tar.xz"
            repack(pin, downloads / pin["file"], part)
            parts.append(part)
            print(f"{part.stat().st_size / 1e6:8.2f} MB  {pin['name']} {pin['version']}")
        sums = pathlib.Path(folder) / "SHA256SUMS"
        sums.write_text("".join(f"{sha256_of(part)}  {part.name}\n" for part in parts))
        versions = pathlib.Path(folder) / "VERSIONS"
        versions.write_text("".join(f"{pin['name']} {pin['version']} {pin['file']} {pin['sha256']}\n" for pin in pins))
        with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as archive:
            for path in (versions, sums, *parts):
                add_file(archive, path.name, path)
        total_mb = partial.stat().st_size / 1e6
        print(f"{total_mb:8.2f} MB  in all")
        if total_mb > limit_mb:
            largest = max(parts, key=lambda part: part.stat().st_size)
            partial.unlink()
            raise Problem(10, f"{total_mb:.2f} MB are more than the limit of {limit_mb:g} MB; the largest part is "
                              f"{largest.name.split('.tar')[0]} with {largest.stat().st_size / 1e6:.2f} MB")
    partial.replace(output)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=HERE.parents[1] / "build/shardmark-bundle.tar")
    parser.add_argument("--downloads", type=pathlib.Path, help="kept for the next time (default: bundle-downloads beside the tar)")
    parser.add_argument("--pins", type=pathlib.Path, default=HERE / "pins.txt")
    parser.add_argument("--limit-mb", type=float, default=LIMIT_MB)
    options = parser.parse_args()
    output = options.output.resolve()
    downloads = (options.downloads or output.parent / "bundle-downloads").resolve()
    try:
        pins = read_pins(options.pins)
        downloads.mkdir(parents=True, exist_ok=True)
        problems = download(pins, downloads) + check(pins, downloads)
        if problems:
            raise Problem(5, "cannot pack:\n" + "\n".join(f"  - {problem}" for problem in problems))
        pack(pins, downloads, output, options.limit_mb)
    except Problem as problem:
        print(f"bundle: {problem}", file=sys.stderr)
        return problem.code
    print(f"bundle: {output}; on the other machine: make build BUNDLE={output.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
