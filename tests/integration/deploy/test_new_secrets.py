"""deploy/new-secrets.sh: passwords that nobody else has."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "deploy" / "new-secrets.sh"


def write(path: Path) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    return subprocess.run([SCRIPT, path], capture_output=True, text=True, check=False)


def secrets_in(path: Path) -> list[str]:
    """Every password of an env file."""
    return re.findall(r"^EVERSTEP_\w+_(?:PASSWORD|KEY)=(.+)$", path.read_text(), re.MULTILINE)


def test_new_secrets_are_random_and_private(tmp_path: Path) -> None:
    """Each is 128 bits of its own, in a file that only its owner reads."""
    paths = [tmp_path / "a", tmp_path / "b"]
    assert [write(path).returncode for path in paths] == [0, 0]
    found = [secret for path in paths for secret in secrets_in(path)]
    assert len(found) == len(set(found)) == 8
    assert all(re.fullmatch(r"[0-9a-f]{32}", secret) for secret in found)
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}


def test_new_secrets_never_replace_those_in_use(tmp_path: Path) -> None:
    """Databases keep the password that they were made with."""
    path = tmp_path / "a"
    write(path)
    before = path.read_bytes()
    again = write(path)
    assert again.returncode == 1
    assert "is there already" in again.stderr
    assert path.read_bytes() == before
