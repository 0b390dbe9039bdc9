from __future__ import annotations

import json

import pytest
import yaml

from everstep.core.errors import InvalidInput
from everstep.core.spec import SPEC_BYTES_MAX, JobSpec, parse_spec, parse_spec_json
from everstep.core.spec_errors import spec_problems

GOOD = {
    "name": "tiny",
    "entry": "everstep.models.pretrain:main",
    "layout": {"pp": 2, "dp_shard": 2, "tp": 2},
    "steps": 3,
    "data": {"path": "corpus", "sequence_tokens": 8, "global_batch": 4},
}
NESTED: list[object] = []
NESTED.append(NESTED)  # as YAML can say it
MANY = [[[0] * 100] * 100] * 100
FIELDS = (
    "name, entry, argv, args, layout, steps, seed, deterministic, data, checkpoint, recovery, "
    "numerics, corruption, env, cwd"
)


def told(document) -> list[str]:
    """Return the lines of the refusal, without their common beginning."""
    with pytest.raises(InvalidInput) as refused:
        parse_spec(document)
    text = str(refused.value)
    assert text.startswith("invalid job spec:")
    assert "http" not in text
    return [line.strip() for line in text.removeprefix("invalid job spec:").strip().splitlines()]


def test_good_spec_is_the_same_from_yaml_and_from_json():
    """What a person wrote and what goes over the wire mean one job."""
    spec = parse_spec(GOOD)
    assert parse_spec_json(spec.model_dump_json()) == spec
    assert spec.layout.world_size == 8


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"steps": 0}, "steps: expected a whole number of at least 1, got 0"),
        (
            {"steps": 2**63},
            (
                "steps: expected a whole number of at least 1, got 9223372036854775808 (it has "
                "more than 64 bits)"
            ),
        ),
        (
            {"seed": -(2**70)},
            (
                "seed: expected a whole number, got -1180591620717411303424 (it has more than 64 "
                "bits)"
            ),
        ),
        ({"steps": 1.5}, "steps: expected a whole number of at least 1, got 1.5"),
        ({"steps": "many"}, 'steps: expected a whole number of at least 1, got "many"'),
        ({"steps": 10**13}, "steps: expected at most 1000000000000, got 10000000000000"),
        (
            {"steps": 10**30},
            (
                f"steps: expected a whole number of at least 1, got {10**30} (it has more than 64 "
                "bits)"
            ),
        ),
        ({"seed": None}, "seed: expected a whole number, got nothing"),
        ({"name": ""}, 'name: expected text of 1 to 100 characters, got ""'),
        (
            {"layout": {"pp": 0}},
            "layout.pp: expected a whole number of at least 1, got 0",
        ),
        ({"layout": 8}, "layout: expected a mapping with pp, dp_replicate, dp_shard, tp, got 8"),
        ({"argv": "--fast"}, 'argv: expected a list, each item text, got "--fast"'),
        ({"args": ["a"]}, "args: expected a mapping of names to values, got a list"),
        ({"env": {"FLAG": 1}}, "env.FLAG: expected text, got 1 (put it in quotes)"),
        (
            {"env": {"RANK": "7", "MINE": "1", "EVERSTEP_SPEC": "{}"}},
            ("env: EVERSTEP_SPEC, RANK: set by the launcher for each rank; leave out what it sets"),
        ),
        ({"env": {"": "x"}}, "env: '': no variable of a process has such a name"),
        ({"env": {"A=B": "x"}}, "env: 'A=B': no variable of a process has such a name"),
        ({"args": {"x": float("inf")}}, "args.x: expected a finite number, got inf"),
        ({"args": {"x": [{1: 2}]}}, "args.x.0: expected text as a name, got 1 (quote it)"),
        ({"argv": ["\0"]}, "argv.0: expected text, got characters that text cannot have"),
        ({"args": {"\ud800": 1}}, "args: expected text, got characters that text cannot have"),
        (
            {"args": {"x": b"1"}},
            "args.x: expected text, a number, a list or a mapping, got bytes",
        ),
        ({"args": {"x": NESTED}}, f"args.x{'.0' * 49}: expected at most 50 levels, got more"),
        ({"args": {"x": MANY}}, "expected at most 100000 values, got more"),
        (
            {"checkpoint": {"keep_days": 10**30}},
            (
                "checkpoint.keep_days: expected a whole number from 0 to 1000000000, got "
                f"{10**30} (it has more than 64 bits)"
            ),
        ),
        (
            {"numerics": {"window_steps": 8, "window_steps_min": 4, "non_finite_steps": 10}},
            "numerics: non_finite_steps: expected at most window_steps 8, got 10",
        ),
        (
            {"recovery": {"collective_timeout_s": 14}},
            "recovery.collective_timeout_s: expected a whole number from 15 to 604800, got 14",
        ),
        (
            {"recovery": {"no_spare": "fail"}},
            'recovery.no_spare: expected wait or elastic, got "fail"',
        ),
        (
            {"recovery": {"dp_min": 3}},
            "recovery.dp_min: expected at most the layout's 2 data-parallel groups, got 3",
        ),
        (
            {"entry": "models pretrain"},
            "entry: expected module:function or a path that ends in .py, got 'models pretrain'",
        ),
        (
            {"data": {**GOOD["data"], "global_batch": 3}},
            (
                "data.global_batch: expected a multiple of 2 (micro_batch 1 x 2 data-parallel "
                "groups, dp_replicate 1 x dp_shard 2), got 3: every group must get the same whole "
                "number of micro-batches"
            ),
        ),
        (
            {"data": {**GOOD["data"], "dtype": "int32"}},
            'data.dtype: expected auto or uint16 or uint32, got "int32"',
        ),
        (
            {"checkpoint": {"interval": "sometimes"}},
            'checkpoint.interval: expected steps or auto, got "sometimes"',
        ),
        (
            {"checkpoint": {"failures": {"chip_mtbf_hours": 0}}},
            "checkpoint.failures.chip_mtbf_hours: expected a number above 0, got 0",
        ),
        (
            {"checkpoint": {"failures": {"memory_lost_share": 2}}},
            "checkpoint.failures.memory_lost_share: expected a number from 0 to 1, got 2",
        ),
        (
            {"checkpoint": {"overlap": "maybe"}},
            'checkpoint.overlap: expected true or false, got "maybe"',
        ),
        (
            {"checkpoint": {"object_every_steps": 10**12}},
            (
                "checkpoint.object_every_steps: expected a whole number from 0 to 1000000000, got "
                "1000000000000"
            ),
        ),
        ({"name": "n" * 101}, f'name: expected text of 1 to 100 characters, got "{"n" * 59}...'),
    ],
)
def test_wrong_value_is_told_with_its_path_what_was_expected_and_got(change, line):
    """The same three things for every field, in no library's words."""
    assert told({**GOOD, **change}) == [line]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"stepz": 3}, "stepz: unknown field; did you mean steps?"),
        (
            {"layout": {**GOOD["layout"], "dp_shards": 1}},
            "layout.dp_shards: unknown field; did you mean layout.dp_shard?",
        ),
        ({"global_batch": 4}, "global_batch: unknown field; did you mean data.global_batch?"),
        ({"colour": "red"}, f"colour: unknown field; expected one of {FIELDS}"),
    ],
)
def test_unknown_field_is_told_with_the_one_that_was_meant(change, line):
    """A near name at the same place, else the same name elsewhere, else all that there are."""
    assert told({**GOOD, **change}) == [line]


