"""The web page over real HTTP on loopback: who may ask for what, what is refused, what comes back."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from evenhand import Pair
from evenhand.core.errors import InputError
from evenhand.results.suggestions import suggest
from evenhand.store import HumanLabel, Store
from evenhand.views.web.guard import HEADERS, MOST_BYTES, form_token
from evenhand.views.web.labelling import REASONS
from evenhand.views.web.serving import ServerAddress, serve
from web_server import HOSTILE, Client, WebServer, fill, fill_names, hostile_pairs, plain_pairs

LOOKS = (
    *("/", "/pairs", "/pairs/all", "/pair/1", "/pair/1/text/output_1", "/people", "/card", "/find/x"),
    "/people/labels.csv",
)
CHANGES = (
    *("/people/invite", "/people/renew", "/people/more", "/leave"),
    *("/people/adjudicate", "/people/rename", "/people/remove"),
)
LABELLING = ("/annotate/save", "/annotate/skip", "/annotate/undo", "/annotate/again")


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("http") / "evenhand.db"
    fill(path, [*plain_pairs(24), Pair("unreadable", "x", "y", id="broken")], ("chained", "overall"))
    return path


@pytest.fixture(scope="module")
def server(db: Path) -> Iterator[WebServer]:
    with WebServer(db) as server:
        yield server


@pytest.fixture
def owner(server: WebServer) -> Client:
    return server.owner()


def annotator(server: WebServer, name: str, **fields: Any) -> Client:
    """Somebody who was invited and has opened their link."""
    page = server.owner().post("/people/invite", {"name": name, "count": 6, "shared": 3, "seed": 1, **fields})
    assert page.status == 200, page.text
    link = re.search(r'value="(http://[^"]+/a/[^"]+)"', page.text)
    assert link
    client = server.client()
    came = client.get(urlsplit(link[1]).path)
    assert came.status == 303
    return client


def task(client: Client) -> dict[str, str]:
    """The fields of the form that is open."""
    page = client.get("/annotate").text
    form = page[page.index('id="say"') :]
    return {name: re.search(rf'name="{name}" value="([^"]*)"', form)[1] for name in ("place", "dimension")}  # type: ignore[index]


def labels(db: Path, name: str) -> list[HumanLabel]:
    with Store(db) as store:
        return list(store.labels.all(annotator=name))


# -- the door --------------------------------------------------------------------------------------


def test_the_owners_link_works_once_and_another_is_announced(server: WebServer) -> None:
    link = server.link
    first, second = server.client(), server.client()
    assert first.get(link).headers["location"] == "/"
    assert first.get("/").status == 200
    assert second.get(link).status == 403
    assert not second.cookies
    assert server.said[-1] == f"{server.base}{server.link}"
    assert second.get(server.link).status == 303


def test_a_link_that_is_only_looked_at_is_not_used_up(server: WebServer) -> None:
    client = server.client()
    assert client.ask("HEAD", server.link, None, {}).status == 204
    assert client.get(server.link, Sec_Purpose="prefetch").status == 204
    assert client.get(server.link).status == 303


def test_whoever_is_in_may_use_a_dead_link(server: WebServer) -> None:
    link, client = server.link, server.client()
    assert client.get(link).status == 303
    assert client.get(link).headers["location"] == "/"


def test_leaving_ends_the_session(server: WebServer) -> None:
    client = server.owner()
    assert client.post("/leave").status == 200
    assert client.get("/").status == 403


@pytest.mark.parametrize("path", LOOKS)
def test_nothing_is_shown_without_a_link(server: WebServer, path: str) -> None:
    for cookies in (
        {},
        {f"evenhand_owner_{server.port}": "guessed"},
        {f"evenhand_annotator_{server.port}": "guessed"},
    ):
        answer = Client(server.port, cookies).get(path)
        assert answer.status == 403
        assert "spider" not in answer.text


@pytest.mark.parametrize("path", [*CHANGES, *LABELLING])
def test_nothing_is_changed_without_a_link(server: WebServer, path: str) -> None:
    assert server.client().post(path, {"name": "x", "place": "1"}).status == 403


def test_cookies_stay_out_of_reach(server: WebServer) -> None:
    said = server.client().get(server.link).headers["set-cookie"].lower()
    assert "httponly" in said
    assert "samesite=lax" in said


# -- hosts, origins, tokens ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.test:{port}", "", "-"]
)
def test_a_foreign_host_is_not_answered(server: WebServer, owner: Client, host: str) -> None:
    """DNS rebinding: a name of theirs that leads to 127.0.0.1."""
    answer = owner.get("/", Host=host.format(port=server.port))
    assert answer.status in (400, 421)
    assert "Overview" not in answer.text


@pytest.mark.parametrize("host", ["127.0.0.1:{port}", "localhost:{port}", "LOCALHOST:{port}", "[::1]:{port}"])
def test_our_own_hosts_are_answered(server: WebServer, owner: Client, host: str) -> None:
    assert owner.get("/", Host=host.format(port=server.port)).status == 200


@pytest.mark.parametrize("origin", ["http://evil.test", "null", "", "-", "http://127.0.0.1:1", "http://127.0.0.1"])
@pytest.mark.parametrize("path", [*CHANGES, *LABELLING])
def test_a_change_from_another_origin_is_refused(owner: Client, path: str, origin: str) -> None:
    assert owner.post(path, {"name": "ann"}, Origin=origin).status == 403


@pytest.mark.parametrize("token", ["", "x", "0" * 64, None])
@pytest.mark.parametrize("path", CHANGES)
def test_a_change_without_the_token_is_refused(owner: Client, path: str, token: str | None) -> None:
    body = "name=ann" + ("" if token is None else f"&token={token}")
    answer = owner.ask("POST", path, body, {})
    assert answer.status == 403
    assert "out of date" in answer.text


def test_labelling_without_the_token_is_refused(server: WebServer, db: Path) -> None:
    client = annotator(server, "tokenless")
    open_now = task(client)
    for path in LABELLING:
        for token in ("", "x", form_token("another")):
            answer = client.post(path, {**open_now, "label": "A", "reason": REASONS[0], "token": token})
            assert answer.status == 403, path
    assert not labels(db, "tokenless")


@pytest.mark.parametrize("path", [*CHANGES, *LABELLING])
def test_looking_changes_nothing(owner: Client, path: str) -> None:
    assert owner.get(path).status == 405


def test_another_site_may_link_here_but_not_load_from_here(owner: Client) -> None:
    foreign = {"Sec_Fetch_Site": "cross-site"}
    assert owner.get("/", **foreign, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document").status == 200
    assert owner.get("/", **foreign, Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="script").status == 403
    assert owner.get("/", **foreign, Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe").status == 403


@pytest.mark.parametrize(
    "path", ["/", "/pairs", "/nowhere", "/static/style.css", "/static/nowhere", "/pairs?judge=x"]
)
def test_every_answer_has_the_headers_that_keep_it_to_itself(owner: Client, path: str) -> None:
    answer = owner.get(path)
    for name, value in HEADERS.items():
        assert answer.headers[name.lower()] == value
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_a_fault_of_ours_goes_out_with_the_same_headers(server: WebServer, owner: Client) -> None:
    with server.site.store() as store:
        store._db.execute("ALTER TABLE outcomes RENAME TO elsewhere")
    try:
        answer = owner.get("/pairs")
    finally:
        with server.site.store() as store:
            store._db.execute("ALTER TABLE elsewhere RENAME TO outcomes")
    assert answer.status == 500
    assert "Traceback" not in answer.text
    assert answer.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]


def test_no_page_has_a_script_or_a_style_of_its_own(server: WebServer, owner: Client) -> None:
    client = annotator(server, "inline")
    for who, path in (
        (owner, "/"),
        (owner, "/pairs"),
        (owner, "/pair/1"),
        (owner, "/people"),
        (client, "/annotate"),
    ):
        page = who.get(path).text
        assert not re.search(r"<script(?![^>]*\ssrc=\"/static/)", page), path
        assert not re.search(r"<[^>]*\s(?:style|on\w+)=", page), path
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//", page), path


# -- wrong input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        *("judge=x", "judge=99", "judge=-1", "judge=1e3", "judge=٣", f"judge={'9' * 40}", "dimension=nothing"),
        *("verdict=3", "only=all", "longer=x", "gap=-5", "gap=many", "sort=random", "page=0", "page=x", "page=-1"),
        *(f"page={'9' * 5000}", f"gap={'9' * 5000}", f"judge={'9' * 5000}"),
    ],
)
def test_a_wrong_query_is_said_in_a_sentence(owner: Client, query: str) -> None:
    answer = owner.get(f"/pairs?{quote(query, safe='=')}")
    assert answer.status == 400
    assert "<h1>" in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "/pair/999",
        "/pair/" + "9" * 5000,
        "/pair/-1",
        "/pair/x",
        "/pair/999/text/output_1",
        "/pair/1/text/labels",
        "/find/x",
        "/nowhere",
    ],
)
def test_what_is_not_there_is_not_found(owner: Client, path: str) -> None:
    assert owner.get(path).status == 404


@pytest.mark.parametrize("path", ["/pair/1?show=x", "/pair/1?order=x", "/pair/x", "/pair/-1", f"/pair/{'9' * 30}"])
def test_a_wrong_address_is_refused(owner: Client, path: str) -> None:
    assert owner.get(path).status in (400, 404)


def test_a_page_beyond_the_last_is_the_last(owner: Client) -> None:
    assert "pair-0000" in owner.get("/pairs?page=999").text


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"x" * (MOST_BYTES + 1), "application/x-www-form-urlencoded", 413),
        (b"{}", "application/json", 415),
        (b"a=1", "text/plain", 415),
        (b"a=1", "multipart/form-data; boundary=x", 415),
        (b"no equals sign", "application/x-www-form-urlencoded", 400),
        (b"a=%ff%fe", "application/x-www-form-urlencoded", 400),
        (b"\xff\xfe=1", "application/x-www-form-urlencoded", 400),
        (b"&".join(b"a=1" for _ in range(100)), "application/x-www-form-urlencoded", 400),
    ],
)
def test_a_body_that_is_no_form_of_ours_is_refused(owner: Client, body: bytes, kind: str, status: int) -> None:
    assert owner.ask("POST", "/people/invite", body, {"Content_Type": kind}).status == status


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "x" * 81},
        {"name": "n", "count": "0"},
        {"name": "n", "count": "-3"},
        {"name": "n", "count": "many"},
        {"name": "n", "seed": "x"},
        {"name": "n", "asked": "nothing"},
    ],
)
def test_a_wrong_invitation_is_refused_and_invites_nobody(owner: Client, db: Path, fields: dict[str, str]) -> None:
    assert owner.post("/people/invite", fields).status == 400
    with Store(db) as store:
        assert not {"n", ""} & {who.name for who in store.annotation.annotators()}


@pytest.mark.parametrize(
    "wrong",
    [
        {"label": "C"},
        {"label": ""},
        {"label": "1"},
        {"place": "x"},
        {"place": ""},
        {"place": "99"},
        {"dimension": "format"},
        {"note": "x" * 4001},
    ],
)
def test_a_wrong_verdict_is_refused_and_keeps_nothing(server: WebServer, db: Path, wrong: dict[str, str]) -> None:
    name = f"wrong {sorted(wrong.items())[0]}"[:60]
    client = annotator(server, name)
    answer = client.post("/annotate/save", {**task(client), "label": "A", **wrong}, Accept="application/json")
    assert answer.status in (400, 409)
    assert answer.json["error"]
    assert not labels(db, name)


@pytest.mark.parametrize(
    ("said", "kept"), [("12.34", 12.3), ("-1", None), ("nan", None), ("1e9", None), ("x", None)]
)
def test_the_time_is_taken_if_it_can_be(server: WebServer, db: Path, said: str, kept: float | None) -> None:
    client = annotator(server, f"time {said}")
    client.post("/annotate/save", {**task(client), "label": "A", "seconds": said})
    assert [label.seconds for label in labels(db, f"time {said}")] == [kept]


# -- annotators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LOOKS)
def test_annotators_see_none_of_the_owners_pages(server: WebServer, path: str) -> None:
    client = annotator(server, f"curious {path}")
    assert client.get(path).status == 403
    for change in CHANGES:
        session = next(iter(client.cookies.values()))
        assert client.post(change, {"name": "x", "token": form_token(session)}).status == 403


def test_annotators_see_no_model_no_verdict_and_no_id(server: WebServer) -> None:
    client = annotator(server, "blind", count=24)
    for _ in range(6):
        page = client.get("/annotate").text
        assert "spider" in page
        for word in ("alpha", "beta", "gamma", "pair-00", "zoology", "maths", "scripted", "forward", "swapped"):
            assert word not in page, word
        client.post("/annotate/save", {**task(client), "label": "tie"})
    said = client.get("/annotate/said").text
    assert not {word for word in ("alpha", "beta", "gamma", "pair-00", "forward", "swapped") if word in said}


def test_what_was_said_shows_both_responses_as_they_were_shown(server: WebServer) -> None:
    """Among many models a dozen pairs share an instruction: it alone does not say which pair that was."""
    client = annotator(server, "looks back", count=4)
    seen = []
    for _ in range(4):
        boxes = [client.get(f"/annotate/text/{task(client)['place']}/{which}").text for which in ("a", "b")]
        seen.append([box[:40] for box in boxes])
        client.post("/annotate/save", {**task(client), "label": "A"})
    said = client.get("/annotate/said").text
    for a, b in seen:
        assert said.index(f"A: {escape(a)}") < said.index(f"B: {escape(b)}", said.index(f"A: {escape(a)}"))


def test_what_was_said_marks_a_text_that_is_cut(tmp_path: Path) -> None:
    fill(tmp_path / "long.db", [Pair("Say a word.", "word " * 100, "word", id="p")])
    with WebServer(tmp_path / "long.db") as server:
        client = annotator(server, "ann", count=1)
        client.post("/annotate/save", {**task(client), "label": "A"})
        said = client.get("/annotate/said").text
    assert said.count("word…") + said.count("wor…") + said.count("word …") == 1


def test_an_annotators_link_may_be_used_again_until_there_is_a_new_one(server: WebServer, owner: Client) -> None:
    client = annotator(server, "renewed")
    secret = next(iter(client.cookies.values()))
    assert server.client().get(f"/a/{secret}").status == 303
    assert owner.post("/people/renew", {"name": "renewed"}).status == 200
    assert server.client().get(f"/a/{secret}").status == 403
    assert client.get("/annotate").status == 403


def test_a_verdict_is_in_the_file_before_the_answer(server: WebServer, db: Path) -> None:
    client = annotator(server, "durable")
    for count in range(1, 7):
        answer = client.post("/annotate/save", {**task(client), "label": "A"}, Accept="application/json")
        assert answer.json == {"saved": True, "fresh": True}
        with closing(sqlite3.connect(db)) as other:
            assert other.execute("SELECT count(*) FROM labels WHERE annotator = 'durable'").fetchone() == (count,)
    assert "All done" in client.get("/annotate").text


def test_the_page_waits_for_the_disk(server: WebServer) -> None:
    with server.site.store() as store:
        assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_a_repeated_request_labels_once_and_another_tab_is_told(server: WebServer, db: Path) -> None:
    client = annotator(server, "tabs")
    open_now = task(client)  # both tabs show this
    assert client.post("/annotate/save", {**open_now, "label": "A"}, Accept="application/json").json["fresh"]
    again = client.post("/annotate/save", {**open_now, "label": "A"}, Accept="application/json")
    assert again.json == {"saved": True, "fresh": False}
    other = client.post("/annotate/save", {**open_now, "label": "B"}, Accept="application/json")
    assert other.status == 409
    assert "already" in other.json["error"]
    assert client.post("/annotate/skip", {**open_now, "reason": REASONS[0]}).status == 409
    assert len(labels(db, "tabs")) == 1


def test_two_annotators_at_once(server: WebServer, db: Path) -> None:
    """Both label their whole lists at the same time; each has all of their own, and the shared ones twice."""
    people = {
        name: annotator(server, name, count=12, shared=12, seed=seed) for seed, name in enumerate(("eve", "fay"))
    }
    faults: list[str] = []

    def label_all(client: Client, label: str) -> None:
        for _ in range(12):
            answer = client.post("/annotate/save", {**task(client), "label": label}, Accept="application/json")
            if answer.status != 200:
                faults.append(answer.text)

    threads = [
        threading.Thread(target=label_all, args=(client, label))
        for client, label in zip(people.values(), ("A", "B"), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    eve, fay = ({label.pair: label for label in labels(db, name)} for name in people)
    assert len(eve) == len(fay) == 12
    assert eve.keys() == fay.keys()
    for label in (*eve.values(), *fay.values()):
        shown = "A" if label.annotator == "eve" else "B"
        assert (
            label.side
            == {("A", "forward"): "1", ("A", "swapped"): "2", ("B", "forward"): "2", ("B", "swapped"): "1"}[
                (shown, str(label.order))
            ]
        )


def test_undo_skip_and_again_without_a_script(server: WebServer, db: Path) -> None:
    """Plain forms, as a browser without our script sends them: each answer leads back to the page."""
    client = annotator(server, "plain", asked="chained")
    first = task(client)
    assert client.post("/annotate/save", {**first, "label": "A", "note": "why"}).headers["location"] == "/annotate"
    assert task(client)["dimension"] == "correctness"
    assert client.post("/annotate/undo", first).status == 303
    assert not labels(db, "plain")
    assert client.post("/annotate/skip", {**first, "reason": REASONS[0], "note": "hm"}).status == 303
    assert {label.note for label in labels(db, "plain")} == {f"{REASONS[0]}: hm"}
    assert task(client)["place"] != first["place"]
    assert client.post("/annotate/skip", {**task(client), "reason": "because"}).status == 400
    assert client.post("/annotate/again", first).status == 303
    assert task(client) == first
    assert not labels(db, "plain")


def test_the_rubric_and_the_question_are_the_protocols(server: WebServer) -> None:
    page = annotator(server, "rubric", asked="chained").get("/annotate").text
    assert "Best on precision: A, B, or tie?" in page
    assert "how closely a response keeps to what was asked" in page


def test_more_pairs_can_be_given(server: WebServer, owner: Client, db: Path) -> None:
    annotator(server, "more", count=3)
    assert owner.post("/people/more", {"name": "more", "count": 4}).status == 303
    assert owner.post("/people/more", {"name": "nobody", "count": 4}).status == 404
    with Store(db) as store:
        who = store.annotation.annotator("more")
        assert who is not None
        assert who.tasks == 7


# -- pages -----------------------------------------------------------------------------------------


def test_numbers_of_the_overview_lead_to_the_pairs_behind_them(owner: Client) -> None:
    page = owner.get("/").text
    links = re.findall(r'<a class="(?:one|two|tie|warn|bad)" href="(/pairs\?[^"]+)">([\d,]+)</a>', page)
    assert len(links) > 20
    for link, number in links:
        listed = owner.get(link.replace("&amp;", "&")).text
        assert f"<b>{number}</b>" in listed, link


def test_the_pairs_behind_a_number_are_as_many_where_some_are_exact_repeats(tmp_path: Path) -> None:
    pairs = [*plain_pairs(12), Pair("Say something unreadable.", "x", "y", id="odd")]
    again = [replace(pair, id=f"again {pair.id}") for pair in pairs]
    other = replace(pairs[0], id="of another model", model_1="delta")  # so this is no repeat
    fill(tmp_path / "e.db", [*pairs, *again, other], ("chained", "overall"))
    with WebServer(tmp_path / "e.db") as server:
        owner = server.owner()
        links = re.findall(
            r'<a class="(?:one|two|tie|warn|bad)" href="(/pairs\?[^"]+)">([\d,]+)', owner.get("/").text
        )
        assert len(links) > 20
        for link, number in links:
            assert f"<b>{number}</b>" in owner.get(link.replace("&amp;", "&")).text, link
        assert "<b>27</b> pairs" in owner.get("/pairs?judge=2&dimension=overall").text
        assert "<b>14</b> pairs" in owner.get("/pairs?judge=2&dimension=overall&only=once").text


def test_the_overview_shows_the_win_matrix_of_several_models(owner: Client) -> None:
    page = owner.get("/").text
    assert "Ranking of the models" in page
    assert {"alpha", "beta", "gamma"} <= set(re.findall(r'<th scope="row">(\w+)</th>', page))


def test_an_address_shows_the_same_view_again(owner: Client) -> None:
    address = "/pairs?judge=1&dimension=format&verdict=2&only=inconsistent&q=spider&f.topic=maths&sort=gap"
    page = owner.get(address).text
    for mark in (
        'value="spider"',
        '<option value="2" selected>',
        'value="inconsistent" checked',
        "<option selected>maths",
    ):
        assert mark in page.replace(" >", ">"), mark
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="(/pair/\d+\?[^"]+)"', page)]
    assert links
    assert all("f.topic=maths" in link and "sort=gap" in link for link in links)
    assert "f.topic=maths" in owner.get(links[0]).text


def test_a_pair_shows_the_very_conversation(owner: Client, db: Path) -> None:
    with Store(db) as store:
        judge = next(judge for judge in store.judges() if judge.protocol == "chained")
    page = owner.get(f"/pair/3?judge={judge.id}&dimension=overall&order=swapped").text
    given = page[page.index('id="conversation"') :]
    assert '<span class="theirs">Question number 2' in given
    assert given.index("Six, I think") < given.index("A spider has"), "swapped: output 2 is Response A"
    assert len(re.findall(r'<span class="answer">(?:A|B|tie)</span>', given)) == 4, (
        "three earlier verdicts and the last"
    )


def test_the_card_says_how_far_people_and_judges_agree(tmp_path: Path) -> None:
    path = tmp_path / "evenhand.db"
    pairs = [Pair(f"Task {i}", f"one {i}", f"two {i}", id=f"p{i}") for i in range(12)]
    fill(path, pairs)
    with WebServer(path) as server:
        owner = server.owner()
        assert "No judged pair has a label yet" in owner.get("/card").text
        people = [
            annotator(server, name, count=12, shared=12, seed=seed) for seed, name in enumerate(("gil", "hal"))
        ]
        for client in people:
            for _ in range(12):
                client.post("/annotate/save", {**task(client), "label": "tie"})
        page = owner.get("/card").text
        [among] = re.findall(r'<th scope="row">overall</th><td class="right">(\d+)</td>', page)
        assert among == "12"
        assert "<b>100%</b>" in page, "two people who always say tie agree"
        with Store(path) as store:
            [judge] = store.judges()
            ties = sum(judgment["overall"].side == "tie" for judgment in store.judgments(judge))
        assert f"<b>{100 * ties / 12:.0f}%</b>" in page, "the judge's share of the same verdicts"


def test_what_takes_long_is_counted_aside(tmp_path: Path) -> None:
    """The page says so at once, and has the figure when it is there."""
    path = tmp_path / "evenhand.db"
    fill(path, plain_pairs(6))
    with WebServer(path) as server:
        owner = server.owner()
        server.site.patience = 0.2
        server.site._one_figure.acquire()  # somebody else is counting
        try:
            for address in ("/", "/card"):
                assert "being counted" in owner.get(address).text
        finally:
            server.site._one_figure.release()
        server.site.patience = 60.0
        for address in ("/", "/card"):
            page = owner.get(address).text
            assert "scripted" in page
            assert "being counted" not in page


def test_figures_of_a_moment_ago_are_shown_while_a_run_goes_on(tmp_path: Path) -> None:
    """A page whose figures never settle would show none at all."""
    path = tmp_path / "evenhand.db"
    fill(path, plain_pairs(6))
    with WebServer(path) as server:
        owner = server.owner()
        for address in ("/", "/card"):
            assert "Newer" not in owner.get(address).text
        fill(path, plain_pairs(9))
        server.site.patience = 0.2
        with server.site._one_figure:  # somebody else is counting
            for address in ("/", "/card"):
                page = owner.get(address).text
                assert "scripted" in page
                assert "Newer verdicts" in page
            assert "6 pairs · judge 1" in owner.get("/").text
        server.site.patience = 60.0
        page = owner.get("/").text
        assert "9 pairs · judge 1" in page
        assert "Newer verdicts" not in page


def test_a_search_asks_the_index_and_finds_the_same(tmp_path: Path) -> None:
    path = tmp_path / "evenhand.db"
    fill(path, plain_pairs(9))
    with WebServer(path) as server:
        owner = server.owner()
        words = server.site.words
        assert words is not None
        while words.last < 9:
            time.sleep(0.01)
        found = owner.get("/pairs?q=NUMBER+7").text
        assert "<b>1</b> pair" in found
        assert "pair-0007" in found
        fill(path, plain_pairs(18))
        assert "pair-0017" in owner.get("/pairs?q=number+17").text, "what came later is found, too"


def test_pairs_that_teach_most_come_first_on_request(tmp_path: Path) -> None:
    path = tmp_path / "evenhand.db"
    fill(path, plain_pairs(12))
    with Store(path) as store:
        [judge] = store.judges()
        found = suggest(store.judgments(judge), lambda pair: bool(pair.labels), number=12)
    with WebServer(path) as server:
        annotator(server, "ivo", count=4, shared=0, suggested="1")
    with Store(path) as store:
        tasks = [store.annotation.task("ivo", place) for place in range(1, 5)]
    assert [task.pair for task in tasks if task] == [suggestion.pair.key for suggestion in found.pairs[:4]]


def test_an_empty_database_says_so(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    Store(path).close()
    with WebServer(path) as server:
        client = server.owner()
        assert "No verdicts yet" in client.get("/").text
        assert "There are no pairs" in client.get("/pairs").text
        assert client.get("/people").status == 200
        assert "Nothing to label yet" in annotator(server, "ann").get("/annotate").text


def test_a_long_list_has_a_previous_and_a_next_page(tmp_path: Path) -> None:
    with Store(tmp_path / "long.db") as store:
        store.add_pairs(plain_pairs(120))
    with WebServer(tmp_path / "long.db") as server:
        owner = server.owner()
        first, second = (owner.get(f"/pairs/all?page={page}").text for page in (1, 2))
    assert "Next →" in first
    assert "Previous" not in first
    assert "← Previous" in second


def test_people_label_pairs_that_no_judge_has_seen(tmp_path: Path) -> None:
    """Bare pairs first, then two people, then a judge: the card has both, and no label is lost."""
    path = tmp_path / "bare.db"
    pairs = plain_pairs(6)
    with Store(path) as store:
        assert store.add_pairs(pairs) == (6, 6)
        assert store.add_pairs(pairs) == (6, 0)
    with WebServer(path) as server:
        owner = server.owner()
        assert "People need not wait" in owner.get("/").text
        listed = owner.get("/pairs").text
        assert listed == owner.get("/pairs/all").text
        assert "pair-0005" in listed
        found = owner.get("/pairs/all?q=number+4").text
        assert "pair-0004" in found
        assert "pair-0005" not in found
        page = owner.get("/pair/3").text
        assert "3 of 6" in page
        assert "No judge has seen this pair" in page
        assert 'rel="next" href="/pair/4?all=1"' in page
        for seed, name in enumerate(("una", "vic"), 1):
            client = annotator(server, name, count=6, shared=6, seed=seed)
            for number in range(6):
                client.post("/annotate/save", {**task(client), "label": "A" if number else "tie"})
        card = owner.get("/card").text
        assert re.search(r'<th scope="row">overall</th><td class="right">6</td>', card), "two votes on each pair"
        assert "No judged pair has a label yet" in card
        fill(path, pairs[:4])
        card = owner.get("/card").text
        assert "scripted" in card
        assert re.search(r'<th scope="row">overall</th><td class="right">6</td>', card), "judged or not"
        judge = card[card.index("scripted") :]
        assert int(re.findall(r'<td class="right">(\d+)</td>', judge)[0]) <= 4
        listed = owner.get("/pairs/all").text
        assert listed.count(">judged</td>") == 4
        assert "all 6, judged or not" in owner.get("/pairs").text
        assert "5 of 6" in owner.get("/pair/5?all=1").text
        assert "not in this list" in owner.get("/pair/5").text


def test_the_page_follows_a_run_that_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "evenhand.db"
    fill(path, plain_pairs(3))
    with WebServer(path) as server:
        client = server.owner()
        assert "<b>3</b> pairs" in client.get("/pairs").text
        fill(path, plain_pairs(9))
        assert "<b>9</b> pairs" in client.get("/pairs").text


# -- hostile text ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    path = tmp_path_factory.mktemp("hostile") / "evenhand.db"
    fill(path, hostile_pairs())
    with WebServer(path) as server:
        yield server


class Seen(HTMLParser):
    """The tags and attributes of a page, as a browser would find them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [(tag, value or "") for name, value in attrs if name in ("href", "src", "action")]


