"use strict";
/* What all pages do: copy buttons, the filter box, and an address that keeps both the filter and the place.

   The address ends with #ID, or #name=value&name=value of the filter, or #ID&name=value. Other scripts use `attest`:
   attest.data (the JSON of the page), attest.onFilter(function), attest.onGo(function), attest.element(...). */
const attest = (() => {
  const holder = document.getElementById("data");
  const form = document.getElementById("filter");
  const filterers = [], goers = [];
  const data = holder ? JSON.parse(holder.textContent) : null;

  /* element("td", {class: "n"}, "text", element(...)): text is never taken for HTML. */
  const element = (name, attributes, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    made.append(...children.filter((child) => child !== "" && child !== null && child !== undefined));
    return made;
  };

  /* --- the address --- */
  const decoded = (text) => { try { return decodeURIComponent(text); } catch { return text; } };
  const address = () => {
    const found = { id: "", fields: {} };
    for (const part of location.hash.slice(1).split("&").filter(Boolean)) {
      const at = part.indexOf("=");
      if (at < 0) found.id = decoded(part);
      else found.fields[decoded(part.slice(0, at))] = decoded(part.slice(at + 1).replaceAll("+", " "));
    }
    return found;
  };
  const hash = (id, fields) => {
    const parts = Object.entries(fields).filter(([, value]) => value)
      .map(([key, value]) => `${key}=${encodeURIComponent(value)}`);
    return "#" + [id ? encodeURIComponent(id) : "", ...parts].filter(Boolean).join("&");
  };
  const write = (id, fields, push) => {
    const next = hash(id, fields);
    if (next === (location.hash || "#")) return;
    if (push) history.pushState(null, "", next); else history.replaceState(null, "", next);
  };

  /* --- going to a place: folds around it open --- */
  const go = (id, focus) => {
    if (!id) return;
    for (const goer of goers) goer(id);
    const target = document.getElementById(id);
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    document.querySelectorAll(".here-now").forEach((other) => other.classList.remove("here-now"));
    target.classList.add("here-now");
    target.scrollIntoView();
    if (focus) {
      if (!target.matches("a, button, input, summary, [tabindex]")) target.setAttribute("tabindex", "-1");
      (target.tagName === "DETAILS" ? target.querySelector("summary") : target).focus({ preventScroll: true });
    }
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    const id = decoded(link.getAttribute("href").slice(1));
    write(id, fields(), true);
    go(id, true);
  });

  /* --- the filter --- */
  const fields = () => form ? Object.fromEntries(new FormData(form)) : {};
  const matcher = (wanted) => {
    const words = (wanted.q || "").toLowerCase().split(/\s+/).filter(Boolean);
    return (text, own) => words.every((word) => text.includes(word)) && Object.entries(wanted).every(([key, value]) =>
      key === "q" || !value || [undefined, value].includes(own[key]) || own[key].split(" ").includes(value));
  };
  const filter = () => {
    const wanted = fields(), matches = matcher(wanted), active = Object.values(wanted).some(Boolean);
    let shown = 0, all = 0;
    for (const item of document.querySelectorAll("[data-item]")) {
      const fits = matches((item.dataset.text || item.textContent).toLowerCase(), item.dataset);
      item.hidden = !fits;
      if (item.dataset.item !== "uncounted") { all += 1; shown += fits; }
    }
    for (const holder of document.querySelectorAll("[data-empty]"))
      holder.hidden = active && !holder.querySelector("[data-item]:not([hidden])");
    let counted = all ? [`${shown} of ${all}`] : [];
    for (const filterer of filterers) counted = filterer(matches, active, wanted) || counted;
    form.querySelector('[type="reset"]').hidden = !active;
    document.getElementById("matches").textContent = active ? counted.join(", ") : "";
  };
  const read = () => {
    if (!form) return;
    const given = address().fields;
    for (const field of form.elements) if (field.name) {
      field.value = given[field.name] || "";
      if (field.tagName === "SELECT" && field.selectedIndex < 0) field.value = "";
    }
    filter();
  };
  if (form) {
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => { write("", fields()); filter(); });
    form.addEventListener("reset", () => setTimeout(() => { write("", fields()); filter(); }));
  }
  const arrive = () => { read(); go(address().id); };
  addEventListener("hashchange", arrive);
  addEventListener("popstate", arrive);
  addEventListener("DOMContentLoaded", arrive);

  /* --- copying: navigator.clipboard is missing in some browsers where the page is a file --- */
  const copy = async (text) => {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* the old way */ }
    const area = element("textarea", { style: "position:fixed;top:0;opacity:0", "aria-hidden": "true" });
    const before = document.activeElement;
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    before?.focus({ preventScroll: true });
    return done;
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    const words = button.textContent;
    const done = await copy(document.getElementById(button.dataset.copy).textContent);
    document.getElementById("said").textContent = done ? "Copied" : "Not copied: select the text by hand";
    if (button.classList.contains("done")) return;
    button.textContent = done ? "Copied" : "Failed";
    button.classList.add("done");
    setTimeout(() => { button.textContent = words; button.classList.remove("done"); }, 1500);
  });

  return { data, element, onFilter: (f) => filterers.push(f), onGo: (f) => goers.push(f), matcher, fields };
})();
