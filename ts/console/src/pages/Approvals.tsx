import type { Decision } from "@vaka/client/api.generated.ts";
import { useEffect, useRef, useState } from "preact/hooks";
import { api } from "../api.ts";
import { Empty, Failure, Loading } from "../components/basics.tsx";
import { approve, DecisionCard } from "../components/DecisionCard.tsx";
import { plural } from "../format.ts";
import { Icon } from "../icons.tsx";
import { useShortcuts } from "../keys.ts";
import { inboxChanged } from "../live.ts";
import { missing, ScopedButton } from "../scopes.tsx";
import { openApprovals } from "../shared.ts";
import { report, toast } from "../toast.ts";

/** Everything that waits for a person, oldest first. */
export function ApprovalsPage() {
  const [list, setList] = useState<Decision[] | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [selected, setSelected] = useState<string | null>(null);
  const decided = useRef(new Set<string>());
  const [wish, setWish] = useState<{ id: string; what: string }>({ id: "", what: "" });
  const load = () => api.approvals().then((page) => {
    const sorted = page.data.sort((a, b) => a.asked.localeCompare(b.asked));
    setSelected((now) => selectionAfter(now, list ?? [], sorted, decided.current));
    setList(sorted);
    setError(null);
    openApprovals.value = sorted.length;
  }, setError);
  useEffect(() => { void load(); }, [inboxChanged.value]);

  const at = list?.findIndex((each) => each.id === selected) ?? -1;
  const chosen = list?.[at];
  const move = (to: number) => { const next = list?.[Math.min(list.length - 1, Math.max(0, to))]; if (next) setSelected(next.id); };
  const done = (id: string) => { decided.current.add(id); void load(); };
  const reason = missing("approvals:write");
  const act = (what: string) => { if (reason) toast(reason); else if (chosen) setWish({ id: chosen.id, what }); };
  const approveChosen = () => {
    if (reason) toast(reason);
    if (reason || chosen?.kind !== "approval") return;
    decided.current.add(chosen.id);
    approve(chosen).then(() => done(chosen.id), report);
  };
  useShortcuts([
    { keys: "j", label: "Next", group: "Approvals", run: () => move(at + 1) },
    { keys: "k", label: "Previous", group: "Approvals", run: () => move(at - 1) },
    { keys: "a", label: "Approve once", group: "Approvals", run: approveChosen },
    { keys: "m", label: "Approve and remember", group: "Approvals", run: () => act("remember") },
    { keys: "e", label: "Edit the arguments", group: "Approvals", run: () => act("edit") },
    { keys: "r", label: "Reject", group: "Approvals", run: () => act("reject") },
  ]);

  if (error && !list) return <Failure error={error} retry={load} />;
  if (!list) return <Loading what="approvals" />;
  return (
    <div class="scroll">
      <div class="page" style={{ maxWidth: "860px" }}>
        {list.length === 0 ? (
          <Empty icon="inbox" title="Nothing waits for you" command="vaka approvals list">
            <p>Calls that a rule wants to ask about, and questions of agents, appear here and in the terminal: it is one queue.</p>
          </Empty>
        ) : (
          <>
            <div class="row wrap muted small">
              <span class="grow">{`${plural(list.length, "decision")} open, oldest first`}</span>
              <span class="keys"><kbd>j</kbd> <kbd>k</kbd> move · <kbd>a</kbd> approve · <kbd>e</kbd> edit · <kbd>r</kbd> reject · <kbd>m</kbd> remember</span>
            </div>
            <Bulk list={list} onDone={load} />
            <div class="inbox">
              {list.map((each) => (
                <div key={each.id} onClick={() => setSelected(each.id)} onFocusCapture={() => setSelected(each.id)}>
                  <DecisionCard decision={each} withSession selected={each.id === chosen?.id} wish={wish.id === each.id ? wish.what : undefined} onDone={() => done(each.id)} />
                </div>
              ))}
            </div>
          </>
        )}
      </div>
    </div>
  );
}

/** The decision that keys act on. One that was decided here makes way for the next; one that went away otherwise leaves none, so that a key cannot hit another. */
function selectionAfter(now: string | null, before: Decision[], after: Decision[], decided: Set<string>): string {
  if (now === null) return after[0]?.id ?? "";
  if (now === "" || after.some((each) => each.id === now)) return now;
  const at = before.findIndex((each) => each.id === now);
  return decided.has(now) ? (after[Math.min(Math.max(0, at), after.length - 1)]?.id ?? "") : "";
}

/** Several calls that the same rule asks about, with equal arguments, may be approved together. */
function Bulk({ list, onDone }: { list: Decision[]; onDone: () => void }) {
  const groups = new Map<string, Decision[]>();
  for (const each of list) {
    if (each.kind !== "approval") continue;
    const key = JSON.stringify([each.rule, each.call?.name, each.call?.arguments]);
    groups.set(key, [...(groups.get(key) ?? []), each]);
  }
  const equal = [...groups.values()].filter((group) => group.length > 1);
  if (!equal.length) return null;
  return (
    <div class="row wrap">
      {equal.map((group) => (
        <ScopedButton
          scope="approvals:write" key={group[0]!.id} class="small"
          onClick={() => Promise.all(group.map((each) => api.resolve(each.id, { decision: "approve" }))).then(() => { toast(`Approved ${group.length} calls`); onDone(); }, report)}
        ><Icon name="check" />{`Approve ${group.length} equal calls of ${group[0]!.call?.name}`}</ScopedButton>
      ))}
    </div>
  );
}
