"""The interface of gpustat 1.1, on gpuws.

Improvements: a driver that hangs causes an error instead of a hang, and claimed GPUs are marked. A
GPU that fell off the bus has `available` False. It makes no claims, because gpustat only reads.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, KeysView, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from datetime import datetime

__version__ = "1.1.1"
__all__ = ["GPUStat", "GPUStatCollection", "gpu_count", "is_available", "new_query", "print_gpustat"]


class _Writes(Protocol):
    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


_File = TypeVar("_File", bound=_Writes)


class GPUStat:
    """A GPU. `entry` has the values by gpustat's names; memory is in MB, power in watts."""

    def __init__(self, entry: dict[str, Any]) -> None:
        if not isinstance(entry, dict):
            raise TypeError(f"entry should be a dict, {type(entry)} given")
        self.entry = entry

    def keys(self) -> KeysView[str]:
        return self.entry.keys()

    def __getitem__(self, key: str) -> Any:
        return self.entry[key]

    def __repr__(self) -> str:
        return self.line()

    @property
    def available(self) -> bool:
        return self.entry.get("memory.total") is not None

    @property
    def index(self) -> Any:
        return self.entry["index"]

    @property
    def uuid(self) -> Any:
        return self.entry["uuid"]

    @property
    def name(self) -> Any:
        return self.entry["name"]

    @property
    def memory_total(self) -> int:
        return int(self.entry["memory.total"])

    @property
    def memory_used(self) -> int:
        return int(self.entry["memory.used"])

    @property
    def memory_free(self) -> int:
        return max(self.memory_total - self.memory_used, 0)

    @property
    def memory_available(self) -> int:
        return self.memory_free

    def _number(self, name: str) -> int | None:
        value = self.entry.get(name)
        return None if value is None else int(value)

    @property
    def temperature(self) -> int | None:
        return self._number("temperature.gpu")

    @property
    def fan_speed(self) -> int | None:
        return self._number("fan.speed")

    @property
    def utilization(self) -> int | None:
        return self._number("utilization.gpu")

    @property
    def utilization_enc(self) -> int | None:
        return self._number("utilization.enc")

    @property
    def utilization_dec(self) -> int | None:
        return self._number("utilization.dec")

    @property
    def power_draw(self) -> int | None:
        return self._number("power.draw")

    @property
    def power_limit(self) -> int | None:
        return self._number("enforced.power.limit")

    @property
    def processes(self) -> list[dict[str, Any]] | None:
        return self.entry.get("processes")

    def jsonify(self) -> dict[str, Any]:
        return dict(self.entry)

    def print_to(
        self,
        fp: _File,
        *,
        show_full_cmd: bool = False,
        gpuname_width: int | None = None,
        eol_char: str = os.linesep,
        **shown: Any,
    ) -> _File:
        """Prints the line of gpustat for this GPU, without colours."""
        fp.write(self.line(width=gpuname_width, **shown) + eol_char)
        for process in (self.processes or []) if show_full_cmd else []:
            words = " ".join(process.get("full_command") or ["?"])
            fp.write(f" ├─ {process.get('pid') or '--':>6}: {words}{eol_char}")
        return fp

    def line(
        self,
        *,
        width: int | None = None,
        show_header: bool = True,
        no_processes: bool = False,
        **shown: Any,
    ) -> str:
        """Returns the line of gpustat for this GPU, without colours."""

        def value(name: str) -> Any:
            found = self.entry.get(name)
            return "??" if found is None else found

        name = str(self.name or "?")
        width = len(name) if width is None else width
        if len(name) > width > 0:
            name = "…" + name[len(name) - width + 1 :]
        text = f"[{self.index}] "
        if width:
            text += f"{name:{width}} |"
        text += f"{value('temperature.gpu'):>3}°C, "
        if shown.get("show_fan_speed"):
            text += f"{value('fan.speed'):>3} %, "
        text += f"{value('utilization.gpu'):>3} %"
        codec = shown.get("show_codec") or ""
        parts = [
            f"{letter}: {value('utilization.' + kind):>3} %"
            for kind, letter in (("enc", "E"), ("dec", "D"))
            if kind in codec
        ]
        text += f" ({'  '.join(parts)})" if parts else ""
        power = shown.get("show_power")
        if power:
            text += f",  {value('power.draw'):>3} "
            is_whole = power is True or "limit" in power
            text += f"/ {value('enforced.power.limit'):>3} W" if is_whole else "W"
        text += f" | {value('memory.used'):>5} / {value('memory.total'):>5} MB"
        if no_processes:
            return text
        if self.processes is None:
            return text + " | (Not Supported)"
        return text + " |" + "".join(f" {self._process(each, shown)}" for each in self.processes)

    @staticmethod
    def _process(process: dict[str, Any], shown: dict[str, Any]) -> str:
        text = ""
        if not shown.get("show_cmd") or shown.get("show_user"):
            text += process.get("username") or "--"
        if shown.get("show_cmd"):
            command = process.get("command") or process.get("pid") or "--"
            text += f"{':' if text else ''}{command}"
        if shown.get("show_pid"):
            text += f"/{process.get('pid') or '--'}"
        memory = process.get("gpu_memory_usage")
        return f"{text}({'?' if memory is None else memory}M)"


