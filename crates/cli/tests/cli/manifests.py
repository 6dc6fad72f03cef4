"""Checks manifests on standard input against the types of Kubernetes' own client.

The client rejects wrong types and drops fields that a type does not have, so a manifest with a
misspelt field is not the same after it was read and written. Exits with 77 without the client.
"""

import sys

try:
    import kubernetes.client
    import yaml

    TYPES = {
        "Namespace": kubernetes.client.V1Namespace.from_dict,
        "DaemonSet": kubernetes.client.V1DaemonSet.from_dict,
    }
except (ImportError, AttributeError) as error:
    print(error)
    sys.exit(77)


def dropped(given, kept, path):
    """Yields the places of `given` that `kept` does not have, or has otherwise."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            yield from dropped(value, kept.get(key), f"{path}.{key}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for index, (value, other) in enumerate(zip(given, kept)):
            yield from dropped(value, other, f"{path}[{index}]")
    elif given != kept:
        yield path


api = kubernetes.client.ApiClient(kubernetes.client.Configuration())
manifests = list(yaml.safe_load_all(sys.stdin))
places = []
for manifest in manifests:
    kind = manifest["kind"]
    read = TYPES[kind](manifest)
    places += dropped(manifest, api.sanitize_for_serialization(read), kind)
print(" ".join(sorted(manifest["kind"] for manifest in manifests)))
for place in places:
    print("dropped:", place)
sys.exit(bool(places))