OUR_TAGS = {
    *("html", "head", "meta", "title", "link", "script", "body", "header", "nav", "main", "section", "article"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "p", "b", "small", "div", "span", "a", "img", "kbd", "code", "pre", "em"),
    *("strong", "s", "ul", "ol", "li", "hr", "br", "mark", "blockquote", "footer", "details", "summary"),
    *("form", "input", "button", "select", "option", "label", "textarea", "fieldset", "legend", "progress"),
    *("table", "thead", "tbody", "tr", "th", "td", "dl", "dt", "dd", "svg", "rect", "line", "circle", "polyline"),
    *("figure", "figcaption"),
}


@pytest.mark.parametrize("show", ["markdown", "text", "differences"])
def test_no_tag_of_theirs_reaches_a_page(hostile: WebServer, show: str) -> None:
    owner = hostile.owner()
    pages = [owner.get("/"), owner.get("/pairs"), owner.get("/people"), owner.get("/card")]
    pages += [owner.get(f"/pair/{n}?show={show}&order=forward") for n in range(1, len(HOSTILE) + 1)]
    for page in pages:
        assert page.status == 200
        seen = Seen(page.text)
        assert seen.tags <= OUR_TAGS
        assert not {name for name in seen.attributes if name.startswith("on") or name in ("style", "srcdoc")}
        for tag, link in seen.links:
            allowed = r"(?:https?://|mailto:|/|\?|#|$)" if tag == "a" else r"/(?!/)"
            assert re.match(allowed, link), (tag, link)
        assert page.text.count("<script") == 1


