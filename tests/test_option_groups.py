"""Options in groups: users see flat options, and command functions stay short."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from evenhand.core.errors import InputError
from evenhand.views.cli import load_all
from evenhand.views.cli.groups import EngineOptions, HardwareOptions, JudgeOptions, JudgeSettings, LimitOptions
from evenhand.views.cli.option_groups import flat_options

_MOST = 14


@dataclass(frozen=True)
class Inner:
    deep: Annotated[int, typer.Option("--deep", min=1)] = 1


@dataclass(frozen=True)
class Outer:
    name: Annotated[str, typer.Option("--name")]
    inner: Inner = Inner()


def callbacks(program: typer.Typer) -> Iterator[Callable[..., Any]]:
    yield from (info.callback for info in program.registered_commands if info.callback)
    for group in program.registered_groups:
        assert group.typer_instance
        yield from callbacks(group.typer_instance)


@pytest.mark.parametrize("command", list(callbacks(load_all())), ids=lambda command: command.__name__)
def test_a_command_has_fewer_than_fifteen_parameters(command: Callable[..., Any]) -> None:
    assert len(inspect.signature(inspect.unwrap(command)).parameters) <= _MOST


def test_the_commands_that_ask_a_judge_take_the_same_options() -> None:
    found = {command.__name__: set(inspect.signature(command).parameters) for command in callbacks(load_all())}
    judging = {"spec", "protocol", "settings", "samples", "context", "threads", "gpu_layers", "raw_markup"}
    limits = {"concurrency", "requests_per_minute", "tokens_per_minute", "max_requests", "max_cost", "prices"}
    for name in ("judge", "arena", "gate", "judge_on_ray"):
        assert judging | limits <= found[name], name
    assert limits <= found["generate"]
    assert judging <= found["compare"]


def program_of(command: Callable[..., Any]) -> typer.Typer:
    program = typer.Typer()
    program.command()(flat_options(command))
    return program


def test_groups_arrive_as_dataclasses_and_groups_may_hold_groups() -> None:
    seen: list[object] = []

    def show(outer: Outer, last: Annotated[bool, typer.Option("--last")] = False) -> None:
        seen.extend((outer, last))

    done = CliRunner().invoke(program_of(show), ["--name", "x", "--deep", "3", "--last"])
    assert done.exit_code == 0, done.output
    assert seen == [Outer("x", Inner(3)), True]


@pytest.mark.parametrize(("words", "said"), [([], "--name"), (["--name", "x", "--deep", "0"], "--deep")])
def test_what_an_option_refuses_is_refused_in_a_group(words: list[str], said: str) -> None:
    def show(outer: Outer) -> None:
        raise AssertionError("never called")

    done = CliRunner().invoke(program_of(show), words)
    assert done.exit_code == 2
    assert said in done.output


def test_two_groups_with_one_name_are_a_mistake_of_the_program() -> None:
    def show(outer: Outer, name: str = "") -> None: ...

    with pytest.raises(TypeError, match="show has two options called name"):
        flat_options(show)


def test_settings_are_checked_before_a_model_is_fetched() -> None:
    with pytest.raises(InputError, match="--orders sideways"):
        JudgeSettings.of(JudgeOptions(orders="sideways"), EngineOptions())
    settings = JudgeSettings.of(
        JudgeOptions("openai:gpt-4o-mini"),
        EngineOptions(samples=3, hardware=HardwareOptions(threads=2)),
        LimitOptions(concurrency=5, max_cost=1.5),
        seed=7,
    )
    assert (settings.protocol.name, settings.orders, settings.seed) == ("chained", "both", 7)
    assert (settings.hardware.threads, settings.endpoint.samples, settings.endpoint.concurrency) == (2, 3, 5)
    assert settings.limits.max_cost == 1.5
    assert settings.price is not None