@pytest.mark.parametrize(
    ("change", "largest", "advice"),
    [
        ({"args": {"prompt": "x" * 200_000}}, "args", "put it into a file"),
        ({"argv": ["\u00e4" * 100_000]}, "argv", "put it into a file"),
        ({"env": {"A": "x" * 70_000, "B": "y" * 70_000}}, "env", "put it into a file"),
        ({"cwd": "x" * 200_000}, "cwd", "make it shorter"),
    ],
)
def test_spec_that_no_process_could_be_handed_is_told_what_of_it_is_too_large(
    change, largest, advice
):
    """The whole is measured as it travels; who wrote it learns which field, and what to do."""
    bytes_in_all = len(JobSpec.model_validate({**GOOD, **change}).model_dump_json().encode())
    (line,) = told({**GOOD, **change})
    assert line.startswith(f"{largest}: ")
    assert f"expected at most {SPEC_BYTES_MAX} bytes of JSON in all, got {bytes_in_all}" in line
    assert f"of them here: {advice}" in line


def test_spec_of_the_largest_size_is_accepted_and_fits_a_variable_of_a_process():
    """What ranks run inherits the spec, and Linux takes no variable of 128 KiB."""
    empty = len(parse_spec({**GOOD, "args": {"x": ""}}).model_dump_json().encode())
    room = SPEC_BYTES_MAX - empty
    parse_spec({**GOOD, "args": {"x": "x" * room}})
    with pytest.raises(InvalidInput, match="args"):
        parse_spec({**GOOD, "args": {"x": "x" * (room + 1)}})
    assert len("EVERSTEP_SPEC=") + SPEC_BYTES_MAX < 128 * 1024