def test_no_name_of_theirs_is_markup_on_any_page(tmp_path: Path) -> None:
    """Of judges, protocols, attacks, people and fields; in notes, reasons, addresses and messages."""
    fill_names(tmp_path / "names.db")
    with WebServer(tmp_path / "names.db") as server:
        owner, paths = server.owner(), ["/", "/pairs", "/pairs/all", "/people", "/card", "/pair/1", "/pair/20"]
        asked = [
            f"{path}{quote(text, safe='')}" for text in HOSTILE.values() for path in _REFLECTING if len(text) < 999
        ]
        linked = {link for path in paths for tag, link in Seen(owner.get(path).text).links if tag == "a"}
        inner = [link for link in sorted(linked) if re.match(r"/(?!/|people/labels)", link)]
        for path in [*paths, *asked, *inner[:60]]:
            page = owner.get(path.partition("#")[0])
            assert page.status < 500, path
            if page.status == 303 or page.headers["content-type"].startswith("text/plain"):
                continue
            seen = Seen(page.text)
            assert seen.tags <= OUR_TAGS, path
            assert not {name for name in seen.attributes if name.startswith("on") or name in ("style", "srcdoc")}
            assert page.text.count("<script") == 1, path
            assert not set(page.text) & {"\x00", "\x1b", "\x07", "\x7f", "\u202e", "\u2066", "\u202c"}, path


