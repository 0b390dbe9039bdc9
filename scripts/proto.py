"""Generate lib/everstep/wire/v1 from proto/everstep/v1; `--check` only says whether it is fresh."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "proto"
TARGET = ROOT / "lib" / "everstep" / "wire" / "v1"
IMPORT = re.compile(
    r"\beverstep\.v1\b(?=[\w.]* import|\.\w+_pb2)|(?<=^from )everstep\.v1(?= import)",
    re.MULTILINE,
)


def generate() -> dict[str, str]:
    """Run protoc and return file name -> text, imports pointed at everstep.wire.v1."""
    with tempfile.TemporaryDirectory() as out:
        files = sorted(str(p) for p in (SOURCE / "everstep" / "v1").glob("*.proto"))
        code = protoc.main(
            ["protoc", f"-I{SOURCE}", f"--python_out={out}", f"--pyi_out={out}", *files]
        )
        if code != 0:
            sys.exit(code)
        return {
            p.name: IMPORT.sub("everstep.wire.v1", p.read_text())
            for p in sorted((Path(out) / "everstep" / "v1").iterdir())
        }


def main() -> int:
    """Write the generated files, or compare them with what is committed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the committed code is stale")
    check = parser.parse_args().check
    fresh = generate()
    stale = [
        name
        for name, text in fresh.items()
        if not (TARGET / name).exists() or (TARGET / name).read_text() != text
    ]
    stale += [p.name for p in TARGET.glob("*_pb2.py*") if p.name not in fresh]
    if check:
        if stale:
            print(f"stale wire code: {', '.join(sorted(stale))}; run make proto")
        return 1 if stale else 0
    for name in stale:
        (TARGET / name).unlink(missing_ok=True)
    for name, text in fresh.items():
        (TARGET / name).write_text(text)
    print(f"wrote {len(fresh)} files to {TARGET.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
