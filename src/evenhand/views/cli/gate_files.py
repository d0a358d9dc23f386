"""What a gate writes for others: Markdown for a pull request, JUnit XML, annotations of GitHub."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

from evenhand.results.gate import GateResult
from evenhand.views import console
from evenhand.views.cli.option_groups import OUTPUT, one_of, option

ANNOTATIONS = ("github",)
_LEVELS = {
    "not_worse": "notice",
    "worse": "error",
    "fallen": "error",
    "undecided": "warning",
    "not_judged": "error",
}
_MOST_ANNOTATIONS = 9  # GitHub shows ten of a kind for each step, and one is the decision
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class GateFileOptions:
    """Where else the result goes."""

    worst: Annotated[int, option("--worst N", "How many of the pairs that got worse to list.", OUTPUT, min=0)] = 10
    markdown: Annotated[
        Path | None, option("--markdown FILE", "Write the result there, for a pull request.", OUTPUT)
    ] = None
    junit: Annotated[Path | None, option("--junit FILE", "Write the result there as JUnit XML.", OUTPUT)] = None
    annotations: Annotated[
        str,
        option(
            f"--annotations {'|'.join(ANNOTATIONS)}",
            "Print lines that the service shows beside the code: ::error, ::warning, ::notice.",
            OUTPUT,
        ),
    ] = ""

    def check(self) -> None:
        """Refuse what nobody knows."""
        if self.annotations:
            one_of("--annotations", self.annotations, ANNOTATIONS)

    def write(self, result: GateResult, *, to_stderr: bool = False) -> None:
        """Write all that is wanted; annotations go to standard output unless that is JSON."""
        if self.annotations:
            print(*annotation_lines(result), sep="\n", file=sys.stderr if to_stderr else sys.stdout, flush=True)
        if self.junit:
            self.junit.write_text(junit_xml(result), encoding="utf-8")
        if self.markdown:
            # GitHub's summary of a step is one file for all that the step runs; any other is this command's own.
            mode = "a" if str(self.markdown) == os.environ.get("GITHUB_STEP_SUMMARY") else "w"
            with self.markdown.open(mode, encoding="utf-8") as file:
                file.write(result.markdown())


def annotation_lines(result: GateResult) -> Iterator[str]:
    """Lines that GitHub shows beside the code: the decision, and behind a failure the pairs that got worse."""
    lines = (result.sentence(), "; ".join(f"{name}: {text}" for name, text in result.details().items()))
    said = "\n".join(map(console.one_line, lines))
    yield _annotation(_LEVELS[result.outcome], f"evenhand gate: {result.word}", said)
    if result.outcome in ("worse", "fallen"):
        for loss in result.losses.worst[:_MOST_ANNOTATIONS]:
            yield _annotation("warning", console.one_line(f"got worse: {loss.id}"), loss.short)


def _annotation(level: str, title: str, message: str) -> str:
    """One workflow command; what comes from a file can neither end it nor begin another.

    >>> _annotation("error", "a:b", "50%\\n::error::x")
    '::error title=a%3Ab::50%25%0A::error::x'
    """
    safe = _escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={safe}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return console.visible(text).replace("%", "%25").replace("\n", "%0A")


def junit_xml(result: GateResult) -> str:
    """The gate as a suite of one test; each test that did not pass says why, and lists the pairs that got worse."""
    failed, broken = result.outcome in ("worse", "fallen", "undecided"), result.outcome == "not_judged"
    counts = {"tests": "1", "failures": str(int(failed)), "errors": str(int(broken)), "skipped": "0"}
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "evenhand gate", **counts})
    name = _xml(f"{result.names[1]} is not worse than {result.names[0]} on {result.standing.dimension}")
    case = ElementTree.SubElement(suite, "testcase", {"classname": "evenhand.gate", "name": name})
    lines = [*(f"{name}: {text}" for name, text in result.details().items()), *result.loss_lines()]
    printed = "\n".join(map(_xml, lines))
    if failed or broken:
        kind = {"type": result.outcome, "message": _xml(f"{result.word}: {result.sentence()}")}
        ElementTree.SubElement(case, "error" if broken else "failure", kind).text = printed
    else:
        ElementTree.SubElement(case, "system-out").text = printed
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _xml(text: str) -> str:
    """A line without the characters that XML cannot hold, and in which nothing steers a terminal or turns a line.

    >>> _xml("a\\x00b\\x9b\\nc")
    'a\ufffdb␡ c'
    """
    return console.one_line(_NO_XML.sub("\ufffd", text))
