import base64
import html.parser
import re
import sys

import pytest

from everstep.core.errors import NotFoundError
from everstep.planner.inputs import MISSION, changed
from everstep.planner.monte_carlo import simulate
from everstep.planner.plan import make_plan, spare_choices
from everstep.planner.report import require_drawing, write_report
from everstep.planner.summary import Simulated
from everstep.planner.sweep import Axis, run_sweep

PNG = b"\x89PNG\r\n\x1a\n"


class Sources(html.parser.HTMLParser):
    """Collects whatever a page loads."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("src", "href")]


def _sources(page):
    parser = Sources()
    parser.feed(page)
    return parser.found


def test_report_of_a_sweep_is_one_page_with_its_images_in_it(tmp_path):
    """It can be mailed: whatever it shows is inside, the images byte for byte."""
    plan = make_plan(changed(MISSION, {"detection": 30.0, "slow": 0.01}))
    goodput, wall_s = simulate(
        plan.in_use.policy, mtbf_s=plan.mtbf_s, useful_target_s=plan.compute_s, runs=3
    )
    simulated = (Simulated(saving=plan.in_use, goodput=goodput, wall_s=wall_s),)
    swept = run_sweep(plan.inputs, (Axis(name="restart", values=(30, 600)),), runs=3)
    written = write_report(
        tmp_path / "new" / "folder", "A <title>", plan, spare_choices(plan), simulated=simulated,
        sweep=swept,
    )  # fmt: skip
    assert [path.name for path in written] == ["sweep.png", "plan.png", "report.html"]
    images = [path.read_bytes() for path in written[:2]]
    assert all(image.startswith(PNG) for image in images)
    page = written[2].read_text()
    assert "A &lt;title&gt;" in page
    assert "Sweep of --restart" in page
    embedded = [base64.b64decode(source.partition("base64,")[2]) for source in _sources(page)]
    assert embedded == images
    assert not re.search(r"https?://", page)


def test_report_of_a_pair_draws_its_grid(tmp_path):
    """Two inputs are a map of colours with the numbers in it."""
    plan = make_plan(MISSION)
    axes = (Axis(name="chips", values=(1024, 2048)), Axis(name="restart", values=(30, 60, 90)))
    swept = run_sweep(MISSION, axes)
    written = write_report(tmp_path, "Pair", plan, spare_choices(plan), sweep=swept)
    assert written[0].read_bytes().startswith(PNG)
    assert "--chips (down) and --restart (across)" in written[2].read_text()


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_report_without_its_library_says_what_to_install(monkeypatch, missing):
    """Before anything is computed or written."""
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(NotFoundError, match=rf"need {missing}.*pip install 'everstep\[plan\]'"):
        require_drawing()
