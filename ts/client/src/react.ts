import { useCallback, useEffect, useMemo, useState, useSyncExternalStore } from "react";
import type { Input, Remember } from "./api.ts";
import type { AgentClient } from "./client.ts";
import { AgentError, connectionError } from "./errors.ts";
import type { Json, JsonObject } from "./event.generated.ts";
import type { ConnectionStatus } from "./follow.ts";
import type { RunOptions } from "./run.ts";
import {
  createStore, currentTurn, liveMessages, openDecisions, toArray, type Decision, type Message, type SessionState,
  type TurnState,
} from "./store.ts";

export interface UseSession {
  state: SessionState;
  /** The conversation with what is streamed now, and inputs that wait for their turn. */
  messages: Message[];
  turn: TurnState | undefined;
  status: SessionState["status"];
  /** The open approvals and questions. */
  decisions: Decision[];
  connection: ConnectionStatus;
  error: AgentError | undefined;
  /** Send an input; resolves when the server has stored it. A session that does not exist begins with it. */
  send(input: Input, options?: RunOptions): Promise<void>;
  stop(note?: string): Promise<void>;
  steer(input: Input): Promise<void>;
  approve(id: string, options?: { edit?: JsonObject; message?: string; remember?: Remember }): Promise<void>;
  reject(id: string, message?: string): Promise<void>;
  answer(id: string, answer: Json): Promise<void>;
  /** Copy the session, up to a cursor or checkpoint; resolves with the id of the copy. */
  branch(at?: string): Promise<string>;
}

/** Follow a session: the component renders again with each change. */
export function useSession(client: AgentClient, id: string, defaults: RunOptions = {}): UseSession {
  const store = useMemo(() => createStore(id), [client, id]);
  const state = useSyncExternalStore(store.subscribe, () => store.state, () => store.state);
  const [connection, setConnection] = useState<ConnectionStatus>("idle");
  const [error, setError] = useState<AgentError | undefined>();
  const [visit, setVisit] = useState(0);

  useEffect(() => {
    const subscription = client.session(id).subscribe({ after: store.state.cursor });
    let isCurrent = true;
    subscription.onStatus((status) => isCurrent && setConnection(status));
    const read = async () => {
      setError(undefined);
      for await (const event of subscription) if (isCurrent) store.apply(event);
    };
    read().catch((failure: unknown) => isCurrent && setError(connectionError(failure)));
    return () => {
      isCurrent = false;
      subscription.close();
    };
  }, [client, id, store, visit]);

  const send = useCallback(
    async (input: Input, options: RunOptions = {}) => {
      await client.session(id).run(input, { ...defaults, ...options }).start();
      if (error) setVisit((count) => count + 1); // the session may exist only now
    },
    [client, id, error, defaults],
  );
  const actions = useMemo(
    () => ({
      stop: async (note?: string) => void (await client.session(id).cancel(note)),
      steer: async (input: Input) => void (await client.session(id).steer(input)),
      approve: async (...args: Parameters<typeof client.approvals.approve>) => void (await client.approvals.approve(...args)),
      reject: async (decision: string, message?: string) => void (await client.approvals.reject(decision, message)),
      answer: async (decision: string, answer: Json) => void (await client.approvals.answer(decision, answer)),
      branch: async (at?: string) => (await client.sessions.fork(id, at ? { at } : {})).id,
    }),
    [client, id],
  );

  const settled = useMemo(() => toArray(state.messages), [state.messages]);
  const messages = useMemo(
    () => [...settled, ...liveMessages(state), ...Object.values(state.inputs)],
    [settled, state.live, state.inputs],
  );
  const decisions = useMemo(() => openDecisions(state), [state.decisions]);
  return { state, messages, turn: currentTurn(state), status: state.status, decisions, connection, error, send, ...actions };
}
