// Before anything is painted: the colours that were chosen here, if any were.
(() => {
  const chosen = localStorage.getItem("latermq-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
