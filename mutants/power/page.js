/* A filter says how many rows of a fold match, and opens the folds if these are few. */
(() => {
  const FEW = 40;
  const folds = [...document.querySelectorAll(".fold[data-empty]")];
  attest.onFilter((matches, active) => {
    const counts = folds.map((fold) => fold.querySelectorAll("[data-item]:not([hidden])").length);
    const total = counts.reduce((sum, count) => sum + count, 0);
    folds.forEach((fold, n) => {
      fold.querySelector(".hits").textContent = active && counts[n] ? `· ${counts[n]} match` : "";
      if (active) fold.open = counts[n] > 0 && total <= FEW;
    });
  });
})();
