"""Files of pairs: every form that is read, and every fault with its place."""

from __future__ import annotations

import codecs
import io
import json
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.core.errors import InputError, PairError
from evenhand.core.pair import Pair, digest, read_label
from evenhand.io.files import finding as module
from evenhand.io.files.reading import parse
from evenhand.io.pairs import check_pairs, pair_from, read_pairs

Row = dict[str, Any]
Write = Callable[[str, str | bytes], Path]
GOOD = '{"instruction": "q", "output_1": "x", "output_2": "y"}'


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(name: str, content: str | bytes) -> Path:
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    return put


def row(number: int = 1, **more: Any) -> Row:
    return {"instruction": f"q{number}", "output_1": "x", "output_2": "y", **more}


def jsonl(*rows: Row) -> str:
    return "".join(json.dumps(one) + "\n" for one in rows)


def instructions(file: Path) -> list[str]:
    return [pair.instruction for pair in read_pairs(file)]


# -- a pair ----------------------------------------------------------------------------------------


def test_an_id_is_derived_from_the_texts_and_stays() -> None:
    assert Pair("2 + 2?", "4", "5").id == Pair("2 + 2?", "4", "5", model_1="m", metadata={"x": 1}).id
    assert Pair("2 + 2?", "4", "5").id == "pair-3c1872ddf21e"


@pytest.mark.parametrize("other", [("2 + 2", "?4", "5"), ("2 + 2?", "5", "4"), ("2 + 2?", "45", "")])
def test_other_texts_get_another_id(other: tuple[str, str, str]) -> None:
    assert Pair(*other).id != Pair("2 + 2?", "4", "5").id


def test_an_id_that_is_given_is_kept() -> None:
    assert Pair("q", "x", "y", id="mine").id == "mine"


def test_the_order_decides_what_is_shown() -> None:
    pair = Pair("q", "x", "y")
    assert (pair.shown("forward"), pair.shown("swapped")) == (("x", "y"), ("y", "x"))


def test_a_label_is_a_side() -> None:
    with pytest.raises(InputError, match=r"label of overall is 'A' \(write '1', '2' or 'tie'\)"):
        Pair("q", "x", "y", labels={"overall": "A"})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ["instruction", "output_1", "output_2", "id", "model_1", "model_2"])
def test_no_text_or_name_holds_a_lone_surrogate(name: str) -> None:
    with pytest.raises(InputError, match=f"field '{name}' holds a lone surrogate at character 2"):
        pair_from(row() | {name: "ab\ud800"})


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4), st.data())
def test_the_digest_knows_where_texts_are_cut(parts: list[str], data: st.DataObject) -> None:
    whole = "".join(parts)
    cut = data.draw(st.integers(0, len(whole)))
    again = [whole[:cut], whole[cut:]]
    assert (digest(*parts) == digest(*again)) == (parts == again)


# -- labels and other fields -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "side"),
    [
        (["1", 1, "A", "a", "output_1", "model_1", " A "], "1"),
        (["2", 2, "B", "b", "output_2", "model_2"], "2"),
        (["tie", "Tie", "TIE", 0, "0", "equal"], "tie"),
        ([None, ""], None),
    ],
)
def test_labels_are_read_in_their_many_forms(values: list[object], side: str | None) -> None:
    assert {read_label(value) for value in values} == {side}


@pytest.mark.parametrize("value", ["C", 3, "better", True, [1]])
def test_an_unknown_label_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is none of 1, 2, A, B, tie"):
        read_label(value)


def test_labels_are_kept_per_dimension() -> None:
    pair = pair_from(row(labels={"format": "B", "precision": "tie", "overall": None}))
    assert pair.labels == {"format": "2", "precision": "tie"}


def test_a_label_is_the_overall_one_and_labels_go_before_it() -> None:
    assert pair_from(row(label="A")).labels == {"overall": "1"}
    assert pair_from(row(label="A", labels={"overall": "B"})).labels == {"overall": "2"}
    assert pair_from(row(label="A", labels={"overall": None})).labels == {"overall": "1"}


