"""Programs that were built before: a build folder, or what tests/gpu/pack has packed."""
import os
import tarfile
import time


def unpack(path, folder):
    """The absolute path of the build folder; an archive is unpacked into `folder` first."""
    if not os.path.isfile(path):
        return os.path.abspath(path)
    begin = time.monotonic()
    with tarfile.open(path) as archive:
        has_filters = hasattr(tarfile, "data_filter")
        archive.extractall(folder, **({"filter": "data"} if has_filters else {}))
    with open(os.path.join(folder, "packed"), encoding="utf-8") as file:
        print(f"{path}, packed at {file.read().strip()}, unpacked in "
              f"{time.monotonic() - begin:.1f} s", flush=True)
    return folder
