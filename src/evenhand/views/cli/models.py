"""evenhand models: the models that can judge on this machine."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from evenhand.engines import catalog
from evenhand.results.plain import to_json
from evenhand.views import console
from evenhand.views.cli.app import app
from evenhand.views.cli.option_groups import argument, option
from evenhand.views.cli.options import JsonOption
from evenhand.views.progress import Download

models_app = typer.Typer(help="The models that can judge on this machine.", invoke_without_command=True)
app.add_typer(models_app, name="models")


@models_app.callback()
def models(context: typer.Context, as_json: JsonOption = False) -> None:
    """List the catalog of models."""
    if context.invoked_subcommand:
        return
    rows, best = catalog.statuses(), catalog.recommended()
    if as_json:
        advice = best.name if best else None
        print(to_json({"models": [_model_fields(row) for row in rows], "recommended": advice}))
    else:
        console.out.print(console.models_table(rows))
        if best is not None and best.name != catalog.DEFAULT_MODEL:
            extra = "" if importlib.util.find_spec("huggingface_hub") else " (needs pip install 'evenhand\\[hf]')"
            console.out.print(
                f"for this machine's memory: evenhand judge PAIRS --judge [bold]{best.name}[/]{extra}",
                markup=True,
            )
        console.out.print(f"kept in {catalog.cache_folder()}; EVENHAND_CACHE moves them", style="dim")


@models_app.command("pull")
def models_pull(
    name: Annotated[str, argument("NAME", "As evenhand models lists it.")],
    force: Annotated[bool, option("--force", "Fetch it again even if it is there.")] = False,
) -> None:
    """Fetch a model into the cache folder; a fetch that was stopped goes on where it stopped."""
    with Download() as progress:
        model = catalog.pull(name, force=force, on_progress=progress)
    console.out.print(f"{model.name} is at {model.path}")


@models_app.command("remove")
def models_remove(
    name: Annotated[str, argument("NAME", "As evenhand models lists it.")],
) -> None:
    """Delete a model from the cache folder."""
    there = catalog.remove(name)
    console.out.print(f"{name} is deleted" if there else f"{name} was not there")


def _model_fields(status: catalog.Status) -> dict[str, object]:
    model = status.model
    return {
        "name": model.name,
        "size": model.bytes,
        "exact": bool(model.size),
        "memory": model.memory,
        "fits": status.fits,
        "licence": model.licence,
        "source": model.source,
        "sha256": model.sha256,
        "on_disk": status.on_disk,
        "path": str(status.path) if status.on_disk else None,
        "default": status.is_default,
    }