def test_other_fields_are_kept_as_metadata() -> None:
    pair = pair_from(row(id=7, model_1="m", model_2=None, topic={"a": [1]}, note=None))
    assert (pair.id, pair.model_1, pair.model_2) == ("7", "m", "")
    assert pair.metadata == {"topic": {"a": [1]}, "note": None}


# -- the kinds of files ----------------------------------------------------------------------------


def test_jsonl_is_read(write: Write) -> None:
    assert instructions(write("a.jsonl", jsonl(row(1), row(2)))) == ["q1", "q2"]


def test_json_is_read(write: Write) -> None:
    assert instructions(write("a.json", json.dumps([row(1), row(2)], indent=2))) == ["q1", "q2"]


def test_csv_is_read_with_quotes_and_line_breaks(write: Write) -> None:
    file = write("a.csv", 'id,instruction,output_1,output_2,label,topic\n7,"say ""hi"",\nplease",x,y,A,talk\n')
    (pair,) = read_pairs(file)
    assert pair.instruction == 'say "hi",\nplease'
    assert (pair.id, pair.labels, pair.metadata) == ("7", {"overall": "1"}, {"topic": "talk"})


@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8], ids=["plain", "marked"])
@pytest.mark.parametrize(
    ("name", "delimiter"), [("a.csv", ";"), ("a.csv", "\t"), ("a.tsv", "\t")], ids=["semicolons", "tabs", "tsv"]
)
def test_a_csv_file_may_have_semicolons_or_tabs(write: Write, name: str, delimiter: str, mark: bytes) -> None:
    rows = [["instruction", "output_1", "output_2", "size, in words"], ["a, b", f"1{delimiter}2", "3, 4", "5"]]
    text = "".join(delimiter.join(f'"{cell}"' for cell in row) + "\r\n" for row in rows)
    [pair] = read_pairs(write(name, mark + text.encode()))
    assert pair.texts == ("a, b", f"1{delimiter}2", "3, 4")
    assert pair.metadata == {"size, in words": "5"}


def test_a_cell_too_many_names_the_delimiter(write: Write) -> None:
    with pytest.raises(PairError, match="quote cells that hold semicolons"):
        list(read_pairs(write("a.csv", "instruction;output_1;output_2\nq;x;y;z\n")))


@pytest.mark.parametrize(
    ("name", "encoding"), [("a.csv", "cp1252"), ("a.csv", "utf-16"), ("a.jsonl", "cp1252"), ("a.json", "cp1252")]
)
def test_a_file_of_windows_is_told_how_to_be_rewritten(write: Write, name: str, encoding: str) -> None:
    quoted = GOOD.replace("q", "\u201d")
    texts = {".csv": "instruction,output_1,output_2\n\u201d,x,y\n", ".jsonl": quoted, ".json": f"[{quoted}]"}
    with pytest.raises(PairError, match=f"not UTF-8 at byte .*iconv -f {encoding} -t utf-8"):
        list(read_pairs(write(name, texts[Path(name).suffix].encode(encoding))))


def test_a_spreadsheet_is_to_be_saved_as_csv(write: Write) -> None:
    with pytest.raises(InputError, match=r"'\.xlsx' .*save the sheet as CSV in UTF-8"):
        check_pairs(write("a.xlsx", b"PK"))


def test_labels_in_a_csv_cell_are_json(write: Write) -> None:
    file = write("a.csv", 'instruction,output_1,output_2,labels\nq1,x,y,"{""format"": ""B""}"\nq2,x,y,\n')
    assert [pair.labels for pair in read_pairs(file)] == [{"format": "2"}, {}]


