"""A judge whose verdicts were made elsewhere: it has a name and a source, and cannot be asked."""

from __future__ import annotations

from collections.abc import Mapping

from evenhand.core.engine import Answer, Engine
from evenhand.core.errors import EngineError
from evenhand.core.protocol import Prompt, Protocol

IMPORTED = "imported"


class ImportedEngine(Engine):
    """Stands for a judge in the database; `source` says which files its verdicts came from, and their hash.

    >>> ImportedEngine("gpt-4", {"file": "a.json", "sha256": "1f"}).identity
    {'engine': 'imported', 'model': 'gpt-4', 'file': 'a.json', 'sha256': '1f'}
    """

    def __init__(self, name: str, source: Mapping[str, str]) -> None:
        self.name, self.source = name, dict(source)

    @property
    def identity(self) -> Mapping[str, str]:
        """The judge's name, and where its verdicts came from."""
        return {"engine": IMPORTED, "model": self.name, **self.source}

    async def answer(self, prompt: Prompt) -> Answer:
        """Nobody can be asked."""
        raise EngineError(
            f"{self.name} was imported and cannot be asked", reason=IMPORTED, fatal=True, hint="name another judge"
        )


def is_imported(identity: Mapping[str, str]) -> bool:
    """Whether a judge's verdicts were made elsewhere.

    >>> is_imported(ImportedEngine("gpt-4", {}).identity), is_imported({"engine": "llama"})
    (True, False)
    """
    return identity.get("engine") == IMPORTED


def imported_protocol(name: str, dimension: str) -> Protocol:
    """A protocol for verdicts of which nobody here knows how they were asked for.

    >>> imported_protocol("pair-v2", "overall").dimensions
    ('overall',)
    """
    text = f"""---
name: {" ".join(name.split())}
description: Verdicts made elsewhere. How the judge was asked is not known; this text was never sent.
questions: {dimension}
---
<|im_start|>user
{{instruction}}

{{output_1}}

{{output_2}}

Which is best: A, B, or tie?<|im_end|>
"""
    return Protocol.parse(text, name=name, file=f"the import of {name}")
