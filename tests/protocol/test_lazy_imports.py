"""What importing costs: the registry and the classes bring no codecs, no other messages, no heavy libraries."""

from __future__ import annotations

import subprocess
import sys

import pytest


def loaded_after(statement: str) -> set[str]:
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import stratalog", {"stratalog.protocol", "numpy", "numba", "asyncio"}),
        ("import stratalog.protocol.apis", {"stratalog.protocol.compiler", "stratalog.protocol.k01_fetch", "numpy"}),
        (
            "from stratalog.protocol.k03_metadata import MetadataRequest; MetadataRequest(topics=None)",
            {"stratalog.protocol.compiler", "stratalog.protocol.k01_fetch", "stratalog.protocol.apis"},
        ),
        (
            "from stratalog.protocol.k03_metadata import MetadataRequest; MetadataRequest(topics=None).encode(9)",
            {"stratalog.protocol.k01_fetch", "stratalog.protocol.hot_codecs", "numpy", "asyncio"},
        ),
    ],
)
def test_an_import_brings_what_it_needs_and_no_more(statement: str, absent: set[str]) -> None:
    """Issue 3: `import stratalog` under 60 ms; codecs are made at first use."""
    assert not loaded_after(statement) & absent


def test_every_api_resolves_to_classes_of_its_own_key_and_versions() -> None:
    """The registry and the classes say the same of key, versions and flexible versions."""
    from stratalog.protocol.apis import APIS, BY_NAME, find

    assert len(APIS) == 91
    for api in APIS.values():
        for cls, suffix in ((api.request, "Request"), (api.response, "Response")):
            assert cls.__name__ == api.name + suffix
            assert (cls.api_key, cls.versions, cls.flexible) == (api.key, api.versions, api.flexible)
        assert BY_NAME[api.name] is api
    assert find("1") == find("Fetch") == [APIS[1].request, APIS[1].response]
    assert [cls.__name__ for cls in find("PartitionRecord")] == ["PartitionRecord"]
    assert find("nothing") == []
