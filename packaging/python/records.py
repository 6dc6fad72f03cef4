"""Writes python/gpuws/_records.pyi: the types of the frozen objects, from docs/schema.

    python3 packaging/python/records.py            writes it
    python3 packaging/python/records.py --check    fails if it differs
"""

import json
import sys
from keyword import iskeyword
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "python" / "gpuws" / "_records.pyi"
# The classes of `_records.py`, and the commands whose JSON they hold.
CLASSES = {
    "Status": "status",
    "Doctor": "doctor",
    "Leases": "leases",
    "Claimed": "claim-hold",
    "Explained": "mem-explain",
    "Fitted": "mem-fit",
    "Reap": "reap",
    "Report": "report",
    "PlacedModel": "place-model",
    "PlacedGraph": "place-graph",
    "ScheduledGraph": "place-graph-schedule",
    "RanGraph": "place-graph-run",
}
PLAIN = {"integer": "int", "number": "float", "string": "str", "boolean": "bool", "null": "None"}
HEAD = '''# Written by packaging/python/records.py from docs/schema; do not edit.
from typing import Any, Generic, Literal, TypeVar

from typing_extensions import Self

_V = TypeVar("_V")

class Record:
    def __init__(self, data: dict[str, Any]) -> None: ...
    @classmethod
    def of_json(cls, text: str) -> Self: ...
    def to_dict(self) -> dict[str, Any]: ...

# Names map to values: which names there are is seen at run time.
class _Values(Record, Generic[_V]):
    def __getattr__(self, name: str) -> _V: ...
'''
REPORT = '''
class IsolatedUse(Record):
    index: int
    peak_memory_bytes: int | None

class IsolatedReport(Record):
    exit_code: int
    limit_hit: bool
    elapsed_ms: int
    gpus: tuple[IsolatedUse, ...]
    ended_pids: tuple[int, ...]
    left_pids: tuple[int, ...]
    memory_back: bool | None
    error: str | None
'''


class Schema:
    """The classes of one schema. Those that are in another with other fields get its name."""

    def __init__(self, name, written):
        self.name = name
        schema = json.loads((ROOT / "docs" / "schema" / f"{CLASSES[name]}.json").read_text())
        self.defs = schema.get("$defs", {})
        self.schema = schema
        self.written = written

    def write(self):
        out = []
        for name, each in sorted(self.defs.items()):
            if "properties" in each:
                out.append((self.class_name(name), self.fields(each)))
        out.append((self.name, self.fields(self.schema)))
        return out

    def class_name(self, name):
        body = json.dumps(self.defs[name], sort_keys=True)
        known = self.written.setdefault(name, body)
        taken = known != body or name in CLASSES
        return f"{self.name}{name}" if taken else name

    def fields(self, schema):
        fields = sorted(schema["properties"].items())
        # Python cannot name a field `from`.
        return [(name + "_" * iskeyword(name), self.type(each)) for name, each in fields]

    def type(self, schema):
        if schema is True or not schema:
            return "Any"
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            target = self.defs[name]
            return self.class_name(name) if "properties" in target else self.type(target)
        if "const" in schema:
            return f"Literal[{schema['const']!r}]"
        if "enum" in schema:
            return f"Literal[{', '.join(map(repr, schema['enum']))}]"
        for several in ("anyOf", "oneOf"):
            if several in schema:
                return " | ".join(dict.fromkeys(map(self.type, schema[several])))
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        return " | ".join(self.plain(kind, schema) for kind in kinds) or "Any"

    def plain(self, kind, schema):
        if kind == "array":
            return f"tuple[{self.type(schema.get('items', {}))}, ...]"
        if kind == "object":
            return f"_Values[{self.type(schema.get('additionalProperties', {}))}]"
        return PLAIN[kind]


def text():
    written, classes = {}, {}
    for name in CLASSES:
        for class_name, fields in Schema(name, written).write():
            classes.setdefault(class_name, fields)
    parts = [HEAD]
    for name, fields in classes.items():
        lines = [f"    {field}: {kind}" for field, kind in fields]
        parts.append("\n".join([f"class {name}(Record):", *(lines or ["    ..."])]) + "\n")
    return "\n".join(parts) + REPORT


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        if TARGET.read_text() != text():
            sys.exit(f"{TARGET} differs from docs/schema: run {__file__}")
    else:
        TARGET.write_text(text())