def test_the_suffix_may_be_in_capitals(write: Write) -> None:
    assert instructions(write("A.JSONL", jsonl(row(1)))) == ["q1"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", jsonl(row(1), row(2))),
        ("a.json", json.dumps([row(1), row(2)])),
        ("a.csv", "instruction,output_1,output_2\nq1,x,y\nq2,x,y\n"),
    ],
)
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8], ids=["plain", "marked"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_byte_order_marks_and_line_ends_do_not_matter(
    write: Write, name: str, content: str, mark: bytes, end: str
) -> None:
    assert instructions(write(name, mark + content.replace("\n", end).encode())) == ["q1", "q2"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", f"\n{jsonl(row(1))}\n  \r\n{jsonl(row(2)).strip()}"),
        ("a.csv", "instruction,output_1,output_2\n\nq1,x,y\n\n\nq2,x,y"),
    ],
)
def test_blank_lines_and_a_missing_last_line_end_do_not_matter(write: Write, name: str, content: str) -> None:
    assert instructions(write(name, content)) == ["q1", "q2"]


def test_a_line_separator_inside_a_text_ends_no_line(write: Write) -> None:
    text = "one\u2028two\x85three"
    file = write("a.jsonl", json.dumps(row(1, output_1=text), ensure_ascii=False))
    assert next(read_pairs(file)).output_1 == text


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=3, max_size=3))
def test_any_text_comes_back_from_json(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    one = dict(zip(("instruction", "output_1", "output_2"), texts, strict=True))
    file = tmp_path_factory.getbasetemp() / "any.jsonl"
    file.write_text(json.dumps(one, ensure_ascii=False), encoding="utf-8")
    (pair,) = read_pairs(file)
    assert [pair.instruction, pair.output_1, pair.output_2] == texts


def test_standard_input_is_jsonl_and_may_be_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SPILLED", {})
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(jsonl(row(1), row(2)).encode())))
    assert check_pairs("-") == (2, [])
    assert [pair.instruction for pair in read_pairs("-")] == ["q1", "q2"]
    module._SPILLED["-"].unlink()


# -- faults ----------------------------------------------------------------------------------------

HEADER = b"instruction,output_1,output_2\n"
LATIN = "caf\xe9".encode("latin-1")
# what is wrong: the file's name, its content, the line at fault, words of the fault
BAD: dict[str, tuple[str, str | bytes, int | None, str]] = {
    "broken JSON in the middle": ("a.jsonl", f'{GOOD}\n{{"instruction": \n{GOOD}\n', 2, "not JSON"),
    "two objects on a line": ("a.jsonl", f"{GOOD}\n{GOOD} {GOOD}\n", 2, "not JSON: Extra data"),
    "broken JSON after blank lines": ("a.jsonl", f"\n\n{GOOD}\n\n[1\n", 5, "not JSON"),
    "no object": ("a.jsonl", f"{GOOD}\n[1, 2]\n", 2, "the line is not a JSON object"),
    "nested too deeply": ("a.jsonl", f"{GOOD}\n{'[' * 100_000}\n", 2, "not JSON"),
    "a number too long to read": ("a.jsonl", f'{GOOD}\n{{"id": {"1" * 5000}}}\n', 2, "not JSON"),
    "missing field": ("a.jsonl", f'{GOOD}\n{{"instruction": "q", "output_1": "x"}}', 2, "no field 'output_2'"),
    "null": ("a.jsonl", jsonl(row(1), row(2, output_1=None)), 2, "field 'output_1' is null, not text"),
    "number": ("a.jsonl", jsonl(row(1), row(2, output_2=4)), 2, "field 'output_2' is of type int, not text"),
    "list": ("a.jsonl", jsonl(row(1, instruction=["q"])), 1, "field 'instruction' is of type list, not text"),
    "lone surrogate": ("a.jsonl", jsonl(row(1, output_1="ab\ud800")), 1, "'output_1' holds a lone surrogate"),
    "lone surrogate in the id": ("a.jsonl", jsonl(row(1, id="\ud800")), 1, "'id' holds a lone surrogate"),
    "not UTF-8": ("a.jsonl", GOOD.encode() + b"\n" + GOOD.encode().replace(b"q", LATIN), 2, "not UTF-8 at byte 20"),
    "unknown label": ("a.jsonl", jsonl(row(1), row(2, label="C")), 2, "label 'C' is none of"),
    "labels of the wrong kind": ("a.jsonl", jsonl(row(1, labels=["A"])), 1, "'labels' is not an object"),
    "id of the wrong kind": ("a.jsonl", jsonl(row(1, id=["A"])), 1, "field 'id' is of type list, not a name"),
    "JSON: broken": ("a.json", f"[\n{GOOD},\n{{]\n", 3, "not JSON"),
    "JSON: nested too deeply": ("a.json", "[" * 100_000, None, "not JSON"),
    "JSON: not UTF-8": ("a.json", b'["' + LATIN + b'"]', None, "not UTF-8 at byte 5"),
    "JSON: no list": ("a.json", "5", None, "the file is not a list of objects"),
    "JSON: no object": ("a.json", f"[{GOOD}, 5]", None, "item 2: the item is not an object"),
    "JSON: missing field": ("a.json", f'[{GOOD},\n\n{{"instruction": "q"}}]', None, "item 2: no field 'output_1'"),
    "JSON: nothing": ("a.json", "", None, "not JSON: the file is empty"),
    "CSV: missing column": ("a.csv", "instruction,output_1\nq,x\n", 2, "no field 'output_2'"),
    "CSV: too many cells": ("a.csv", HEADER + b"q,x,y\nq,x,y,z\n", 3, "more cells than the header has fields"),
    "CSV: too few cells": ("a.csv", HEADER + b"q,x,y\nq,x\n", 3, "fewer cells than the header has fields"),
    "CSV: quote not closed": ("a.csv", HEADER + b'q,x,"y\n', 2, "not CSV"),
    "CSV: not UTF-8": ("a.csv", HEADER + b"q,x,y\n" * 5000 + LATIN + b",x,y\n", 5002, "not UTF-8 at byte 3"),
    "CSV: unknown label": ("a.csv", "instruction,output_1,output_2,label\nq,x,y,C\n", 2, "label 'C' is none of"),
    "CSV: labels that are no JSON": ("a.csv", "instruction,output_1,output_2,labels\nq,x,y,A\n", 2, "'labels'"),
    "CSV: a row of several lines": ("a.csv", HEADER + b'\n"q\nq",x,y\n\n"r\nr",x\n', 6, "fewer cells"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "line", "fault"), BAD.values(), ids=BAD.keys())
