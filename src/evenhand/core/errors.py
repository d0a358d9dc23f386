"""Everything that evenhand can say went wrong.

EvenhandError               .hint: what to do about it
├── InputError              what the user gave cannot be used (exit code 2)
│   ├── PairError           a file of pairs: file, line, fault
│   ├── TemplateError       a template: file, line, what was found, what was expected
│   └── SpecError           an unknown name: of a judge, a protocol, a model
├── ModelError              a model cannot be fetched or loaded: network, hash, disk, no GGUF
├── EngineError             the judge could not answer; .retryable says whether asking again may help
│   └── TooLongError        the conversation does not fit the model's context: .tokens, .limit
└── StoreError              the database cannot be used
"""

from __future__ import annotations

from functools import partial


class EvenhandError(Exception):
    """The root of the tree; `hint` is the remedy, where one is known.

    >>> str(EvenhandError("no judge", hint="name one with --judge"))
    'no judge (name one with --judge)'
    """

    retryable = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InputError(EvenhandError):
    """What the user gave cannot be used."""


class PairError(InputError):
    """A file of pairs is not right at one place.

    >>> print(PairError("pairs.jsonl", 3, "no field 'output_2'"))
    pairs.jsonl:3: no field 'output_2'
    """

    def __init__(self, file: str, line: int | None, fault: str, *, hint: str = "") -> None:
        where = f"{file}:{line}" if line is not None else file
        super().__init__(f"{where}: {fault}", hint=hint)
        self.file, self.line, self.fault = file, line, fault

    def __reduce__(self) -> tuple[partial[PairError], tuple[str, int | None, str]]:
        """A worker's check on another machine sends it home."""
        return partial(type(self), hint=self.hint), (self.file, self.line, self.fault)


class TemplateError(InputError):
    """A template cannot be understood.

    >>> print(TemplateError("t.txt", 7, found="{output_3}", expected="{instruction}, {output_1} or {output_2}"))
    t.txt:7: found {output_3}, expected {instruction}, {output_1} or {output_2}
    """

    def __init__(self, file: str, line: int, *, found: str, expected: str, hint: str = "") -> None:
        super().__init__(f"{file}:{line}: found {found}, expected {expected}", hint=hint)
        self.file, self.line, self.found, self.expected = file, line, found, expected


class SpecError(InputError):
    """An unknown name."""


class ModelError(EvenhandError):
    """A model cannot be fetched or loaded."""


class EngineError(EvenhandError):
    """The judge could not answer; `reason` is the word that the store keeps.

    `retryable`: asking again may help, not before `retry_after` seconds if the server named a time.
    `overloaded`: the server asked for fewer requests at once.
    `nobody_there`: no connection came about; if that lasts, the server is gone.
    `fatal`: no other prompt would fare better (a wrong key, a missing model), so the run stops.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str = "engine_error",
        retryable: bool = False,
        overloaded: bool = False,
        retry_after: float | None = None,
        nobody_there: bool = False,
        fatal: bool = False,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.reason, self.retryable, self.overloaded = reason, retryable, overloaded
        self.retry_after, self.nobody_there, self.fatal = retry_after, nobody_there, fatal


class TooLongError(EngineError):
    """The conversation does not fit; it is never cut.

    >>> print(TooLongError(tokens=9000, limit=8192))
    the conversation has 9000 tokens and the context holds 8192 (raise --context, if the model allows more)
    """

    def __init__(self, *, tokens: int, limit: int) -> None:
        super().__init__(
            f"the conversation has {tokens} tokens and the context holds {limit}",
            reason="too_long",
            hint="raise --context, if the model allows more",
        )
        self.tokens, self.limit = tokens, limit


class StoreError(EvenhandError):
    """The database cannot be used."""
