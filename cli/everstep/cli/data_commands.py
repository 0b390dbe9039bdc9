"""``data prepare``: text into token shards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from everstep.cli.options import JsonFlag, help_of, register
from everstep.cli.output import ERR, OUT, counted, print_json, size

TOKEN_BYTES = 2  # byte-level tokens are stored as uint16

data_app = typer.Typer(name="data", no_args_is_help=True, rich_markup_mode=None)


def data() -> None:
    """Prepare training data."""


def prepare(
    sources: Annotated[list[Path], typer.Argument(metavar="SRC...", help="Files or directories.")],
    out: Annotated[Path, typer.Option("--out", help="Directory for the shards.")],
    suffixes: Annotated[
        list[str] | None,
        typer.Option("--suffix", help="Only files in directories that end so; repeatable."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Turn text files into token shards.

    Byte by byte, so that any text will do; the same files give the same shards.

    Examples:
      everstep data prepare README.md docs/ --out corpus/
      everstep data prepare /usr/lib/python3.11 --suffix .py --out corpus/
    """
    from everstep.data.prepare import prepare as make_shards  # numpy: only where it is needed

    with Progress(console=ERR, transient=True, disable=as_json or not ERR.is_terminal) as bar:
        task = bar.add_task("tokenizing", total=None)
        made = make_shards(
            sources,
            out,
            suffixes=tuple(suffixes or ()),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        print_json(
            {
                "directory": str(made.directory),
                "documents": made.documents,
                "tokens": made.tokens,
                "shards": made.shards,
            }
        )
        return
    shards = counted(made.shards, "shard")
    OUT.print(
        f"{made.tokens:,} tokens of {made.documents:,} documents in {shards} "
        f"({size(TOKEN_BYTES * made.tokens)}) in {made.directory}",
        markup=False,
    )


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    data_app.callback(help=help_of(data))(data)
    register(data_app, prepare)
    app.add_typer(data_app)
