import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const stored = localStorage.getItem("vaka.theme");
export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "system");

const system = matchMedia("(prefers-color-scheme: dark)");
export const systemDark = signal(system.matches);

export const isDark = (): boolean => (theme.value === "system" ? systemDark.value : theme.value === "dark");

export function toggleTheme(): void {
  theme.value = isDark() ? "light" : "dark";
}

export function startTheme(): void {
  system.addEventListener("change", () => { systemDark.value = system.matches; });
  effect(() => {
    document.documentElement.dataset.theme = isDark() ? "dark" : "light";
    if (theme.value === "system") localStorage.removeItem("vaka.theme");
    else localStorage.setItem("vaka.theme", theme.value);
  });
}
