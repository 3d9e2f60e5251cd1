// Which colours the page around has: JupyterLab says so on its body, Streamlit in its variables, else the system does.

const SYSTEM = matchMedia("(prefers-color-scheme: dark)");

/** "light" or "dark" for an element, if the theme asked for is "auto". */
export function themeOf(element, asked) {
  if (asked === "light" || asked === "dark") return asked;
  const jupyter = document.body.dataset.jpThemeLight;
  if (jupyter !== undefined) return jupyter === "false" ? "dark" : "light";
  const paper = getComputedStyle(element).getPropertyValue("--st-background-color").trim();
  if (/^#[0-9a-f]{6}/i.test(paper)) {
    const [red, green, blue] = [1, 3, 5].map((at) => parseInt(paper.slice(at, at + 2), 16));
    return 0.299 * red + 0.587 * green + 0.114 * blue < 128 ? "dark" : "light";
  }
  return SYSTEM.matches ? "dark" : "light";
}

/** Calls `changed` whenever the page's colours may have changed. Returns what stops that. */
export function watchTheme(changed) {
  const observer = new MutationObserver(changed);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  SYSTEM.addEventListener("change", changed);
  return () => {
    observer.disconnect();
    SYSTEM.removeEventListener("change", changed);
  };
}