_REFLECTING = ("/pairs?q=", "/pairs?judge=", "/pairs?f.topic=", "/card?judge=", "/find/", "/a/", "/")


def test_ten_megabytes_are_cut_and_can_be_had_whole(tmp_path: Path) -> None:
    path = tmp_path / "large.db"
    large = "All work and no play. " * 460_000
    fill(path, [Pair("Write a lot.", large, "Short.", id="large")])
    with WebServer(path) as server:
        owner = server.owner()
        for show in ("markdown", "text", "differences"):
            page = owner.get(f"/pair/1?show={show}&order=forward")
            assert page.status == 200
            assert len(page.text) < 500_000
            assert "more characters" in page.text
        assert len(owner.get("/pairs").text) < 50_000
        whole = owner.get("/pair/1/text/output_1")
        assert whole.text == large
        assert whole.headers["content-type"].startswith("text/plain")
        client = annotator(server, "patient")
        page = client.get("/annotate")
        assert len(page.text) < 500_000
        texts = [client.get(f"/annotate/text/1/{which}").text for which in ("a", "b")]
        assert sorted(texts, key=len) == ["Short.", large]
        assert client.get("/annotate/text/9/a").status == 404
        assert client.get("/annotate/text/1/c").status == 404


def test_control_characters_are_seen_and_lines_are_not_turned(hostile: WebServer) -> None:
    owner = hostile.owner()
    pages = "".join(owner.get(f"/pair/{n}").text for n in range(1, len(HOSTILE) + 1))
    assert not set(pages) & {"\x00", "\x1b", "\x07", "\x7f", "\u202e", "\u2066", "\u202c"}
    assert "a␀b␛" in pages
    assert "⟦RLO⟧" in pages


