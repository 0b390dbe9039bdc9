"""What is wrong with a request is said as all other refusals are."""

from __future__ import annotations

from enum import StrEnum

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from everstep.service.request_errors import request_problems, unknown_parameters


class Word(StrEnum):
    """Two of them."""

    CLEAN = "clean"
    SUSPECT = "suspect"


class Body(BaseModel):
    """What is sent."""

    model_config = ConfigDict(extra="forbid")

    word: Word = Word.CLEAN
    step: int = Field(default=0, ge=0, le=9)
    why: str = Field(default="", max_length=5)
    hosts: list[str] = Field(default=["a"], min_length=1)
    now: bool = False
    share: float = 0.0
    name: str

    @field_validator("name")
    @classmethod
    def rule(cls, name: str) -> str:
        """Have a rule of its own."""
        if name == "bad":
            raise ValueError("bad is no name")
        return name


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({}, "name: is missing"),
        ({"name": "a", "word": "vague"}, "word: expected 'clean' or 'suspect', got 'vague'"),
        ({"name": "a", "step": 10}, "step: expected at most 9, got 10"),
        ({"name": "a", "step": -1}, "step: expected 0 or more, got -1"),
        ({"name": "a", "step": "x"}, "step: expected a whole number, got 'x'"),
        ({"name": "a", "step": 1.5}, "step: expected a whole number, got 1.5"),
        ({"name": "a", "why": "too long"}, "why: expected at most 5 characters, got 8"),
        ({"name": "a", "hosts": []}, "hosts: expected at least 1 items, got 0"),
        ({"name": "a", "now": "perhaps"}, "now: expected true or false, got 'perhaps'"),
        ({"name": "a", "share": "much"}, "share: expected a number, got 'much'"),
        ({"name": 3}, "name: expected a text, got 3"),
        ({"name": "a", "hots": ["b"]}, "hots: unknown field"),
        ({"name": "bad"}, "name: bad is no name"),
        (
            {"name": "a", "step": -1, "now": 7},
            "step: expected 0 or more, got -1; now: expected true or false, got 7",
        ),
    ],
)  # fmt: skip
def test_each_wrong_value_is_named_with_what_was_expected_and_what_came(sent, said):
    """Nothing of the library's wording is left."""
    with pytest.raises(ValidationError) as refused:
        Body.model_validate(sent)
    assert request_problems(refused.value.errors()) == said


def test_place_of_a_value_is_named_unless_it_is_the_body_or_the_path():
    """``query.count`` is not ``count`` of a body."""
    wrong = {"type": "int_parsing", "msg": "", "input": "x" * 100}
    assert request_problems([{**wrong, "loc": ("query", "count")}]).startswith(
        "query.count: expected a whole number, got 'xxx"
    )
    assert request_problems([{**wrong, "loc": ("path", "step")}]).endswith("xxx...")
    assert request_problems([{**wrong, "loc": ("body",)}]).startswith("body: ")


def test_problem_that_is_not_known_keeps_its_words():
    """Better than none."""
    strange = {"type": "frozen_field", "msg": "Field is frozen", "loc": ("body", "a")}
    assert request_problems([strange]) == "a: Field is frozen"


def test_body_that_is_no_json_is_told():
    """By what keeps it from being it."""
    broken = {"type": "json_invalid", "loc": ("body", 3), "msg": "", "ctx": {"error": "Expecting"}}
    assert request_problems([broken]) == "expected JSON, got something else (Expecting)"


@pytest.mark.parametrize(
    ("asked", "known", "said"),
    [
        (["limit"], ["limit", "after_step"], ""),
        ([], [], ""),
        (["limti", "limit"], ["limit"], "query.'limti': unknown parameter; there are: limit"),
        (["b", "a", "b"], [], "query.'a', 'b': unknown parameter; this route takes none"),
    ],
)
def test_unknown_parameters_are_named_with_those_there_are(asked, known, said):
    """A parameter that is not read changes nothing, and nobody would see that."""
    assert unknown_parameters(asked, known) == said
