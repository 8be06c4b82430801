"""The kernels of others that `explain_public` speaks of, as they are published, in a folder outside this project.

    python benchmarks/public_sources.py FOLDER

fetches the source distributions of the Python package index, by the index that pip is configured with, and unpacks what is CUDA C++ or
Python of them into `FOLDER/<name>-<version>`. (`pip download --no-binary :all:` would do if it did not build the metadata of each package,
for which most of these want PyTorch; so this asks pip's own code for the file alone.) The repositories of git are to be cloned beside them:

    git clone https://github.com/NVIDIA/cuda-samples            && git -C cuda-samples checkout 306af8d2755e712ffcb0b16a585da61bd1956303
    git clone https://github.com/zjin-lcf/HeCBench              && git -C HeCBench checkout 280045f0659705899a18d289c3ed6c4fb0b3459b
    git clone https://github.com/yuhc/gpu-rodinia               && git -C gpu-rodinia checkout 31d0ebf5adaf3aaa6c770cc5319a62275d8c1881
"""

from __future__ import annotations

import argparse
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

SDISTS: Mapping[str, str] = {
    "gsplat": "1.5.3",
    "implicit": "0.7.3",
    "kernel-tuner": "1.5.0",
    "mmcv": "2.2.0",
    "pycuda": "2026.1",
    "torch-cluster": "1.6.3",
    "torch-points-kernels": "0.7.0",
    "torch-sparse": "0.6.18",
}
"""Name -> version on the package index."""
CLONES = ("cuda-samples", "HeCBench", "gpu-rodinia")
SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".py")


def sdist(name: str) -> str:
    """The folder of a source distribution."""
    return f"{name}-{SDISTS[name]}"


def archives(into: Path) -> Iterator[tuple[str, Path]]:
    """Each source distribution's folder and archive. Asks modules of pip that may change with its version; pip 26 has them."""
    from pip._internal.commands import create_command
    from pip._internal.network.download import Downloader
    from pip._internal.utils.temp_dir import global_tempdir_manager, tempdir_registry
    from pip._vendor.packaging.specifiers import SpecifierSet

    command = create_command("download")
    options, _ = command.parse_args(["--quiet", "--no-deps", "--no-binary", ":all:", "all"])
    with command.main_context():
        command.tempdir_registry = command.enter_context(tempdir_registry())
        command.enter_context(global_tempdir_manager())
        session = command.get_default_session(options)
        finder = command._build_package_finder(options=options, session=session)
        fetch = Downloader(session, "off")
        for name, version in SDISTS.items():
            found = finder.find_best_candidate(name, SpecifierSet(f"=={version}")).best_candidate
            if found is None:
                raise SystemExit(f"the package index has no source distribution {name}=={version}")
            yield sdist(name), Path(fetch(found.link, str(into))[0])


def unpack(archive: Path, folder: Path) -> int:
    """The sources in a `.tar.gz`, without its outermost folder; how many there were."""
    count = 0
    with tarfile.open(archive) as files:
        for member in files:
            path = PurePosixPath(member.name)
            if not member.isfile() or path.suffix not in SUFFIXES or ".." in path.parts or path.is_absolute():
                continue
            target = folder.joinpath(*path.parts[1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            content = files.extractfile(member)
            assert content is not None
            target.write_bytes(content.read())
            count += 1
    return count


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("folder", type=Path, help="where the sources go; outside this project")
    folder = options.parse_args().folder
    with tempfile.TemporaryDirectory() as into:
        for name, archive in archives(Path(into)):
            print(f"{name}: {unpack(archive, folder / name)} files")


if __name__ == "__main__":
    main()
