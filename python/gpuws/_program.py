"""The location of the program gpuws."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_found: str | None = None


def _places() -> Iterator[str]:
    package = os.path.dirname(os.path.abspath(__file__))
    site = os.path.dirname(package)
    # Next to the package (pip --target), and above lib/python3.N/site-packages: the programs of the
    # installation that contains this package. A system package may have installed another one.
    yield os.path.join(site, "bin")
    library = os.path.dirname(site)
    if os.path.basename(library).startswith("python"):
        yield os.path.join(os.path.dirname(os.path.dirname(library)), "bin")
    import sysconfig

    # This Python's folder of programs, that of the Python that a virtual environment is based on,
    # and the user's.
    yield sysconfig.get_path("scripts")
    yield sysconfig.get_path("scripts", vars={"base": sys.base_prefix})
    yield sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))


def find_gpuws_bin() -> str:
    """Returns the path of the program gpuws that was installed with this package.

    Raises FileNotFoundError if it does not exist.
    """
    global _found
    if _found is not None and os.path.isfile(_found):
        return _found
    places = []
    for place in _places():
        path = os.path.join(place, "gpuws")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            _found = path
            return path
        places.append(place)
    raise FileNotFoundError("failed to find the program gpuws in " + ", ".join(places))


def library() -> str:
    """Returns the path of the simulated NVML in this package."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_sim", "libnvidia-ml.so.1")
    if not os.path.isfile(path):
        raise FileNotFoundError(f"failed to find the simulated NVML '{path}'")
    return path
