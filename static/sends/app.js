/* Makes the pages quicker to use. Every one of them works without it. */
"use strict";

(() => {
  const root = document.documentElement;
  const one = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const on = (name, act, capture) => document.addEventListener(name, act, capture);
  const say = (words) => { one("#says").textContent = words; };
  const isField = (element) =>
    !!element?.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable]");
  // :is() forgives a selector that a browser does not know.
  const isDialogOpen = () => !!one(":is(dialog[open], :popover-open)");

  /* ---- The time zone: guessed once, then whatever the person chose. */

  const guess = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const rememberZone = (zone) => {
    const secure = location.protocol === "https:" ? ";secure" : "";
    document.cookie = `zone=${zone};path=/;max-age=31536000;samesite=lax${secure}`;
  };
  if (!/(^|; )zone=/.test(document.cookie)) rememberZone(guess);

  const clock = () =>
    new Date().toLocaleTimeString("en-GB", { timeZone: root.dataset.zone || guess });

  /* The same words as the server's in_words(), with one unit. */
  const ago = (since) => {
    const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(since)) / 1000));
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
    const days = Math.floor(seconds / 86400);
    return days > 1 ? `${days} days` : "1 day";
  };

  /* ---- Every new piece of page, the first one included. */

  const welcome = (part) => {
    all("[data-js]", part).forEach((element) => { element.hidden = false; });
    if (part.matches?.("[data-js]")) part.hidden = false;
    all("[data-guard]", part).forEach(hold);
    const strip = part.matches?.("[data-seconds]") ? part : one("[data-seconds]", part);
    if (strip) countDown(strip);
  };

  /* The seconds are the server's: this clock only counts from when they arrived. */
  const countDown = (strip) => {
    const ends = performance.now() + 1000 * strip.dataset.seconds;
    const whole = Math.max(1, strip.dataset.of);
    delete strip.dataset.seconds;
    const timer = setInterval(() => {
      const left = Math.max(0, (ends - performance.now()) / 1000);
      const seconds = Math.ceil(left);
      if (!strip.isConnected) return clearInterval(timer);
      one("rect", strip)?.setAttribute("width", `${(100 * left) / whole}%`);
      if (seconds) {
        const words = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
        if (one("[data-left]", strip).textContent !== words) one("[data-left]", strip).textContent = words;
        return undefined;
      }
      clearInterval(timer);
      one("small", strip).textContent = strip.dataset.done || "Sending now";
      tick();
      // Taking away what has the focus would lose the person's place.
      setTimeout(() => { if (!strip.contains(document.activeElement)) strip.remove(); }, 8000);
      return undefined;
    }, 200);
  };

  /* ---- A double press must not approve an email that nobody has seen. */

  const hold = (button) => {
    button.setAttribute("aria-disabled", "true");
    setTimeout(() => button.removeAttribute("aria-disabled"), 600);
  };
  on("click", (event) => {
    if (!event.target.closest?.("[data-guard][aria-disabled]")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    say("Not yet: this email has only just appeared. Press again.");
  }, true);
  on("keydown", (event) => {
    if (event.repeat && event.key === "Enter" && event.target.closest?.("button")) event.preventDefault();
  }, true);

  /* ---- Keys: each one presses a control that is on the page, so it can do no more than that. */

  const keysAreOn = () => localStorage.getItem("keys") !== "off";
  const showKeys = () => {
    root.dataset.keys = keysAreOn() ? "on" : "off";
    all("[data-keys-switch]").forEach((box) => { box.checked = keysAreOn(); });
  };

  let first = ""; // "g" while the second key is awaited
  let lastPick = null;

  const rows = () => all(".item, tbody tr").filter((row) => one("[data-row]", row));
  const currentRow = () =>
    document.activeElement.closest?.(".item, tbody tr") || one(".item[aria-current], tr[aria-current]");

  const step = (by) => {
    const list = rows();
    const at = list.indexOf(currentRow());
    const next = list[at < 0 ? 0 : at + by];
    if (next) one("[data-row]", next).focus();
  };

  const pick = (range) => {
    const boxes = all(":is(.item, tbody tr) input[type=checkbox]:not(:disabled)");
    const box = boxes.find((candidate) => currentRow()?.contains(candidate));
    if (!box) return;
    const from = boxes.indexOf(lastPick);
    const to = boxes.indexOf(box);
    if (range && from >= 0) {
      boxes.slice(Math.min(from, to), Math.max(from, to) + 1)
        .filter((other) => other.checked !== lastPick.checked)
        .forEach((other) => other.click());
    } else box.click();
    lastPick = box;
  };

  const builtIn = {
    j: () => step(1),
    k: () => step(-1),
    o: () => { const row = currentRow(); if (row) one("[data-row]", row)?.click(); },
    x: () => pick(false),
    X: () => pick(true),
  };

  on("keydown", (event) => {
    if (event.defaultPrevented || event.repeat || event.isComposing) return;
    if (event.ctrlKey || event.altKey || event.metaKey || !keysAreOn()) return;
    if (isField(event.target) || isDialogOpen() || event.key.length > 1) return;
    const key = event.shiftKey ? event.key.toUpperCase() : event.key.toLowerCase();
    const keys = first ? `${first} ${key}` : key;
    first = !first && key === "g" ? "g" : "";
    if (first) {
      setTimeout(() => { first = ""; }, 1500);
      return;
    }
    const control = one(`[data-key="${CSS.escape(keys)}"]:not(:disabled)`);
    if (!control && !builtIn[keys]) return;
    event.preventDefault();
    if (!control) builtIn[keys]();
    else if (isField(control)) control.focus();
    else control.click();
  });

  /* ---- Small controls. */

  on("click", (event) => {
    const control = event.target.closest?.("button, a");
    if (!control) return;
    const { copy, zoneSwitch } = control.dataset;
    if (copy !== undefined) {
      navigator.clipboard?.writeText(copy).then(() => {
        const words = one("[data-words]", control) || control;
        const before = words.textContent;
        words.textContent = "Copied";
        say("Copied");
        setTimeout(() => { words.textContent = before; }, 2000);
      });
    } else if (zoneSwitch) {
      rememberZone(zoneSwitch === "UTC" ? "UTC" : guess);
      location.reload();
    } else if ("close" in control.dataset && control.closest("dialog")) {
      event.preventDefault();
      control.closest("dialog").close();
    } else if ("pauseUpdates" in control.dataset) {
      isPaused = !isPaused;
      control.textContent = isPaused ? "go on with updates" : "pause updates";
      if (isPaused) one("#fresh").textContent = `Paused at ${clock()}`;
      else tick();
    }
  });

  on("change", ({ target }) => {
    if ("keysSwitch" in target.dataset) {
      localStorage.setItem("keys", target.checked ? "on" : "off");
      showKeys();
    }
    const form = target.form;
    if (!form || !("picks" in form.dataset)) return;
    const boxes = [...form.elements].filter((element) => element.type === "checkbox");
    const count = boxes.filter((box) => box.checked).length;
    all("[data-picked]").forEach((element) => { element.textContent = count; });
    all("[data-needs-pick]").forEach((button) => { button.disabled = !count; });
  });

  /* ---- Live updates: never under the hands of somebody who writes or decides. */

  let isPaused = false;
  let failures = 0;
  let lastAnswer = clock();

  const tick = () => {
    if (document.hidden || isPaused || isDialogOpen() || isField(document.activeElement)) return;
    document.body.dispatchEvent(new Event("live"));
    all("time[data-ago]").forEach((time) => { time.textContent = ago(time.dateTime); });
  };
  setInterval(tick, 10000);
  on("visibilitychange", tick);

  const isLive = (detail) => !!detail.elt?.matches?.("#live, [data-polls]");

  on("htmx:configRequest", ({ detail }) => {
    if (isLive(detail)) detail.parameters.ids = all("[data-live]").map((row) => row.dataset.live).join(",");
  });

  const noteAnswer = (arrived) => {
    const line = one("#fresh");
    failures = arrived ? 0 : failures + 1;
    if (arrived) lastAnswer = clock();
    if (!line || isPaused) return;
    if (arrived) line.textContent = `Updated ${lastAnswer}`;
    if (failures === 3) {
      line.textContent = `No connection since ${lastAnswer}. What you see may be old.`;
      say(line.textContent);
    }
  };

  /* ---- Around each request of htmx. */

  const busy = new WeakMap(); // request -> what puts its button's words back

  on("htmx:beforeRequest", ({ detail }) => {
    const button = detail.requestConfig.triggeringEvent?.submitter;
    if (!button?.dataset.busy) return;
    const words = one("[data-words]", button) || button;
    const before = words.textContent;
    words.textContent = button.dataset.busy;
    busy.set(detail.xhr, () => { words.textContent = before; });
  });

  const noteLost = (isLost, xhr) => {
    const id = isLost && xhr.getResponseHeader("X-Request-ID");
    one("#lost code").textContent = id || "";
    one("#lost [data-quote]").hidden = !id;
    one("#lost").hidden = !isLost;
  };

  on("htmx:afterRequest", ({ detail }) => {
    busy.get(detail.xhr)?.();
    if (isLive(detail)) noteAnswer(detail.successful);
    else noteLost(!detail.successful && ![403, 409, 422, 429].includes(detail.xhr.status), detail.xhr);
  });

  on("htmx:afterSettle", ({ detail }) => {
    const dialog = one("#dialog");
    if (dialog && detail.target === dialog) {
      if (!dialog.childElementCount) {
        dialog.close();
        if (document.activeElement === document.body) one("#content").focus({ preventScroll: true });
      }
      else if (!dialog.open) dialog.showModal();
      return;
    }
    // What had the focus is gone and the answer named no successor: stay near.
    if (isLive(detail.requestConfig || {}) || document.activeElement !== document.body) return;
    const place = document.getElementById(detail.target.id) || detail.target; // swapped as a whole
    (one("[data-home]", place) || one("#content"))?.focus({ preventScroll: true });
  });

  /* ---- A passkey that was not used: the browser or the person said no. */

  on("allauth.error", (event) => {
    event.preventDefault();
    const failed = one("[data-passkey-failed]");
    failed.hidden = false;
    failed.scrollIntoView({ block: "nearest" });
  });

  on("htmx:load", ({ detail }) => welcome(detail.elt));
  welcome(document.body);
  showKeys();
})();
