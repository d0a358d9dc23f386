// Search and keys of a report. Without this file all pairs are shown, and links lead to them.
"use strict";
(() => {
  const pairs = [...document.querySelectorAll("details.pair")];
  const form = document.getElementById("find");
  if (!form) return;
  const [words, kind, found] = ["words", "kind", "found"].map((name) => document.getElementById(name));
  let texts = null;

  const fits = (pair, number, wanted) =>
    (!kind.value || pair.dataset.kinds.split(" ").includes(kind.value)) &&
    wanted.every((word) => texts[number].includes(word));

  const find = () => {
    texts ??= pairs.map((pair) => pair.textContent.toLowerCase());
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    pairs.forEach((pair, number) => {
      pair.hidden = !fits(pair, number, wanted);
      count += pair.hidden ? 0 : 1;
    });
    found.textContent = `${count.toLocaleString("en")} of ${pairs.length.toLocaleString("en")} pairs`;
  };

  // A list of pairs that can be walked: to the next that is shown, or the one before.
  const walk = (step) => {
    const shown = pairs.filter((pair) => !pair.hidden);
    const here = shown.indexOf(document.activeElement?.closest("details.pair"));
    const next = shown[here < 0 ? 0 : here + step];
    if (next) {
      next.querySelector("summary").focus();
      next.scrollIntoView({ block: "nearest" });
    }
  };

  const show = () => {
    const pair = document.getElementById(location.hash.slice(1))?.closest("details.pair");
    if (!pair) return;
    if (pair.hidden) {
      words.value = kind.value = "";
      find();
    }
    pair.open = true;
    pair.scrollIntoView();
    pair.querySelector("summary").focus({ preventScroll: true });
  };

  let waiting = 0;
  words.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(find, 100);
  });
  kind.addEventListener("change", find);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(waiting);
    find();
    const first = pairs.find((pair) => !pair.hidden);
    if (first) {
      first.open = true;
      first.querySelector("summary").focus();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === words && event.key === "Escape") {
      words.value = "";
      find();
    }
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    if (event.key === "/") {
      event.preventDefault();
      words.focus();
      words.scrollIntoView({ block: "center" });
    }
    if (event.key === "j") walk(1);
    if (event.key === "k") walk(-1);
  });
  addEventListener("hashchange", show);
  addEventListener("beforeprint", () => { for (const pair of pairs) pair.open = !pair.hidden; });
  form.hidden = false;
  show();
})();
