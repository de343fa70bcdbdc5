/* The rows of all laws, made when the fold of an implementation is opened, and the filter of rows and matrix.
   The data is packed by rows.py. */
(() => {
  const { data, element } = attest;
  const TENSORS = 7;
  const text = (row) => row.text ??= [data.words[row[2]], data.words[row[2]].replaceAll("_", " "), data.words[row[5]],
    data.impls[row[0]][0], data.chapters[row[1]][0]].join(" ").toLowerCase();
  const own = (row) => ({ impl: data.impls[row[0]][0], verdict: data.verdicts[row[3]][0] });
  const short = (name) => name.replace(/^test_/, "");
  const chapterId = (row) => `${data.impls[row[0]][1]}.${data.chapters[row[1]][1]}`;
  const byImpl = data.impls.map(() => []);
  for (const row of data.rows) byImpl[row[0]].push(row);
  let fits = () => true;

  const made = (row) => {
    const [verdict, sign, word] = data.verdicts[row[3]];
    const anchor = data.words[row[6]], name = short(data.words[row[2]]);
    const zs = [];
    for (let n = TENSORS; n < row.length; n += 2) zs.push(`${data.words[row[n]]} ${row[n + 1]}`);
    return element("tr", {},
      element("td", {}, anchor ? element("a", { href: `#${anchor}` }, name) : name),
      element("td", { class: `mark ${verdict}` }, element("span", { class: "sign", "aria-hidden": "true" }, sign), ` ${word}`),
      element("td", { class: "n" }, String(row[4])),
      element("td", { class: "zs" }, zs.join(", ")),
      element("td", {}, data.words[row[5]]));
  };
  const fill = (fold) => {
    fold.querySelector(".frame")?.remove();
    const table = element("table", { class: "wide laws" }, element("thead", {}, element("tr", {},
      ...["law", "verdict", "cases", "worst z", "reason"].map((name) =>
        element("th", { scope: "col", ...(name === "cases" && { class: "n" }) }, name)))));
    let chapter = null, body = null;
    for (const row of byImpl[Number(fold.dataset.laws)].filter(fits)) {
      if (row[1] !== chapter) {
        chapter = row[1];
        body = element("tbody", { id: chapterId(row) }, element("tr", {},
          element("th", { scope: "rowgroup", colspan: "5" }, data.chapters[chapter][0])));
        table.append(body);
      }
      body.append(made(row));
    }
    fold.append(element("div", { class: "frame", tabindex: "0", role: "group", "aria-label": "Laws" }, table));
  };
  const folds = [...document.querySelectorAll("[data-laws]")];
  for (const fold of folds) fold.addEventListener("toggle", () => {
    if (fold.open && !fold.querySelector(".frame")) fill(fold);
  });
  /* An address may name a chapter in a fold that has no rows yet. */
  attest.onGo((id) => {
    const n = data.impls.findIndex(([, anchor]) => id === anchor || id.startsWith(`${anchor}.`));
    const rows = n < 0 ? [] : byImpl[n];
    if (rows.length && (id === data.impls[n][1] || rows.some((row) => chapterId(row) === id))) {
      folds[n].open = true;
      if (!folds[n].querySelector(".frame")) fill(folds[n]);
    }
  });

  attest.onFilter((matches, active) => {
    fits = (row) => matches(text(row), own(row));
    let shown = 0;
    const cells = new Set();
    folds.forEach((fold, n) => {
      const found = active ? byImpl[n].filter(fits) : byImpl[n];
      shown += found.length;
      for (const row of found) cells.add(`${n} ${row[1]}`);
      fold.hidden = !found.length;
      fold.querySelector(".hits").textContent = active ? `· ${found.length} of ${byImpl[n].length} match` : "";
      fold.querySelector(".frame")?.remove();
      if (fold.open) fill(fold);
    });
    for (const row of document.querySelectorAll("[data-row]")) {
      row.hidden = folds[Number(row.dataset.row)].hidden;
      for (const cell of row.querySelectorAll("[data-at]"))
        cell.classList.toggle("unmatched", !cells.has(`${row.dataset.row} ${cell.dataset.at}`));
    }
    return [`${shown} of ${data.rows.length} laws`];
  });
})();
