// What all pages do by key, and forms that send themselves. Without this file all of it works by click.
"use strict";
(() => {
  const typing = (event) =>
    event.ctrlKey || event.metaKey || event.altKey ||
    /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.isContentEditable;

  document.addEventListener("keydown", (event) => {
    if (typing(event)) return;
    const wanted = { j: "next", ArrowRight: "next", k: "prev", ArrowLeft: "prev" }[event.key];
    const link = wanted && document.querySelector(`a[rel="${wanted}"]`);
    if (link && !(event.key.startsWith("Arrow") && event.target.closest(".scroll"))) link.click();
    if (event.key === "/") {
      const search = document.querySelector('input[type="search"]');
      if (search) {
        event.preventDefault();
        search.focus();
      }
    }
  });

  for (const form of document.querySelectorAll("form[data-send]")) {
    form.addEventListener("change", (event) => {
      if (event.target.matches("select, input[type=checkbox]")) form.requestSubmit();
    });
    // An address without empty fields is shorter to read and to send.
    form.addEventListener("formdata", (event) => {
      for (const [name, value] of [...event.formData.entries()]) if (value === "") event.formData.delete(name);
    });
  }

  for (const field of document.querySelectorAll("input.copy")) field.addEventListener("focus", () => field.select());

  // The clipboard is closed to pages that did not come over HTTPS or from this machine; the old way works there, too.
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const field = document.getElementById(button.dataset.copy);
      field.select();
      try {
        await navigator.clipboard.writeText(field.value);
        button.textContent = "Copied";
      } catch {
        button.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl-C";
      }
    });
  }
})();
