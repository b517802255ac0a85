// Keeps pages fresh, times local, and the keyboard useful. Every page works without it.
"use strict";
(() => {
  const root = document.documentElement;
  const main = () => document.getElementById("main");

  // --- times: the server writes UTC -----------------------------------------------------------
  const pad = (number, width = 2) => String(number).padStart(width, "0");
  const day = (at) => `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  const clock = (at) => `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const distance = (seconds) => {
    if (seconds < 60) return `${seconds} s`;
    const first = UNITS.findIndex(([, size]) => seconds >= size);
    const [unit, size] = UNITS[first];
    const [small, smallSize] = UNITS[first + 1];
    const part = Math.floor((seconds % size) / smallSize);
    return `${Math.floor(seconds / size)}${unit}${part ? ` ${part}${small}` : ""}`;
  };
  const words = {
    s: (at) => `${day(at)} ${clock(at)}`,
    ms: (at) => `${day(at)} ${clock(at)}.${pad(at.getMilliseconds(), 3)}`,
    clock: (at) => `${clock(at)}.${pad(at.getMilliseconds(), 3)}`,
    ago: (at) => {
      const seconds = Math.round((Date.now() - at.getTime()) / 1000);
      if (Math.abs(seconds) < 2) return "now";
      return seconds > 0 ? `${distance(seconds)} ago` : `in ${distance(-seconds)}`;
    },
  };
  const localise = (within, only = "time[data-form]") => {
    for (const each of within.querySelectorAll(only)) {
      const text = words[each.dataset.form](new Date(each.dateTime));
      if (each.textContent !== text) each.textContent = text;
    }
  };

  // --- freshness: the page is asked for again, and what differs is changed in place -----------
  const KEPT = { DETAILS: ["open"], INPUT: ["checked", "value"], DIALOG: ["open"] };
  const morphAttributes = (from, to) => {
    const kept = KEPT[from.nodeName] || [];
    for (const { name, value } of [...to.attributes])
      if (!kept.includes(name) && from.getAttribute(name) !== value) from.setAttribute(name, value);
    for (const { name } of [...from.attributes])
      if (!kept.includes(name) && !to.hasAttribute(name)) from.removeAttribute(name);
  };
  const morph = (from, to) => {
    if (from.nodeType === Node.TEXT_NODE) {
      if (from.data !== to.data) from.data = to.data;
      return;
    }
    if (from.nodeType !== Node.ELEMENT_NODE) return;
    const sameTime = from.nodeName === "TIME" && from.dateTime === to.dateTime;
    morphAttributes(from, to);
    const typing = from === document.activeElement && /^(INPUT|SELECT|TEXTAREA)$/.test(from.nodeName);
    if (!sameTime && !typing) morphChildren(from, to);
  };
  const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.dataset.key || node.id || "" : "");
  const morphChildren = (from, to) => {
    const keyed = new Map();
    for (const child of from.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
    const settled = new Set();
    let old = from.firstChild;
    const skip = () => {
      while (old && settled.has(old)) old = old.nextSibling;
    };
    for (const next of [...to.childNodes]) {
      const key = keyOf(next);
      skip();
      let match = key ? keyed.get(key) : old;
      if (match && (match.nodeName !== next.nodeName || keyOf(match) !== key)) match = null;
      if (match) {
        if (match !== old) from.insertBefore(match, old);
        morph(match, next);
      } else match = from.insertBefore(document.importNode(next, true), old);
      settled.add(match);
    }
    for (const child of [...from.childNodes]) if (!settled.has(child)) child.remove();
  };

  let failures = 0;
  let timer = 0;
  const period = () => Number(main()?.dataset.live || 0) * 1000;
  const schedule = () => {
    clearTimeout(timer);
    if (period()) timer = setTimeout(refresh, period() * Math.min(6, 2 ** failures));
  };
  const refresh = async () => {
    if (document.hidden || document.querySelector("dialog[open]")) return schedule();
    try {
      const answer = await fetch(location.href, {
        headers: { "X-Console-Live": "1" }, redirect: "error", cache: "no-store",
      });
      if (answer.status === 401) return location.reload();
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById("main");
      if (next) {
        morph(main(), next);
        localise(main());
        for (const each of document.querySelectorAll("[data-fresh]")) {
          const fresh = page.querySelector(`[data-fresh=${each.dataset.fresh}]`);
          if (fresh) morph(each, fresh);
        }
        tellChosen();
        document.title = page.title;
      }
      failures = 0;
    } catch {
      failures += 1;
    }
    document.getElementById("lost").hidden = failures < 2;
    return schedule();
  };

  // --- choosing rows ---------------------------------------------------------------------------
  const tellChosen = () => {
    for (const form of document.querySelectorAll("form[data-choose]")) {
      const boxes = [...form.querySelectorAll("tbody input[type=checkbox]")];
      const count = boxes.filter((box) => box.checked).length;
      const words = form.querySelector("[data-chosen]");
      words.dataset.idle ??= words.textContent;
      words.textContent = count ? `${count} chosen` : words.dataset.idle;
      form.classList.toggle("choosing", count > 0);
      const all = form.querySelector("[data-all]");
      if (all) {
        all.checked = count > 0 && count === boxes.length;
        all.indeterminate = count > 0 && count < boxes.length;
      }
    }
  };

  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-choose]");
    if (!form) return;
    if (event.target.matches("[data-all]"))
      for (const box of form.querySelectorAll("tbody input[type=checkbox]"))
        box.checked = event.target.checked;
    tellChosen();
  });

  // --- buttons -----------------------------------------------------------------------------------
  const themes = ["", "light", "dark"];
  document.addEventListener("click", (event) => {
    const on = (selector) => event.target.closest(selector);
    if (on("[data-close]")) on(".notice").remove();
    else if (on("[data-help]")) document.getElementById("help").showModal();
    else if (on("[data-theme-next]")) {
      const next = themes[(themes.indexOf(root.dataset.theme || "") + 1) % themes.length];
      if (next) localStorage.setItem("latermq-theme", (root.dataset.theme = next));
      else {
        localStorage.removeItem("latermq-theme");
        delete root.dataset.theme;
      }
    } else if (on("[data-menu]")) {
      const open = document.body.classList.toggle("menu-open");
      on("[data-menu]").setAttribute("aria-expanded", String(open));
    } else if (on("[data-copy]")) {
      const button = on("[data-copy]");
      navigator.clipboard.writeText(button.dataset.copy).then(() => {
        button.textContent = "Copied";
        setTimeout(() => (button.textContent = "Copy"), 1500);
      });
    } else {
      const link = on("a[href^='/']");
      if (link && !event.metaKey && !event.ctrlKey && !event.shiftKey) root.classList.add("busy");
    }
  });
  document.addEventListener("submit", () => root.classList.add("busy"));
  window.addEventListener("pageshow", () => root.classList.remove("busy"));

  // --- keys ----------------------------------------------------------------------------------------
  let going = 0;
  const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.querySelector("a"));
  const step = (by) => {
    const all = rows();
    if (!all.length) return;
    const now = all.findIndex((row) => row.contains(document.activeElement));
    const next = now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, now + by));
    all[next].querySelector("a").focus();
  };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]):not([type=radio]), select, textarea, dialog[open]");
    if (typing || event.metaKey || event.ctrlKey || event.altKey) return;
    const key = event.key;
    if (Date.now() - going < 1500) {
      going = 0;
      const link = document.querySelector(`#nav a[data-key="${CSS.escape(key)}"]`);
      if (link) {
        event.preventDefault();
        link.click();
      }
      return;
    }
    if (key === "g") going = Date.now();
    else if (key === "/") {
      event.preventDefault();
      document.body.classList.add("menu-open");
      document.getElementById("q").focus();
    } else if (key === "j" || key === "k") step(key === "j" ? 1 : -1);
    else if (key === "x") {
      const row = document.activeElement.closest("[data-row]");
      row?.querySelector("input[type=checkbox]")?.click();
    } else if (key === "u") document.querySelector(".crumbs a:last-of-type")?.click();
    else if (key === "?") document.getElementById("help").showModal();
  });

  root.classList.add("js");
  localise(document);
  tellChosen();
  setInterval(() => localise(document, "time[data-form=ago]"), 1000);
  document.addEventListener("visibilitychange", () => document.hidden || refresh());
  schedule();
})();