def test_a_fault_is_told_with_its_place(
    write: Write, name: str, content: str | bytes, line: int | None, fault: str
) -> None:
    file = write(name, content)
    with pytest.raises(PairError) as caught:
        list(read_pairs(file))
    assert (caught.value.file, caught.value.line) == (str(file), line)
    assert fault in caught.value.fault
    assert str(caught.value).startswith(f"{file}:{line}: " if line else f"{file}: ")


def test_good_rows_before_a_fault_are_read(write: Write) -> None:
    stream = read_pairs(write("a.jsonl", f"{GOOD}\nnonsense\n"))
    assert next(stream).instruction == "q"
    with pytest.raises(PairError):
        next(stream)


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt", "a"])
def test_an_unknown_kind_of_file_is_refused(write: Write, name: str) -> None:
    with pytest.raises(InputError, match=r"unknown kind of file .*use \.jsonl, \.json, \.csv"):
        check_pairs(write(name, GOOD))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file of pairs at .*nowhere\.jsonl"):
        check_pairs(tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.jsonl", ""), ("a.jsonl", "\n \n"), ("a.json", "[]"), ("a.csv", ""), ("a.csv", "instruction,output_1\n")],
)
def test_a_file_without_pairs_is_refused(write: Write, name: str, content: str) -> None:
    with pytest.raises(PairError, match=r"no pairs in this file \(expected rows with the fields instruction"):
        check_pairs(write(name, content))


# -- passing over bad rows -------------------------------------------------------------------------


def test_bad_rows_are_passed_over_and_told(write: Write) -> None:
    lines = [GOOD, "nonsense", '{"instruction": "q"}', GOOD.replace("q", "r"), jsonl(row(1, output_1=None)).strip()]
    skipped: list[PairError] = []
    found = list(read_pairs(write("a.jsonl", "\n".join(lines)), skip_bad=True, skipped=skipped))
    assert [pair.instruction for pair in found] == ["q", "r"]
    assert [error.line for error in skipped] == [2, 3, 5]


