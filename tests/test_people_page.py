"""The owner's page of people: links, names, adjudication, labels to take away and pairs to bring in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from evenhand import Pair
from evenhand.store import HumanLabel, Store
from evenhand.views.web import uploads
from evenhand.views.web.guard import form_token
from evenhand.views.web.serving import ServerAddress, open_site
from web_server import CANARY, HOSTILE, Answer, Client, WebServer, fill, plain_pairs

BOUNDARY = "----evenhand"


@pytest.fixture
def server(db: Path) -> Iterator[WebServer]:
    with Store(db) as store:
        store.add_pairs(replace(pair, labels={}) for pair in plain_pairs(8))
    with WebServer(db) as server:
        yield server


@pytest.fixture
def owner(server: WebServer) -> Client:
    return server.owner()


def link_in(page: Answer) -> str:
    assert page.status == 200, page.text
    found = re.search(r'id="link" readonly value="([^"]+)"', page.text)
    assert found, page.text
    return urlsplit(found[1]).path


def come_in(server: WebServer, page: Answer) -> Client:
    client = server.client()
    assert client.get(link_in(page)).status == 303
    return client


def invited(server: WebServer, owner: Client, name: str, **fields: str) -> Client:
    return come_in(
        server, owner.post("/people/invite", {"name": name, "count": 8, "shared": 8, "seed": 1, **fields})
    )


def answer(client: Client, label: str, note: str = "") -> None:
    """Answer the question that is open."""
    page = client.get("/annotate").text
    form = page[page.index('id="say"') :]
    fields = {name: re.search(rf'name="{name}" value="([^"]*)"', form)[1] for name in ("place", "dimension")}  # type: ignore[index]
    assert client.post("/annotate/save", {**fields, "label": label, "note": note}).status == 303


def differ(store: Store, key: str, dimension: str) -> None:
    """Two people say two things."""
    store.labels.add([HumanLabel(key, dimension, "ann", "1"), HumanLabel(key, dimension, "ben", "2")])


def upload(owner: Client, name: str, data: bytes, token: str | None = None) -> Answer:
    session = next(value for key, value in owner.cookies.items() if "owner" in key)
    given = form_token(session) if token is None else token
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="token"\r\n\r\n{given}\r\n--{BOUNDARY}\r\n'
    file = f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: text/plain\r\n\r\n'
    body = head.encode() + file.encode() + data + f"\r\n--{BOUNDARY}--\r\n".encode()
    return owner.ask("POST", "/people/pairs", body, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"})


def rows(*pairs: Pair) -> bytes:
    keys = ("instruction", "output_1", "output_2")
    return "\n".join(json.dumps({key: getattr(pair, key) for key in keys}) for pair in pairs).encode()


# -- links -----------------------------------------------------------------------------------------


def test_a_link_that_only_this_machine_can_open_says_so(owner: Client) -> None:
    page = owner.post("/people/invite", {"name": "ann", "count": 2})
    assert "This link works on this machine only" in page.text
    assert re.search(r"evenhand serve --db \S+\.db --listen ADDRESS", page.text), (
        "or it would serve another database"
    )
    assert 'data-copy="link" hidden' in page.text, "without a script there is no button that does nothing"


@pytest.mark.parametrize(
    ("address", "local"),
    [
        (ServerAddress(), True),
        (ServerAddress("::1"), True),
        (ServerAddress("localhost"), True),
        (ServerAddress("0.0.0.0", names=("lab.example",)), False),
        (ServerAddress("127.0.0.1", names=("lab.example",)), False),  # behind a proxy of that name
        (ServerAddress("192.0.2.7"), False),
    ],
)
def test_how_far_a_link_reaches(db: Path, address: ServerAddress, local: bool) -> None:
    with Store(db):
        assert open_site(db, address, 8765, "a password").is_local == local


# -- names -----------------------------------------------------------------------------------------


def test_an_annotator_is_renamed_and_labels_on(server: WebServer, owner: Client, db: Path) -> None:
    client = invited(server, owner, "anm")
    answer(client, "A")
    assert owner.post("/people/rename", {"name": "anm", "new": "ann"}).status == 303
    answer(client, "B")
    with Store(db) as store:
        assert store.labels.annotators() == {"ann": 2}
    assert owner.post("/people/rename", {"name": "ann", "new": " "}).status == 400
    assert owner.post("/people/rename", {"name": "anm", "new": "x"}).status == 404


def test_whoever_is_removed_is_out_at_once(server: WebServer, owner: Client, db: Path) -> None:
    client = invited(server, owner, "ann")
    answer(client, "A")
    assert "with all labels on 1 pair<" in owner.get("/people").text
    assert owner.post("/people/remove", {"name": "ann"}).status == 303
    assert client.get("/annotate").status == 403
    with Store(db) as store:
        assert store.labels.annotators() == {"ann": 1}, "what was said stays, unless the owner says otherwise"
    ben = invited(server, owner, "ben")
    answer(ben, "A")
    owner.post("/people/remove", {"name": "ben", "labels": "1"})
    with Store(db) as store:
        assert store.labels.annotators() == {"ann": 1}


# -- guidelines ------------------------------------------------------------------------------------


def test_overall_alone_has_guidelines(server: WebServer, owner: Client) -> None:
    ann = invited(server, owner, "ann")
    page = ann.get("/annotate").text
    assert "Guidelines" in page
    assert "Longer is not better by itself" in page
    assert 'id="rubric" open' in page, "whoever begins reads them"
    answer(ann, "A")
    assert 'id="rubric" open' not in ann.get("/annotate").text


def test_the_owners_own_guidelines_are_shown_as_text(server: WebServer, owner: Client) -> None:
    words = f"Prefer metric units.\r\n<script>{CANARY}</script>"
    page = invited(server, owner, "ann", guidelines=words, asked="chained").get("/annotate").text
    assert "Prefer metric units." in page
    assert f"&lt;script&gt;{CANARY}" in page
    assert f"<script>{CANARY}" not in page
    assert "Precision: how closely" in page, "the protocol's own rubric stays"
    assert owner.post("/people/invite", {"name": "ben", "guidelines": "x" * 8001}).status == 400


# -- adjudication ----------------------------------------------------------------------------------


def test_a_third_person_decides_what_two_people_differ_on(server: WebServer, owner: Client, db: Path) -> None:
    for name, labels in (("ann", "A" * 8), ("ben", "AB" * 4)):
        client = invited(server, owner, name)
        for label in labels:
            answer(client, label, note=f"<b>{CANARY}</b> note of mine" if label == "B" else "")
    with Store(db) as store:
        said = {who: {x.pair: x.side for x in store.labels.all(annotator=who)} for who in ("ann", "ben")}
    differing = {pair for pair in said["ann"] if said["ann"][pair] != said["ben"][pair]}
    page = owner.get("/people").text
    assert f"People differ on <b>{len(differing)}</b>" in page
    cleo = come_in(server, owner.post("/people/adjudicate", {"name": "cleo", "seed": 5}))
    for _ in differing:
        shown = cleo.get("/annotate").text
        assert re.search(r"[AB]: 1 person, [AB]: 1 person", shown)
        assert not re.search(r"\b(ann|ben)\b", shown), "whoever decides does not know whose word it was"
        assert f"<b>{CANARY}" not in shown
        answer(cleo, "tie")
    assert "All done" in cleo.get("/annotate").text
    with Store(db) as store:
        decided = {x.pair: (x.side, x.role) for x in store.labels.all(annotator="cleo")}
    assert decided == dict.fromkeys(differing, ("tie", "adjudicator"))
    assert f"All {len(differing)} pairs on which people differ are decided" in owner.get("/people").text


def test_what_people_differ_on_later_comes_to_the_adjudicator_by_itself(
    server: WebServer, owner: Client, db: Path
) -> None:
    key = plain_pairs(8)[0].key
    with Store(db) as store:
        differ(store, key, "overall")
    cleo = come_in(server, owner.post("/people/adjudicate", {"name": "cleo"}))
    answer(cleo, "A")
    assert "differ on nothing else" in cleo.get("/annotate").text
    with Store(db) as store:
        key = plain_pairs(8)[1].key
        differ(store, key, "format")
    shown = cleo.get("/annotate").text
    assert "Which response is better on format?" in shown


def test_a_pair_shows_what_was_decided(server: WebServer, owner: Client, db: Path) -> None:
    key = plain_pairs(8)[1].key
    with Store(db) as store:
        differ(store, key, "overall")
        store.labels.add([HumanLabel(key, "overall", "cleo", "2", role="adjudicator")])
        number = store.pages.number(key)
    page = owner.get(f"/pair/{number}?all=1").text
    assert "overall, decided by cleo" in page
    assert '<th scope="row">cleo</th>' not in page, "no vote among votes"


# -- files -----------------------------------------------------------------------------------------


def test_labels_are_taken_away_as_a_file(server: WebServer, owner: Client) -> None:
    answer(invited(server, owner, "ann"), "A", note="=1+1")
    table = owner.get("/people/labels.csv")
    assert table.headers["content-disposition"] == 'attachment; filename="labels.csv"'
    assert table.headers["content-type"].startswith("text/csv")
    assert "'=1+1" in table.text
    found = [json.loads(line) for line in owner.get("/people/labels.jsonl?texts=1").text.splitlines()]
    assert [row["instruction"][:8] for row in found if row["annotator"] == "ann"] == ["Question"]
    assert owner.get("/people/labels.exe").status == 404


def test_a_file_of_pairs_is_added_on_the_page(owner: Client, db: Path) -> None:
    new = Pair("New?", "yes", "no")
    done = upload(owner, "more.jsonl", rows(new, plain_pairs(1)[0]))
    assert done.status == 200
    assert "2 pairs in more.jsonl" in done.text
    with Store(db) as store:
        assert store.pages.number(new.key) is not None
        assert not store.judges(), "no judge was asked"


def test_a_file_of_another_tool_is_known_by_its_fields(owner: Client, db: Path) -> None:
    data = b"question,response_A,response_B,label\r\n2 + 2?,4,5,A>B\r\n"
    assert "1 pair in bench.csv" in upload(owner, "bench.csv", data).text
    with Store(db) as store:
        assert store.pages.number(Pair("2 + 2?", "4", "5").key) is not None


def test_text_of_an_uploaded_file_stays_text(owner: Client, db: Path) -> None:
    pairs = [Pair(f"{name} {text}", text, "other") for name, text in HOSTILE.items()]
    assert upload(owner, f'"><script>{CANARY}</script>.jsonl', rows(*pairs)).status in (200, 400)
    done = upload(owner, "bad.jsonl", rows(*pairs))
    assert done.status == 200
    page = owner.get("/pairs/all").text
    assert f"<script>{CANARY}" not in page + done.text


@pytest.mark.parametrize(
    ("name", "data", "status", "said"),
    [
        ("pairs.jsonl", b'{"instruction": "x", "output_1": "a"}', 400, "pairs.jsonl:1: no field"),
        ("pairs.jsonl", b"", 400, "no pairs in this file"),
        ("pairs.jsonl", b"\xff\xfe\x00", 400, "pairs.jsonl"),
        ("pairs.exe", b"MZ", 400, "is no .jsonl"),
        ("pairs.jsonl.gz", b"\x1f\x8b", 400, "is no .jsonl"),
        ("../../etc/pairs.jsonl", b"{}", 400, "no field"),
        ("", b"", 400, "no file was chosen"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_and_keeps_nothing(
    owner: Client, db: Path, name: str, data: bytes, status: int, said: str
) -> None:
    done = upload(owner, name, data)
    assert done.status == status
    assert said in done.text.replace("&#39;", "'")
    assert "/tmp" not in done.text, "the owner knows the file by its own name"
    with Store(db) as store:
        assert store.pages.totals()["pairs"] == 8


def test_one_bad_row_keeps_the_whole_file_out(owner: Client, db: Path) -> None:
    done = upload(owner, "half.jsonl", rows(Pair("New?", "yes", "no")) + b'\n{"instruction": 1}')
    assert done.status == 400
    assert "half.jsonl:2" in done.text
    with Store(db) as store:
        assert store.pages.totals()["pairs"] == 8


def test_an_upload_is_bounded(owner: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MOST_UPLOAD", 2000)
    assert upload(owner, "large.jsonl", b"x" * 3000).status == 413


def test_an_upload_needs_owner_origin_and_token(server: WebServer, owner: Client, db: Path) -> None:
    good = rows(Pair("New?", "yes", "no"))
    assert upload(owner, "a.jsonl", good, token="x").status == 403
    stranger = Client(server.port, {f"evenhand_owner_{server.port}": "guessed"})
    assert upload(stranger, "a.jsonl", good).status == 403
    body = f"--{BOUNDARY}\r\n\r\n--{BOUNDARY}--".encode()
    head = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    assert owner.ask("POST", "/people/pairs", body, {**head, "Origin": "http://evil.test"}).status == 403
    assert owner.ask("POST", "/people/pairs", body, head).status == 400
    assert owner.ask("POST", "/people/pairs", b"name=x", {}).status == 415
    with Store(db) as store:
        assert store.pages.totals()["pairs"] == 8


# -- beside a judge --------------------------------------------------------------------------------


def test_the_overview_says_where_people_do_not_agree_with_each_other(db: Path) -> None:
    """A share of right sides by itself would look like praise, or blame, of the judge."""
    pairs = [replace(pair, labels={}) for pair in plain_pairs(24)]
    fill(db, pairs)
    with Store(db) as store:
        for name, votes in (("ann", "1122"), ("ben", "1212"), ("cleo", "1221")):
            store.labels.add(
                HumanLabel(pair.key, "overall", name, votes[n % 4])  # type: ignore[arg-type]
                for n, pair in enumerate(pairs)
            )
    with WebServer(db) as server:
        page = server.owner().get("/").text
    assert "Right side on" in page
    assert "There is nothing to measure a judge by." in page
