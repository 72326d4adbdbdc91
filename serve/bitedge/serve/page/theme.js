// Light or dark: as the system says, until the button says otherwise.
export function startTheme(button) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const read = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const show = () => {
    const dark = (read() ?? (system.matches ? "dark" : "light")) === "dark";
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.setAttribute("aria-pressed", String(dark));
  };
  button.addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", next); } catch { /* for this page view only, then */ }
    document.documentElement.dataset.theme = next;
    button.setAttribute("aria-pressed", String(next === "dark"));
  });
  system.addEventListener("change", show);
  show();
}