def test_bad_rows_may_be_passed_over_without_a_list(write: Write) -> None:
    assert len(list(read_pairs(write("a.csv", HEADER + b"q,x,y\nq,x\n"), skip_bad=True))) == 1


def test_the_check_counts_good_rows_and_tells_the_bad_ones(write: Write) -> None:
    file = write("a.json", f"[{GOOD}, 5, null]")
    count, bad = check_pairs(file, skip_bad=True)
    assert (count, [error.fault for error in bad]) == (
        1,
        ["item 2: the item is not an object", "item 3: the item is not an object"],
    )


def test_a_file_of_bad_rows_alone_has_no_pairs(write: Write) -> None:
    with pytest.raises(PairError, match="no pairs in this file"):
        check_pairs(write("a.jsonl", "nonsense\n"), skip_bad=True)


# -- ids that stand twice --------------------------------------------------------------------------


@pytest.mark.parametrize("skip_bad", [False, True])
def test_an_id_that_stands_twice_is_named_with_both_lines(write: Write, skip_bad: bool) -> None:
    file = write("a.jsonl", "\n" + jsonl(row(1, id="a"), row(2, id="b"), row(3, id="c"), row(4, id="b")))
    with pytest.raises(PairError) as caught:
        check_pairs(file, skip_bad=skip_bad)
    assert (caught.value.line, caught.value.fault) == (5, "id 'b' is already at line 3")


def test_an_id_that_stands_twice_in_json_is_named_with_both_items(write: Write) -> None:
    with pytest.raises(PairError, match=r"a\.json: item 3: id 'b' is already at item 2"):
        check_pairs(write("a.json", json.dumps([row(1, id="a"), row(2, id="b"), row(3, id="b")])))


def test_the_same_texts_without_ids_are_the_same_pair(write: Write) -> None:
    with pytest.raises(PairError, match=r"a\.jsonl:2: id 'pair-\w+' is already at line 1"):
        check_pairs(write("a.jsonl", f"{GOOD}\n{GOOD}\n"))


def test_bad_rows_do_not_confuse_the_search_for_twins(write: Write) -> None:
    with pytest.raises(PairError, match=r"a\.jsonl:4: .* is already at line 3"):
        check_pairs(write("a.jsonl", f"nonsense\n{{}}\n{GOOD}\n{GOOD}\n"), skip_bad=True)


# -- streaming -------------------------------------------------------------------------------------


def big_rows(form: str, count: int) -> Iterator[str]:
    long = "word " * 200
    if form == "csv":
        yield HEADER.decode()
    for number in range(count):
        yield f"q{number},{long},y\n" if form == "csv" else json.dumps(row(number, output_1=long)) + "\n"


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_reading_holds_one_row_at_a_time(tmp_path: Path, form: str) -> None:
    file = tmp_path / f"big.{form}"
    with file.open("w", encoding="utf-8") as out:
        out.writelines(big_rows(form, 5000))
    tracemalloc.start()
    try:
        assert check_pairs(file)[0] == sum(1 for _ in read_pairs(file)) == 5000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert file.stat().st_size > 5_000_000
    assert peak < 1_000_000


def test_the_first_pairs_come_before_the_rest_is_read(write: Write) -> None:
    file = write("a.jsonl", jsonl(row(1), row(2)) + "nonsense\n")
    assert [pair.instruction for pair in islice(read_pairs(file), 2)] == ["q1", "q2"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_the_quick_parser_reads_what_the_plain_one_reads(value: Any) -> None:
    line = json.dumps(value).encode()
    assert repr(parse(line)) == repr(json.loads(line))


@pytest.mark.parametrize("line", [b'{"id": 123456789012345678901234567890}', b"[1e400, NaN]", b'"\\ud83d"'])
def test_what_the_quick_parser_reads_otherwise_is_left_to_the_plain_one(line: bytes) -> None:
    assert repr(parse(line)) == repr(json.loads(line))
