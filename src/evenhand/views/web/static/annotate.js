// Labelling by key. A verdict counts as given when the server has said that it is kept; until then it is sent again.
// The page never decides what comes next: it loads what the server says is open.
"use strict";
(() => {
  const notice = document.getElementById("notice");
  const forms = ["say", "skip", "undo"].map((name) => document.getElementById(name)).filter(Boolean);
  const say = document.getElementById("say");
  const question = say ? `${say.elements.place.value} ${say.elements.dimension.value}` : "";
  const kept = (name) => `evenhand ${name} ${question}`;
  const RETRY = 2000;
  let busy = false;

  const announce = (text, bad) => {
    notice.textContent = text;
    notice.classList.toggle("bad", Boolean(bad));
  };

  // -- time: only while the page is looked at, and a reload goes on where it was
  let since = document.visibilityState === "visible" ? performance.now() : null;
  let spent = Number(sessionStorage.getItem(kept("seconds"))) || 0;
  const settle = () => {
    if (since !== null) spent += (performance.now() - since) / 1000;
    since = document.visibilityState === "visible" ? performance.now() : null;
    if (question) sessionStorage.setItem(kept("seconds"), String(spent));
    return spent;
  };
  document.addEventListener("visibilitychange", settle);
  addEventListener("pagehide", settle);

  // -- a note that is being written outlasts a reload
  const note = document.getElementById("note");
  if (note) {
    note.value = note.value || sessionStorage.getItem(kept("note")) || "";
    note.addEventListener("input", () => sessionStorage.setItem(kept("note"), note.value));
  }

  const forget = () => {
    sessionStorage.removeItem(kept("note"));
    sessionStorage.removeItem(kept("seconds"));
  };

  const send = async (form, fields) => {
    for (;;) {
      let answer;
      try {
        answer = await fetch(form.action, {
          method: "POST",
          body: fields,
          headers: { Accept: "application/json" },
        });
      } catch {
        announce("Not saved yet: the server cannot be reached. Trying again…", true);
        await new Promise((done) => setTimeout(done, RETRY));
        continue;
      }
      const reply = await answer.json().catch(() => ({}));
      return { ok: answer.ok && reply.saved, conflict: answer.status === 409, reply };
    }
  };

  const submit = async (form, button) => {
    if (busy) return;
    busy = true;
    const fields = new URLSearchParams(new FormData(form, button));
    if (fields.has("seconds")) fields.set("seconds", settle().toFixed(1));
    if (form.id === "skip" && note) fields.set("note", note.value);
    if (button) button.classList.add("said");
    announce("Saving…");
    const { ok, conflict, reply } = await send(form, fields);
    if (ok || conflict) {
      if (conflict) sessionStorage.setItem("evenhand notice", `${reply.error}: nothing was changed.`);
      forget();
      since = null;
      location.replace(location.pathname + location.search);
      return;
    }
    if (button) button.classList.remove("said");
    announce(`Not saved: ${reply.error || "the server refused"}${reply.hint ? ` (${reply.hint})` : ""}`, true);
    busy = false;
  };

  for (const form of forms) {
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      submit(form, event.submitter);
    });
  }

  // Enter in a list of choices does nothing by itself; here it passes over the pair, as the button does.
  const reason = document.getElementById("reason");
  if (reason) {
    reason.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      if (reason.value) submit(reason.form, reason.form.querySelector("button"));
      else announce("Choose a reason first: the arrow keys, or its first letters.", true);
    });
  }

  const before = sessionStorage.getItem("evenhand notice");
  if (before && notice) {
    sessionStorage.removeItem("evenhand notice");
    announce(before, true);
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") document.activeElement.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    const key = event.key.toLowerCase();
    const label = { a: "A", b: "B", t: "tie" }[key];
    if (label && say) submit(say, say.querySelector(`button[value="${label}"]`));
    const undo = document.getElementById("undo");
    if (key === "u" && undo && !undo.querySelector("button").disabled) submit(undo, undo.querySelector("button"));
    const goal = { n: "note", s: "reason" }[key];
    if (goal && document.getElementById(goal)) {
      event.preventDefault();
      document.getElementById(goal).focus();
    }
    const rubric = document.getElementById("rubric");
    if (key === "r" && rubric) {
      rubric.open = !rubric.open;
      if (rubric.open) rubric.scrollIntoView({ block: "nearest" });
    }
  });
})();
