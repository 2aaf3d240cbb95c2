import type { ComponentProps } from "preact";
import { me } from "./api.ts";
import { Icon } from "./icons.tsx";

export type Scope = "runs:read" | "runs:write" | "approvals:write" | "tools:execute" | "admin" | "operator";

/** Why the credential of this page may not do something; "" when it may. The server decides, the page says it before a person tries. */
export function missing(scope: Scope): string {
  const scopes = me.value?.scopes;
  return !scopes || scopes.includes(scope) ? "" : `Your key does not have the scope ${scope}`;
}

/** A button that needs a scope. Without the scope it does nothing, and its title says why; it keeps the focus, so that the reason can be found. */
export function ScopedButton({ scope, onClick, disabled, title, ...rest }: Omit<ComponentProps<"button">, "type"> & { scope: Scope }) {
  const reason = missing(scope);
  if (reason) return <button {...rest} type="button" aria-disabled="true" title={reason} />;
  return <button {...rest} type="button" disabled={disabled} title={title} onClick={onClick} />;
}

/** A line that says which scope is missing for what is shown here; nothing when there is none. */
export function ScopeNotice({ scope, id, children }: { scope: Scope; id?: string; children: string }) {
  const reason = missing(scope);
  const wanted = [...(me.value?.scopes ?? []), scope].map((each) => ` --scope ${each}`).join("");
  return reason ? <div class="notice info" id={id}><Icon name="lock" /><span>{`${children}. ${reason}`}<span class="remedy">; <code>{`vaka keys create${wanted}`}</code> makes a key with it</span>.</span></div> : null;
}
