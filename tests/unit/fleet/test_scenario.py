import pytest

from everstep.core.errors import InvalidInput
from everstep.fleet.scenario import FOLDER, Scenario, load, parse


def test_default_scenario_is_the_projects_target():
    """16,384 chips and a failure every 3.05 hours."""
    scenario = Scenario()
    assert scenario.layout.world_size == 16_384
    assert scenario.failures.job_mtbf_h == 3.05


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.toml")))
def test_named_scenario_is_valid_and_bears_its_name(name):
    """Each file can be run by its name, and says what it is about."""
    scenario = load(name)
    assert scenario.name == name
    assert scenario.about.endswith(".")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[fleet]\nhosts = 0\n", r"fleet\.hosts"),
        ("[fleet]\nhots = 4\n", "hots"),
        ("[fleet]\nhosts = 7\n", "pp x dp_shard = 2048 hosts and fleet.hosts is 7"),
        ("[failures]\nkind = 'poisson'\n", r"failures\.kind"),
        ("[checkpoint]\nmemory_every = 0\nobject_every = 0\n", "nothing is ever saved"),
        ("name = \n", "line 1"),
    ],
)
def test_wrong_scenario_is_refused_with_the_field(text, said):
    """A person sees what to change."""
    with pytest.raises(InvalidInput, match=said):
        parse(text)


def test_unknown_scenario_names_the_known_ones():
    """A mistyped name is answered with the list."""
    with pytest.raises(InvalidInput, match=r"'llama4'.*llama3"):
        load("llama4")


def test_saves_that_would_pile_up_are_left_out():
    """An upload of 25 s on a cadence of 10 s: every third one."""
    text = """
    [job]
    step_s = 5.0
    [checkpoint]
    memory_every = 1
    replicate_s = 12
    object_every = 2
    state_gb = 25
    store_gb_per_s = 1
    """
    cadence = parse(text).cadence()
    assert (cadence.memory_every, cadence.object_every, cadence.upload_ms) == (3, 6, 25_000)
