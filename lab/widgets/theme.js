// Whether the page is dark, and when that changes: JupyterLab says so on <body>, other pages follow the system.
const system = matchMedia("(prefers-color-scheme: dark)");

export function isDark() {
  const said = document.body.dataset.jpThemeLight ?? document.body.dataset.vscodeThemeKind;
  if (said === undefined) return system.matches;
  return said === "false" || said === "vscode-dark" || said === "vscode-high-contrast";
}

/** Calls `changed(dark)` whenever the theme changes; the function returned ends that. */
export function watchTheme(changed) {
  let last = isDark();
  const look = () => {
    if (isDark() !== last) changed((last = isDark()));
  };
  const observer = new MutationObserver(look);
  observer.observe(document.body, { attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind"] });
  system.addEventListener("change", look);
  return () => {
    observer.disconnect();
    system.removeEventListener("change", look);
  };
}
