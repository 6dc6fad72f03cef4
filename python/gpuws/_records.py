"""Frozen objects over the JSON of gpuws. `_records.pyi`, made from the schemas, has their types."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self


class Record:
    """A frozen object. A field that is None is absent; a neighbour such as `absent` or an error
    says why. `to_dict()` is the JSON object that the program prints."""

    __slots__ = ("_data",)

    def __init__(self, data: dict[str, Any]) -> None:
        object.__setattr__(self, "_data", data)

    @classmethod
    def of_json(cls, text: str) -> Self:
        import json

        return cls(json.loads(text))

    def to_dict(self) -> dict[str, Any]:
        import copy

        return copy.deepcopy(self._data)

    def __getattr__(self, name: str) -> Any:
        # `from_` is the field `from`, which Python cannot name.
        field = "from" if name == "from_" else name
        try:
            return _frozen(self._data[field])
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no field '{name}'") from None

    def __setattr__(self, name: str, _: object) -> None:
        raise AttributeError(f"cannot set '{name}': {type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete '{name}': {type(self).__name__} is frozen")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._data]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and self._data == other._data

    def __hash__(self) -> int:
        return hash(frozenset((name, _frozen(value)) for name, value in self._data.items()))

    def __getstate__(self) -> dict[str, Any]:
        return self._data

    def __setstate__(self, data: dict[str, Any]) -> None:
        object.__setattr__(self, "_data", data)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_frozen(value)!r}" for name, value in self._data.items())
        return f"{type(self).__name__}({fields})"


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return Record(value)
    if isinstance(value, list):
        return tuple(_frozen(each) for each in value)
    return value


class Status(Record):
    """The GPUs of a machine and their users."""

    __slots__ = ()


class Doctor(Record):
    """The findings on a machine."""

    __slots__ = ()


class Leases(Record):
    """Leases and waiting claims."""

    __slots__ = ()


class Claimed(Record):
    """A granted lease."""

    __slots__ = ()


class Explained(Record):
    """Out-of-memory messages, with their causes and remedies. `str()` of it is for people."""

    __slots__ = ()

    def __str__(self) -> str:
        lines = []
        for event in self.events:
            diagnosis = event.diagnosis
            lines += [diagnosis.verdict, *diagnosis.reasons]
            lines += [f"now {text}" for text in diagnosis.now]
            lines += [f"try {fix.set or fix.why}" for fix in event.remedies]
        return "\n".join(lines) or "no out-of-memory message is known in this text"


class Fitted(Record):
    """The memory that recorded jobs need."""

    __slots__ = ()


class Reap(Record):
    """A plan to end processes, and what came of it."""

    __slots__ = ()


class Report(Record):
    """Who used and held the GPUs over some time."""

    __slots__ = ()


class PlacedModel(Record):
    """The memory of a model, and the device of each layer."""

    __slots__ = ()


class PlacedGraph(Record):
    """The device of each operation of a graph."""

    __slots__ = ()


class ScheduledGraph(Record):
    """The device and the times of each operation of a graph."""

    __slots__ = ()


class RanGraph(Record):
    """The values of a graph that was run."""

    __slots__ = ()


class IsolatedReport(Record):
    """The report on an isolated function's process tree."""

    __slots__ = ()
