"""Configuration keys as data: name, type, default, range, who may change them at run time, one sentence of help.

A `Table` is a set of keys; it parses text, checks ranges and finds the nearest known name for a wrong one.  Values
travel as text (that is what records and requests hold) and are parsed where they are used.  Immutable; any thread.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from stratalog.base.types import MAX_INT32, MAX_INT64

INT16_MAX: Final = 2**15 - 1


class ConfigType(IntEnum):
    """A value's type, with its number in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(IntEnum):
    """Who may change a broker's key while it runs."""

    READ_ONLY = 0
    PER_BROKER = 1
    CLUSTER_WIDE = 2


class Importance(IntEnum):
    HIGH = 0
    MEDIUM = 1
    LOW = 2


class ConfigError(ValueError):
    """A value that a key does not take; the text names key, value and what would do."""

    def __init__(self, key: str, value: str | None, reason: str) -> None:
        shown = "null" if value is None else repr(value if len(value) <= 80 else value[:77] + "...")
        super().__init__(f"{key}: {shown} {reason}")
        self.key = key


_BOUNDS: Final[dict[ConfigType, tuple[int, int]]] = {
    ConfigType.SHORT: (-INT16_MAX - 1, INT16_MAX),
    ConfigType.INT: (-MAX_INT32 - 1, MAX_INT32),
    ConfigType.LONG: (-MAX_INT64 - 1, MAX_INT64),
}
_WORDS: Final[dict[ConfigType, str]] = {
    ConfigType.SHORT: "a whole number of 16 bits",
    ConfigType.INT: "a whole number of 32 bits",
    ConfigType.LONG: "a whole number of 64 bits",
    ConfigType.DOUBLE: "a number",
    ConfigType.BOOLEAN: "true or false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """One row.  `default` is text, None where there is none; `low` and `high` are inclusive."""

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    importance: Importance = Importance.MEDIUM
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    also: tuple[int, ...] = ()
    """Numbers outside of the range that are allowed as well (compression.gzip.level takes -1)."""
    check: Callable[[Any], str | None] | None = None
    """A further rule on the parsed value: what is wrong with it, None when nothing is."""
    scope: Scope = Scope.READ_ONLY
    sensitive: bool = False
    synonyms: tuple[tuple[str, int], ...] = ()
    """Keys of the broker that give this key its default, the first that is set wins, each with the factor that its
    value is multiplied by."""
    internal: bool = False
    """Taken, but neither listed nor described."""

    def range_text(self) -> str:
        """What the key takes, for people."""
        if self.choices:
            one = "any of" if self.type == ConfigType.LIST else "one of"
            return f"{one} {', '.join(self.choices)}"
        words = _WORDS.get(self.type, "text")
        if self.low is not None and self.high is not None:
            words += f" from {_number(self.low)} to {_number(self.high)}"
        elif self.low is not None:
            words += f", at least {_number(self.low)}"
        elif self.high is not None:
            words += f", at most {_number(self.high)}"
        if self.also:
            words += " or " + " or ".join(str(value) for value in self.also)
        return words

    def parse(self, text: str | None) -> Any:
        """The value behind the text: bool, int, float, str, or a list of str.  `ConfigError` says what would do."""
        if text is None:
            raise ConfigError(self.name, None, f"is no value; it takes {self.range_text()}")
        stripped = text.strip()
        value: Any
        match self.type:
            case ConfigType.BOOLEAN:
                lowered = stripped.lower()
                if lowered not in ("true", "false"):
                    raise self._wrong(text)
                value = lowered == "true"
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                value = self._integer(text, stripped)
            case ConfigType.DOUBLE:
                try:
                    value = float(stripped)
                except ValueError:
                    raise self._wrong(text) from None
                if value != value or not self._in_range(value):
                    raise self._wrong(text)
            case ConfigType.LIST:
                value = [item for item in (part.strip() for part in stripped.split(",")) if item]
                if self.choices and not all(item in self.choices for item in value):
                    raise self._wrong(text)
            case _:
                value = stripped
                if self.choices and value not in self.choices:
                    raise self._wrong(text)
        if self.check is not None:
            reason = self.check(value)
            if reason is not None:
                raise ConfigError(self.name, text, reason)
        return value

    def default_value(self) -> Any:
        """The default, parsed; None where there is none."""
        return None if self.default is None else self.parse(self.default)

    def _integer(self, text: str, stripped: str) -> int:
        digits = stripped[1:] if stripped[:1] in ("-", "+") else stripped
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
            raise self._wrong(text)
        value = int(stripped)
        low, high = _BOUNDS[self.type]
        if not low <= value <= high or not self._in_range(value):
            raise self._wrong(text)
        return value

    def _in_range(self, value: float) -> bool:
        if value in self.also:
            return True
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def _wrong(self, text: str) -> ConfigError:
        return ConfigError(self.name, text, f"is not allowed; it takes {self.range_text()}")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


class Table(Mapping[str, ConfigKey]):
    """Keys by name, in the order of their names."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        found: dict[str, ConfigKey] = {}
        for key in keys:
            assert key.name not in found, f"{key.name} is twice in the table"
            key.default_value()
            found[key.name] = key
        self._keys = dict(sorted(found.items()))

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def parse(self, name: str, text: str | None) -> Any:
        """One value; `ConfigError` for a name that is not in the table too."""
        key = self._keys.get(name)
        if key is None:
            near = self.nearest(name)
            hint = f"; did you mean {near}?" if near else ""
            raise ConfigError(name, text, f"belongs to no known key{hint}")
        return key.parse(text)

    def nearest(self, name: str) -> str | None:
        """The known name that looks most like a wrong one, None when none does."""
        found = difflib.get_close_matches(name, self._keys, n=1, cutoff=0.7)
        return found[0] if found else None
