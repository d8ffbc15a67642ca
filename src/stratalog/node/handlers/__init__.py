"""One file for each API key, `kNN_name.py`, with

    def handle(node: Node, request: Request, now: Millis) -> Message | Parked | Later | None

A message is encoded in the request's version and sent.  `Parked` (from `node.park(request)`) is answered later, so is
`LATER` (produce), by whoever fills in the request's output; `None` is never answered.  An `ApiError` that leaves
`handle` becomes the response's top-level error code, `Malformed` closes the connection.  What has a file here is
advertised in ApiVersions, in the range of its schema, or in the module's own `VERSIONS = (low, high)` where it serves
less.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

_NAME = re.compile(r"k(\d\d)_[a-z_]+")


def names() -> dict[int, str]:
    """API key to module name, for every handler there is."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        match = _NAME.fullmatch(module.name)
        if match is not None:
            found[int(match.group(1))] = module.name
    return dict(sorted(found.items()))


def load(name: str) -> ModuleType:
    """The handler's module; imported when its first request comes, so that a broker starts quickly."""
    return importlib.import_module(f"{__name__}.{name}")


Handle = Callable[[Any, Any, int], Any]


def refusal(node: Any, request: Any, code: Any) -> Any | None:
    """The whole request answered with one error, as a test asked for it; None where the response has no one place for
    it: then the connection is closed."""
    module = load(names()[request.key])
    if hasattr(module, "refuse"):
        return module.refuse(node, request, code)
    return node.error_response(request, code, code.text)
