// Refreshes an open page: fetches it again every two seconds and changes only the differences.
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

  // --- the reader's choices: theme, and local time or UTC -------------------------

  const chosen = (name) => {
    try {
      return localStorage.getItem(name) ?? "";
    } catch {
      return "";
    }
  };
  const choose = (name, value) => {
    try {
      localStorage.setItem(name, value);
    } catch {
      // Without storage a choice lasts as long as the page.
    }
  };
  const isLocal = () => chosen("nsqadmin-time") === "local";

  // A time of day, or a date with it, as long as its text in UTC is.
  function timeText(date, length) {
    const shifted = isLocal() ? new Date(date.getTime() - date.getTimezoneOffset() * 6e4) : date;
    return shifted.toISOString().replace("T", " ").slice(11, length);
  }

  function showTimes(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const date = new Date(time.dateTime);
      const text = timeText(date, 19);
      time.textContent = time.textContent.trim().length > 8 ? `${dayOf(date)} ${text}` : text;
    }
    for (const zone of root.querySelectorAll(".zone")) zone.textContent = isLocal() ? "local time" : "UTC";
  }

  function dayOf(date) {
    const shifted = isLocal() ? new Date(date.getTime() - date.getTimezoneOffset() * 6e4) : date;
    return shifted.toISOString().slice(0, 10);
  }

  const themes = ["", "light", "dark"];
  document.documentElement.dataset.theme = chosen("nsqadmin-theme");

  function switches() {
    const theme = document.createElement("button");
    const time = document.createElement("button");
    const show = () => {
      theme.textContent = `Theme: ${chosen("nsqadmin-theme") || "system"}`;
      time.textContent = isLocal() ? "Show UTC" : "Show local time";
      document.documentElement.dataset.theme = chosen("nsqadmin-theme");
    };
    theme.addEventListener("click", () => {
      choose("nsqadmin-theme", themes[(themes.indexOf(chosen("nsqadmin-theme")) + 1) % themes.length]);
      show();
      redrawAll();
    });
    time.addEventListener("click", () => {
      choose("nsqadmin-time", isLocal() ? "utc" : "local");
      show();
      showTimes(document);
      redrawAll();
    });
    for (const button of [theme, time]) {
      button.type = "button";
      button.className = "button small";
    }
    show();
    document.querySelector(".foot").append(theme, time);
    if (isLocal()) showTimes(document);
  }

  // --- changing the page in place -------------------------------------------------

  // Unsent text in a form of an action stays. Filters follow the address.
  const isTyped = (field) =>
    field.form?.method === "post" && "defaultValue" in field && field.type !== "hidden" && field.value !== field.defaultValue;
  const keyOf = (node) => node.dataset?.key ?? node.id ?? "";
  const isAlike = (old, fresh) => old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);

  // A note stays until it is dismissed, though the refreshed page lacks it.
  function past(node) {
    while (node?.dataset && "keep" in node.dataset) node = node.nextSibling;
    return node;
  }

  // Changes only the differences: keys identify rows, the order identifies other elements.
  function morph(old, fresh) {
    let next = past(old.firstChild);
    for (const wanted of [...fresh.childNodes]) {
      let found = next;
      while (found && !isAlike(found, wanted)) found = past(found.nextSibling);
      if (!found) {
        old.insertBefore(document.importNode(wanted, true), next);
        continue;
      }
      if (found !== next) old.insertBefore(found, next);
      else next = past(next.nextSibling);
      morphNode(found, wanted);
    }
    while (next) {
      const gone = next;
      next = past(next.nextSibling);
      gone.remove();
    }
  }

  function morphNode(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if ("live" in old.dataset) return;
    const typed = isTyped(old) || old === document.activeElement;
    for (const { name } of [...old.attributes]) {
      // Elements that the reader opened stay open.
      if (!fresh.hasAttribute(name) && !(name === "open" && old.localName === "details")) old.removeAttribute(name);
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value && !(name === "value" && typed)) old.setAttribute(name, value);
    }
    if (old.localName === "input") {
      if (!typed && old.type !== "checkbox" && old.value !== fresh.value) old.value = fresh.value;
    } else if (!(typed && old.localName === "textarea")) {
      morph(old, fresh);
    }
  }

  // --- charts with a cursor --------------------------------------------------------

  const drawn = new Map();
  // A canvas needs the colour itself, not a choice between a light and a dark one.
  function css(name) {
    const probe = document.body.appendChild(document.createElement("span"));
    probe.style.color = `var(${name})`;
    const colour = getComputedStyle(probe).color;
    probe.remove();
    return colour;
  }

  // A chart that uPlot has drawn stays; the server's picture of it does not come back.
  function keepChart(fresh) {
    const chart = drawn.get(fresh.dataset.chart);
    if (!chart?.box.isConnected) return;
    fresh.querySelector("svg")?.replaceWith(Object.assign(document.createElement("div"), { className: "live-chart" }));
    fresh.querySelector(".live-chart").dataset.live = "";
    fresh.querySelector(".chart-edges")?.remove();
  }

  async function drawCharts() {
    const section = document.querySelector("[data-history]");
    if (!window.uPlot || !section) return;
    let course;
    try {
      const reply = await fetch(section.dataset.history, { credentials: "same-origin" });
      if (!reply.ok) return;
      course = await reply.json();
    } catch {
      return;
    }
    for (const { key, title, names, columns } of course.charts) {
      const figure = section.querySelector(`[data-chart="${key}"]`);
      if (!figure) continue;
      // Where a node did not answer, a dashed line continues with its last known value.
      const some = course.partial;
      const gaps = some.some(Boolean) ? columns.map((column) => column.map((one, at) => (some[at] || some[at + 1] ? one : null))) : [];
      const data = [course.at, ...columns.map((column) => column.map((one, at) => (some[at] ? null : one))), ...gaps];
      const known = drawn.get(key);
      if (known?.box.isConnected && known.plot.series.length === data.length) {
        known.plot.setData(data);
        continue;
      }
      const box = document.createElement("div");
      box.className = "live-chart";
      box.dataset.live = "";
      figure.querySelector("svg, .live-chart")?.replaceWith(box);
      figure.querySelector(".chart-edges")?.remove();
      const colours = [css("--accent"), css("--good")];
      const axis = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
      const plot = new uPlot(
        {
          width: Math.max(240, box.clientWidth),
          height: 150,
          tzDate: (at) => (isLocal() ? new Date(at * 1e3) : uPlot.tzDate(new Date(at * 1e3), "Etc/UTC")),
          legend: { live: true },
          cursor: { y: false, sync: { key: "time" } },
          scales: { y: { range: (_, _least, most) => [0, Math.max(1, most ?? 1) * 1.05] } },
          axes: [{ ...axis, size: 28, values: (_, times, _axis, _space, step) => times.map((at) => clock(at, step)) }, { ...axis, size: 50, values: (_, statistics) => statistics.map(short) }],
          series: [{ value: "{HH}:{mm}:{ss}" }, ...names.map((label, at) => ({ label, stroke: colours[at % 2], width: 1.6, dash: at ? [5, 3] : undefined, spanGaps: false })), ...gaps.map((_, at) => ({ label: `${names[at]}, last known`, stroke: css("--muted"), width: 1.4, dash: [3, 3] }))],
          hooks: { draw: [drawPointed] },
        },
        data,
        box,
      );
      box.setAttribute("role", "img");
      box.setAttribute("aria-label", title);
      drawn.set(key, { plot, box });
    }
  }

  const clock = (at, step) => timeText(new Date(at * 1e3), step < 60 ? 19 : 16);

  const short = (figure) => new Intl.NumberFormat("en", { notation: "compact" }).format(figure);

  // The moment of the entry of the timeline at which the reader points.
  let pointed = 0;

  function drawPointed(plot) {
    if (!pointed) return;
    const { ctx, bbox } = plot;
    const x = plot.valToPos(pointed, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) return;
    ctx.save();
    ctx.strokeStyle = css("--problem");
    ctx.lineWidth = 2;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  }

  for (const kind of ["mouseover", "focusin"]) {
    document.addEventListener(kind, (event) => {
      const at = Number(event.target.closest?.("[data-at]")?.dataset.at ?? 0);
      if (at === pointed) return;
      pointed = at;
      for (const { plot, box } of drawn.values()) if (box.isConnected) plot.redraw();
    });
  }

  // Colours and times are read when a chart is made, so it is made again.
  function redrawAll() {
    for (const { plot, box } of drawn.values()) {
      plot.destroy();
      box.replaceChildren();
    }
    drawn.clear();
    drawCharts();
  }

  addEventListener("resize", () => {
    for (const { plot, box } of drawn.values()) {
      if (box.isConnected) plot.setSize({ width: Math.max(240, box.clientWidth), height: 150 });
    }
  });

  async function fetchPage(address, signal) {
    const reply = await fetch(address, { signal, credentials: "same-origin", headers: { Accept: "text/html" } });
    if (!(reply.headers.get("Content-Type") ?? "").startsWith("text/html")) throw new Error("not a page");
    return new DOMParser().parseFromString(await reply.text(), "text/html");
  }

  async function refresh() {
    running?.abort();
    const mine = new AbortController();
    running = mine;
    const tooLong = setTimeout(() => mine.abort(), TIMEOUT_MS);
    try {
      const fresh = await fetchPage(location.href, mine.signal);
      if (mine !== running) return;
      document.title = fresh.title;
      // A note about an action belongs to the page it was shown on; a refresh never brings a second one.
      fresh.querySelector("[data-note]")?.remove();
      for (const chart of fresh.querySelectorAll("[data-chart]")) keepChart(chart);
      if (isLocal()) showTimes(fresh);
      morph(document.getElementById("main"), fresh.getElementById("main"));
      showPicked();
      drawCharts();
      statusText.replaceChildren(...fresh.querySelector("#live .live-text").childNodes);
      show(paused ? "paused" : "on");
    } catch {
      if (mine !== running) return;
      const time = document.getElementById("statistics-time")?.textContent ?? "";
      statusText.textContent = "nsqadmin does not answer; statistics of ";
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
    time.id = "statistics-time";
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

  // --- pause and resume ------------------------------------------------------------

  const toggle = document.createElement("button");
  toggle.type = "button";
  toggle.className = "button small";
  toggle.textContent = "Pause updates";
  toggle.title = "Stop refreshing, to read or compare statistics";
  toggle.addEventListener("click", () => {
    paused = !paused;
    toggle.textContent = paused ? "Resume" : "Pause updates";
    toggle.setAttribute("aria-pressed", String(paused));
    show(paused ? "paused" : "on");
    if (paused) hold();
    else refresh();
  });

  function hold() {
    clearTimeout(timer);
    const late = running;
    running = null;
    late?.abort();
  }

  // A page with a question pauses updates.
  const still = document.querySelector("main > [data-confirm], main > [data-still]") !== null;

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

  // Buttons for ticked rows wait until a row is ticked.
  function showPicked() {
    const form = document.getElementById("picked");
    if (!form) return;
    const boxes = [...document.querySelectorAll('input[type="checkbox"][form="picked"]')];
    const count = boxes.filter((one) => one.checked).length;
    for (const button of form.querySelectorAll("button")) button.disabled = !count;
    form.querySelector(".pick-all").hidden = !boxes.length;
    form.querySelector("[data-pick-all]").checked = count > 0 && count === boxes.length;
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-pick-all]")) {
      for (const one of document.querySelectorAll('input[type="checkbox"][form="picked"]')) one.checked = event.target.checked;
    }
    if (event.target.matches('[type="checkbox"]')) showPicked();
  });
  showPicked();

  for (const body of document.querySelectorAll("[data-copy]")) {
    const copy = Object.assign(document.createElement("button"), { type: "button", className: "button small", textContent: "Copy" });
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(body.textContent);
      copy.textContent = "Copied";
    });
    body.before(copy);
  }

  let typing = 0;
  document.addEventListener("input", (event) => {
    if (!event.target.hasAttribute("data-filter")) return;
    clearTimeout(typing);
    typing = setTimeout(() => {
      const address = new URL(location.href);
      address.searchParams.set(event.target.name, event.target.value);
      address.searchParams.delete(event.target.dataset.page);
      go(address);
    }, 150);
  });

  document.addEventListener("submit", (event) => {
    if (!event.target.matches(".filter, .choice, [data-page-form]")) return;
    event.preventDefault();
    go(`${event.target.getAttribute("action") ?? location.pathname}?${new URLSearchParams(new FormData(event.target))}`);
  });

  // --- confirmations as dialogs ------------------------------------------------------

  let asking = false;

  async function ask(link) {
    // A second click while the question is loading, or on the screen, has no effect.
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

  // --- keys: / filters, g and a letter goes to a page, ? says so ---------------------

  let going = 0;
  const places = { o: 0, t: 1, n: 2 };
  document.addEventListener("keydown", (event) => {
    if (event.key === "k" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      document.querySelector("[data-search]").focus();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    const soon = Date.now() - going < 1500;
    going = 0;
    if (event.key === "/") {
      event.preventDefault();
      document.querySelector("[data-filter]")?.focus();
    } else if (event.key === "g") {
      going = Date.now();
    } else if (soon && event.key in places) {
      location.assign(document.querySelectorAll(".bar nav a")[places[event.key]].href);
    } else if (event.key === "?") {
      help();
    }
  });

  function help() {
    if (document.querySelector("dialog")) return;
    const dialog = document.createElement("dialog");
    dialog.setAttribute("aria-labelledby", "keys-head");
    const head = Object.assign(document.createElement("h1"), { id: "keys-head", textContent: "Keys" });
    const list = document.createElement("dl");
    list.className = "keys";
    for (const [keys, what] of [["Ctrl K", "search"], ["/", "filter"], ["g o", "overview"], ["g t", "topics"], ["g n", "nodes"], ["?", "this list"], ["Esc", "close"]]) {
      list.append(Object.assign(document.createElement("dt"), { textContent: keys }), Object.assign(document.createElement("dd"), { textContent: what }));
    }
    const close = Object.assign(document.createElement("button"), { type: "button", className: "button", textContent: "Close" });
    close.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => dialog.remove());
    dialog.append(head, list, close);
    document.body.append(dialog);
    dialog.showModal();
    close.focus();
  }

  switches();
  if (!still) {
    drawCharts();
    status.append(toggle);
    show("on");
    schedule();
  }
})();
