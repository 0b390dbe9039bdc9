"""What is told of a file that is no YAML."""

from __future__ import annotations

import pytest

from everstep.cli.yaml_file import read_yaml
from everstep.core.errors import InvalidInput

COLON = (
    "a colon where none can be: write one `name: value` a line, names of one mapping in the same "
    "column; a text with a colon needs quotes"
)
INDENTED = (
    "this line does not fit those above: names of one mapping begin in the same column, and what "
    "belongs to a name is indented below it, with spaces"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: x\n\tentry: y\n", "line 2, column 1: a tab: indent with spaces"),
        ("name: x: y\n", f"line 1, column 8: {COLON}"),
        ("layout:\n    pp: 2\n  tp: 2\n", f"line 3, column 3: {INDENTED}"),
        (
            "steps: 3\nname\n",
            "line 3, column 1: expected `name: value`, found no colon behind a name",
        ),
        ("a: [x\nb: y\n", "line 2, column 2: expected a comma, or ] to close what line 1 opens"),
        (
            "\na: {x: 2\nb: 3\n",
            "line 3, column 2: expected a comma, or } to close what line 2 opens",
        ),
        ('a: "x\nb: y\n', "line 3, column 1: the quotation mark of line 1 is never closed"),
        ("a: 'x' y\n", "line 1, column 8: expected the end of the line, found more text"),
        ("a: - b\n", "line 1, column 4: a list begins in a line of its own, below its name"),
        ('a: "\\q"\n', "line 1, column 6: a backslash: write it twice, or use single quotes"),
        ("a: {", "line 1, column 5: expected a value; what opens in line 1 is not closed"),
        ("a: *x\n", "line 1, column 4: a value that begins with * needs quotes"),
        ("a: @x\n", "line 1, column 4: a value that begins with @ needs quotes"),
        (
            "a: !x y\n",
            "line 1, column 4: a value that begins with ! needs quotes: there are no types",
        ),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: a second document begins here: expected one"),
        ("? [a]\n: 3\n", "line 1, column 3: a mapping or a list as a name: expected text"),
        ("a: {b: 1,\n b: 2}\n", "line 2, column 2: b is there twice: expected each name once"),
        (
            "a: 2020-13-45\n",
            (
                "line 1, column 4: 2020-13-45 cannot be read (month must be in 1..12): a text "
                "needs quotes"
            ),
        ),
        ("a: 1\nb: \x01\n", "line 2: a character that YAML does not allow"),
    ],
)
def test_text_that_is_no_yaml_is_told_with_its_place_and_what_belongs_there(tmp_path, text, told):
    """In the words of who writes it, not of the parser."""
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        read_yaml(file)
    assert str(refused.value) == f"{file}, {told}"


def test_bytes_and_depths_that_cannot_be_read_are_told_too(tmp_path):
    """No traceback, whatever the file."""
    file = tmp_path / "job.yaml"
    file.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(InvalidInput, match=f"^{file}, line 2: expected UTF-8 text$"):
        read_yaml(file)
    file.write_text("[" * 5_000)
    with pytest.raises(InvalidInput, match=f"^{file} is nested too deeply to be read$"):
        read_yaml(file)
    with pytest.raises(InvalidInput, match=f"^cannot read {tmp_path}: Is a directory$"):
        read_yaml(tmp_path)


def test_names_that_come_by_a_merge_may_be_overruled(tmp_path):
    """That is what a merge is for."""
    file = tmp_path / "job.yaml"
    file.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n")
    assert read_yaml(file)["b"] == {"x": 3, "y": 2}