class GPUStatCollection(Sequence[GPUStat]):
    """The GPUs of this machine at one moment."""

    def __init__(self, gpu_list: list[GPUStat], driver_version: str | None = None) -> None:
        import platform
        from datetime import datetime

        self.gpus = gpu_list
        self.hostname = platform.node()
        self.query_time: datetime = datetime.now()
        self.driver_version = driver_version

    @staticmethod
    def new_query(
        debug: bool = False, id: str | int | Iterable[int | str] | None = None
    ) -> GPUStatCollection:
        """Queries the GPUs, or only those with these indexes: "0,2" or [0, 2].

        Raises gpuws.DriverError if there is no driver.
        """
        import subprocess

        from gpuws._errors import DriverError
        from gpuws._program import find_gpuws_bin

        command = [find_gpuws_bin(), "status", "--format", "gpustat-json"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise DriverError(done.stderr.strip().removeprefix("gpuws: "))
        said = json.loads(done.stdout)
        gpus = [GPUStat(each) for each in said["gpus"]]
        if id is not None:
            wanted: Iterable[int | str]
            wanted = id.split(",") if isinstance(id, str) else [id] if isinstance(id, int) else id
            by_index = {gpu.index: gpu for gpu in gpus}
            gpus = [by_index[int(each)] for each in wanted]
        collection = GPUStatCollection(gpus, said.get("driver_version"))
        collection.hostname = said.get("hostname") or collection.hostname
        return collection

    def __len__(self) -> int:
        return len(self.gpus)

    @overload
    def __getitem__(self, index: int) -> GPUStat: ...
    @overload
    def __getitem__(self, index: slice) -> list[GPUStat]: ...
    def __getitem__(self, index: int | slice) -> GPUStat | list[GPUStat]:
        return self.gpus[index]

    def __repr__(self) -> str:
        lines = "\n".join(f"  {gpu!r}" for gpu in self.gpus)
        return f"GPUStatCollection(host={self.hostname}, [\n{lines}\n])"

    def print_formatted(
        self,
        fp: _Writes | None = None,
        *,
        force_color: bool = False,
        no_color: bool = False,
        show_cmd: bool = False,
        show_full_cmd: bool = False,
        show_user: bool = False,
        show_pid: bool = False,
        show_fan_speed: bool | None = None,
        show_codec: str | None = "",
        show_power: bool | str | None = None,
        gpuname_width: int | None = None,
        show_header: bool = True,
        no_processes: bool = False,
        eol_char: str = os.linesep,
    ) -> None:
        """Prints the table of gpustat, without colours."""
        if force_color and no_color:
            raise ValueError("force_color and no_color contradict each other")
        out = sys.stdout if fp is None else fp
        width = gpuname_width
        if width is None:
            width = max((len(str(gpu.name)) for gpu in self.gpus), default=0)
        if show_header:
            import locale

            when = self.query_time.strftime(locale.nl_langinfo(locale.D_T_FMT))
            head = f"{self.hostname:{(width or 16) + 3}}  {when}  {self.driver_version}"
            out.write(head.strip() + eol_char)
        for gpu in self.gpus:
            shown: dict[str, Any] = {
                "no_processes": no_processes,
                "show_full_cmd": show_full_cmd,
                "show_cmd": show_cmd,
                "show_user": show_user,
                "show_pid": show_pid,
                "show_fan_speed": show_fan_speed,
                "show_codec": show_codec,
                "show_power": show_power,
            }
            gpu.print_to(out, gpuname_width=width, eol_char=eol_char, **shown)
        if not self.gpus:
            out.write("(No GPUs are available)" + eol_char)
        out.flush()

    def jsonify(self) -> dict[str, Any]:
        return {
            "hostname": self.hostname,
            "driver_version": self.driver_version,
            "query_time": self.query_time,
            "gpus": [gpu.jsonify() for gpu in self.gpus],
        }

    def print_json(self, fp: _Writes | None = None) -> None:
        """Prints `jsonify()` as JSON."""
        out = sys.stdout if fp is None else fp
        json.dump(self.jsonify(), out, indent=4, default=lambda when: when.isoformat())
        out.write(os.linesep)
        out.flush()


def new_query() -> GPUStatCollection:
    """Queries all GPUs."""
    return GPUStatCollection.new_query()


def gpu_count() -> int:
    """Returns the number of GPUs; 0 without a driver."""
    from gpuws._errors import DriverError

    try:
        return len(new_query())
    except DriverError:
        return 0


def is_available() -> bool:
    """Returns whether there is a GPU and a driver."""
    return gpu_count() > 0


def print_gpustat(
    *,
    id: str | int | Iterable[int | str] | None = None,
    json: bool = False,
    debug: bool = False,
    **terms: Any,
) -> None:
    """Queries the GPUs and prints them, as the program gpustat does."""
    collection = GPUStatCollection.new_query(debug=debug, id=id)
    if json:
        collection.print_json()
    else:
        collection.print_formatted(**terms)