def test_stored_spec_of_an_older_version_that_is_larger_is_still_read():
    """A service that could not read its own events would not start."""
    large = JobSpec.model_validate({**GOOD, "args": {"x": "x" * 200_000}}).model_dump_json()
    assert len(parse_spec_json(large).args["x"]) == 200_000


def test_stored_spec_of_an_older_version_knows_no_dtype_of_tokens():
    """It is read as it was written: as the files say."""
    document = json.loads(parse_spec(GOOD).model_dump_json())
    del document["data"]["dtype"]
    assert parse_spec_json(json.dumps(document)) == parse_spec(GOOD)


def test_bare_off_in_yaml_is_off():
    """YAML reads it as false."""
    document = yaml.safe_load(
        "{recovery: {slow_hosts: off}, numerics: {on_spike: off}, corruption: {on_corruption: off}}"
    )
    spec = parse_spec({**GOOD, **document})
    found = (spec.recovery.slow_hosts, spec.numerics.on_spike, spec.corruption.on_corruption)
    assert found == ("off", "off", "off")
    assert told({**GOOD, "recovery": {"slow_hosts": True}}) == [
        "recovery.slow_hosts: expected drain or note or off, got true"
    ]


def test_several_mistakes_are_told_at_once_a_line_each():
    """Nobody has to submit once a mistake."""
    assert told({"name": "n", "layout": {"tp": "x"}, "steps": -1}) == [
        "entry: expected text that is not empty, got nothing",
        'layout.tp: expected a whole number of at least 1, got "x"',
        "steps: expected a whole number of at least 1, got -1",
    ]


@pytest.mark.parametrize(("document", "got"), [(None, "nothing"), ([1], "a list"), (5, "5")])
def test_document_of_another_shape_is_told_what_belongs_there(document, got):
    """An empty file, a list or a number holds no spec."""
    assert told(document) == [f"expected a mapping with {FIELDS}, got {got}"]


def test_text_that_is_no_json_is_told_without_the_librarys_words():
    """The wire's own mistakes are sentences too."""
    with pytest.raises(InvalidInput, match="invalid job spec: expected JSON, got something else"):
        parse_spec_json("{")
    with pytest.raises(InvalidInput, match="steps: expected a whole number of at least 1, got 0"):
        parse_spec_json(json.dumps({**GOOD, "steps": 0}))


def test_no_problem_at_all_is_no_sentence():
    """Only what is wrong is told."""
    assert spec_problems([], JobSpec.model_json_schema()) == []