# -- the command -----------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
@pytest.mark.parametrize("password", ["", "short"])
def test_other_machines_need_a_password(db: Path, host: str, password: str) -> None:
    with pytest.raises(InputError, match="password"):
        serve(db, ServerAddress(host, 0), password=password)


def test_a_port_that_is_taken_is_said(server: WebServer, db: Path) -> None:
    with pytest.raises(InputError, match="cannot listen") as fault:
        serve(db, ServerAddress("127.0.0.1", server.port))
    assert "--port 0" in fault.value.hint


def test_the_password_is_asked_for_and_guessing_is_slowed(tmp_path: Path) -> None:
    path = tmp_path / "evenhand.db"
    fill(path, plain_pairs(1))
    with WebServer(path, password="correct horse") as server:
        client = server.client()
        page = client.get(server.link)
        assert page.status == 200
        assert 'type="password"' in page.text
        assert not client.cookies
        for _ in range(5):
            assert client.post(server.link, {"password": "wrong"}).status == 403
        assert client.post(server.link, {"password": "correct horse"}).status == 429
        server.site.door._wrong.clear()
        assert client.post(server.link, {"password": "correct horse"}).status == 303
        assert client.get("/").status == 200


def test_json_answers_are_for_those_who_ask_for_them(owner: Client) -> None:
    assert json.loads(owner.get("/nowhere", Accept="application/json").text)["error"]
    assert owner.get("/nowhere").text.startswith("<!doctype html>")
