"""Reads a YAML file that a person wrote, and says in plain words where it is none.

The parser speaks of block mappings and scalars; whoever mistyped a line wants the line, the column
and what belongs there. A name that is there twice is refused: the parser would silently keep the
last one.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import yaml

from everstep.core.errors import InvalidInput

VALUE_CHARACTERS_MAX: Final = 40  # enough to recognise a value
INDENTED: Final = (
    "this line does not fit those above: names of one mapping begin in the same column, and what "
    "belongs to a name is indented below it, with spaces"
)
COLON: Final = (
    "a colon where none can be: write one `name: value` a line, names of one mapping in the same "
    "column; a text with a colon needs quotes"
)
# What the parser says (``problem``), and what a person should do. ``opened`` is a line.
WORDS: Final = (
    (r"character '\\t'", "a tab: indent with spaces"),
    (r"character '([@`%&*!|>])'", "a value that begins with {0} needs quotes"),
    (r"mapping values are not allowed", COLON),
    (r"sequence entries are not allowed", "a list begins in a line of its own, below its name"),
    (r"unknown escape", "a backslash: write it twice, or use single quotes"),
    (r"<block end>, but found '<scalar>'", "expected the end of the line, found more text"),
    (r"expected <block end>|expected '<document start>'", INDENTED),
    (r"could not find expected ':'", "expected `name: value`, found no colon behind a name"),
    (r"expected the node content", "expected a value; what opens in line {opened} is not closed"),
    (r"expected ',' or '(.)'", "expected a comma, or {0} to close what line {opened} opens"),
    (r"unexpected end of stream", "the quotation mark of line {opened} is never closed"),
    (r"undefined alias", "a value that begins with * needs quotes"),
    (r"constructor for the tag", "a value that begins with ! needs quotes: there are no types"),
    (r"but found another document", "a second document begins here: expected one"),
    (r"unhashable key", "a mapping or a list as a name: expected text"),
)


def read_yaml(file: Path) -> Any:
    """Read a YAML file.

    Raises:
        InvalidInput: it cannot be read, or is no YAML; says where and what is expected.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error.strerror}") from error
    try:
        return yaml.load(data.decode(), _Loader)  # noqa: S506 - derived from the safe one
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(f"{file}, line {line}: expected UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        raise InvalidInput(f"{file}, {_in_plain_words(error)}") from None
    except yaml.reader.ReaderError as error:
        line = data.decode().count("\n", 0, error.position) + 1
        raise InvalidInput(f"{file}, line {line}: a character that YAML does not allow") from None
    except RecursionError:
        raise InvalidInput(f"{file} is nested too deeply to be read") from None


class _Loader(yaml.SafeLoader):
    """Refuses names that are there twice, and says where a value is that cannot be read."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping whose names differ."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        names = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = {name for name, count in Counter(key.value for key in names).items() if count > 1}
        for key in reversed(names):
            if key.value in twice:
                problem = f"{_short(key.value)} is there twice: expected each name once"
                raise yaml.MarkedYAMLError(None, None, problem, key.start_mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Construct a value."""
        try:
            return super().construct_object(node, deep=deep)
        except ValueError as error:
            problem = f"{_short(node.value)} cannot be read ({error}): a text needs quotes"
            raise yaml.MarkedYAMLError(None, None, problem, node.start_mark) from None


def _in_plain_words(error: yaml.MarkedYAMLError) -> str:
    problem, mark = error.problem or error.context or "", error.problem_mark or error.context_mark
    assert mark is not None, "the parser knows where it is"
    opened = (error.context_mark or mark).line + 1
    where = f"line {mark.line + 1}, column {mark.column + 1}"
    for said, words in WORDS:
        if found := re.search(said, problem):
            return f"{where}: {words.format(*found.groups(), opened=opened)}"
    return f"{where}: {problem}"


def _short(text: str) -> str:
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[:VALUE_CHARACTERS_MAX]}..."
