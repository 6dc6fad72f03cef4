from typing import Any

# The functions of nvidia-ml-py, which have no types.
def __getattr__(name: str) -> Any: ...
