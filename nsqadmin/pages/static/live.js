// Keeps an open page true: fetches it again every two seconds and changes only what differs.
// Everything works without this file; it saves reloads and puts confirmations into a dialog.
"use strict";

(() => {
  const EVERY_MS = 2000;
  const TIMEOUT_MS = 15000;
  const status = document.getElementById("live");
  const statusText = status.querySelector(".live-text");
  let paused = false;
  let timer = 0;
  let running = null;
  // While the page is held: which figures the server keeps for it, so that sorting shows the same ones.
  let held = "";

  // --- changing the page in place -------------------------------------------------

  const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);

  function alike(old, fresh) {
    return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);
  }

  function morph(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.nodeValue = fresh.nodeValue;
      return;
    }
    for (const { name } of [...old.attributes]) {
      // Whether details are unfolded is the reader's choice.
      if (!fresh.hasAttribute(name) && !(name === "open" && old.localName === "details")) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      // What the reader types stays as well.
      if (old.getAttribute(name) !== value && !(name === "value" && old === document.activeElement)) {
        old.setAttribute(name, value);
      }
    }
    const keyed = new Map();
    for (const child of old.children) {
      if (keyOf(child) !== null) keyed.set(keyOf(child), child);
    }
    let place = old.firstChild;
    const skipKept = () => {
      while (place && place.nodeType === Node.ELEMENT_NODE && place.hasAttribute("data-keep")) place = place.nextSibling;
    };
    for (const child of [...fresh.childNodes]) {
      skipKept();
      const known = keyOf(child) === null ? null : keyed.get(keyOf(child));
      if (known && known !== place) old.insertBefore(known, place);
      const here = known ?? place;
      if (here && alike(here, child)) {
        place = here.nextSibling;
        morph(here, child);
      } else {
        old.insertBefore(document.importNode(child, true), place);
      }
    }
    while (place) {
      const next = place.nextSibling;
      if (!(place.nodeType === Node.ELEMENT_NODE && place.hasAttribute("data-keep"))) place.remove();
      place = next;
    }
  }

  async function fetchPage(address, signal) {
    const reply = await fetch(address, { signal, credentials: "same-origin", headers: { Accept: "text/html" } });
    if (!(reply.headers.get("Content-Type") ?? "").startsWith("text/html")) throw new Error("not a page");
    return new DOMParser().parseFromString(await reply.text(), "text/html");
  }

  // The address as the server is to see it: with the figures it holds for us, if any.
  function wanted() {
    if (!held) return location.href;
    const address = new URL(location.href);
    address.searchParams.set("held", held);
    return address.href;
  }

  async function refresh() {
    running?.abort();
    const mine = (running = new AbortController());
    const tooLong = setTimeout(() => mine.abort(), TIMEOUT_MS);
    try {
      const fresh = await fetchPage(wanted(), mine.signal);
      if (mine !== running) return;
      document.title = fresh.title;
      // A note about an action belongs to the page it was shown on; a refresh never brings a second one.
      fresh.querySelector("[data-note]")?.remove();
      morph(document.getElementById("main"), fresh.getElementById("main"));
      statusText.replaceChildren(...fresh.querySelector("#live .live-text").childNodes);
      show(paused ? "paused" : "on");
    } catch {
      if (mine !== running) return;
      const time = document.getElementById("figures-time")?.textContent ?? "";
      statusText.textContent = "nsqadmin does not answer; figures of ";
      statusText.append(timeElement(time), " UTC");
      show("lost");
    } finally {
      clearTimeout(tooLong);
      if (mine === running) {
        running = null;
        schedule();
      }
    }
  }

  function timeElement(text) {
    const time = document.createElement("time");
    time.id = "figures-time";
    time.textContent = text;
    return time;
  }

  function schedule() {
    clearTimeout(timer);
    if (!paused && !document.hidden) timer = setTimeout(refresh, EVERY_MS);
  }

  function show(state) {
    status.dataset.state = state;
  }

  // --- the reader's say ------------------------------------------------------------

  const toggle = document.createElement("button");
  toggle.type = "button";
  toggle.className = "button small";
  toggle.textContent = "Hold";
  toggle.title = "Stop refreshing, to read or compare figures";
  toggle.addEventListener("click", () => {
    paused = !paused;
    toggle.textContent = paused ? "Go on" : "Hold";
    toggle.setAttribute("aria-pressed", String(paused));
    show(paused ? "paused" : "on");
    held = paused ? (document.querySelector("[data-figures]")?.dataset.figures ?? "") : "";
    if (paused) hold();
    // Asked once, so that the server keeps the figures for as long as the page is held.
    if (!paused || held) refresh();
  });

  function hold() {
    clearTimeout(timer);
    const late = running;
    running = null;
    late?.abort();
  }

  // A page that asks something holds still.
  const still = document.querySelector("main > [data-confirm]") !== null;

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) hold();
    else if (!paused && !still) refresh();
  });

  for (const note of document.querySelectorAll("[data-note]")) {
    const close = document.createElement("button");
    close.type = "button";
    close.className = "button small";
    close.textContent = "Dismiss";
    close.addEventListener("click", () => note.remove());
    note.append(close);
  }

  function go(address) {
    history.replaceState(null, "", address);
    refresh();
  }

  document.addEventListener("click", (event) => {
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const link = event.target.closest("a");
    if (!link) return;
    if (link.hasAttribute("data-soft")) {
      event.preventDefault();
      go(link.href);
    } else if (link.hasAttribute("data-dialog")) {
      event.preventDefault();
      ask(link);
    }
  });

  let typing = 0;
  document.addEventListener("input", (event) => {
    if (!event.target.hasAttribute("data-filter")) return;
    clearTimeout(typing);
    typing = setTimeout(() => {
      const address = new URL(location.href);
      address.searchParams.set("q", event.target.value);
      address.searchParams.delete("page");
      go(address);
    }, 150);
  });

  document.addEventListener("submit", (event) => {
    if (!event.target.matches(".filter, [data-page-form]")) return;
    event.preventDefault();
    go(`${event.target.getAttribute("action") ?? location.pathname}?${new URLSearchParams(new FormData(event.target))}`);
  });

  // --- confirmations as dialogs ------------------------------------------------------

  let asking = false;

  async function ask(link) {
    // A second click while the question is on its way, or on the screen, asks nothing new.
    if (asking || document.querySelector("dialog")) return;
    asking = true;
    let question;
    try {
      question = (await fetchPage(link.href)).querySelector("[data-confirm]");
    } catch {
      question = null;
    } finally {
      asking = false;
    }
    if (!question) {
      location.assign(link.href);
      return;
    }
    const dialog = document.createElement("dialog");
    dialog.setAttribute("aria-labelledby", "confirm-head");
    dialog.append(document.importNode(question, true));
    dialog.querySelector("[data-cancel]").addEventListener("click", (event) => {
      event.preventDefault();
      dialog.close();
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      link.focus();
    });
    document.body.append(dialog);
    dialog.showModal();
    // Without something to type, the harmless button is the one that Enter presses.
    (dialog.querySelector("[autofocus]") ?? dialog.querySelector("[data-cancel]")).focus();
  }

  if (!still) {
    status.append(toggle);
    show("on");
    schedule();
  }
})();
