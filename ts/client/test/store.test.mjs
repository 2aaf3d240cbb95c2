import assert from "node:assert/strict";
import { test } from "node:test";
import { at, createStore, initialState, liveMessages, openDecisions, outputOf, OUTPUT_TAIL, pages, reduce, textOf, toArray, transcript } from "../dist/store.js";
import { toEvent } from "../dist/events.js";
import { emptyList, push, replace, truncate } from "../dist/store/list.js";
import { resumed } from "./replay.mjs";
import { eventsOf, fold, NAMES } from "./streams.mjs";

const envelope = { v: 1, ts: "2026-01-01T00:00:00.000Z", session: "s", turn: "t1", step: 1, path: [], channel: "progress" };
const live = (type, data, more = {}) => ({ ...envelope, type, data, ...more });
const durable = (seq, type, data, more = {}) => ({ ...envelope, seq, id: `1.${seq}`, prev: "", type, data, ...more });
const delta = (offset, text, more = {}) => live("text.delta", { message_id: "m1", block: 0, offset, text, ...more });

/** A session whose turn has begun. */
const begun = () =>
  fold([
    durable(1, "session.opened", { agent: "a" }, { turn: "" }),
    durable(2, "input.added", { key: "k", content: [{ type: "text", text: "Hi" }] }, { turn: "" }),
    durable(3, "turn.started", { agent: "a", inputs: ["k"] }),
    durable(4, "step.started", { agent: "a", number: 1, model: "m" }),
  ]);

function freeze(value) {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    Object.values(value).forEach(freeze);
  }
  return value;
}

const blocks = (message) => message.blocks.map((block) => (block.type === "call" ? `${block.name}: ${block.status}` : block.text));

test("the conversation has inputs, answers, calls and notices in order", () => {
  const state = fold(eventsOf("conversation"));
  assert.deepEqual(transcript(state).map((message) => [message.role, message.path.join("/"), ...blocks(message)]), [
    ["user", "", "Say  hello\nto the 🌊."],
    ["assistant", "", "Ka moana: 🌊🌊.", "Aloha 🌺 mai kākou, 世界!"],
    ["user", "", "Is it raining?"],
    ["assistant", "", "Let me see.", "weather: completed", "weather: failed"],
    ["assistant", "", "Sunny."],
    ["user", "", "Count."],
    ["assistant", "", "count: completed"],
    ["assistant", "", "Counted."],
    ["notice", "", "before the scout"],
    ["notice", "", "back to event 42"],
    ["user", "", "Again."],
    ["assistant", "", "scout: completed"],
    ["assistant", "agent-5", "weather: completed"],
    ["assistant", "agent-5", "It shines."],
    ["assistant", "", "Done."],
  ]);
  assert.equal(state.title, "From 1.42");
  assert.equal(state.status, "closed");
  assert.deepEqual([state.tags, state.metadata], [["sea"], { plan: "pro" }]);
  assert.deepEqual(toArray(state.turns).map((turn) => [turn.id, turn.status, turn.first]), [
    ["trn_1", "completed", 0], ["trn_2", "completed", 2], ["trn_3", "completed", 5], ["trn_6", "completed", 10],
  ]);
  assert.deepEqual(toArray(state.subagents).map((child) => [child.path, child.agent, child.status, child.text, child.usage.input]), [
    [["agent-5"], "scout", "completed", "It shines.", 25],
  ]);
  assert.deepEqual([state.usage.cost, state.usage.cache_read], [1.5, 12]);
});

test("the title is the beginning of the first input until another is given", () => {
  const events = eventsOf("conversation");
  assert.equal(fold(events.slice(0, events.findIndex((event) => event.type === "turn.started"))).title, "Say hello to the 🌊.");
});

test("a call has its arguments, result, reason and decision", () => {
  const calls = toArray(fold(eventsOf("tools")).messages)[1].blocks.slice(2);
  assert.deepEqual(calls.map((call) => [call.id, call.name, call.arguments, call.status, call.result.reason ?? ""]), [
    ["call_1", "weather", { city: "Hilo" }, "completed", ""],
    ["call_2", "weather", { city: "Atlantis" }, "failed", "error"],
    ["call_3", "tide", {}, "failed", "denied"],
    ["call_4", "fly", {}, "failed", "unknown_tool"],
  ]);
  assert.equal(textOf(calls[0].result.content), "sunny in Hilo");
  const approved = toArray(fold(eventsOf("decisions")).messages)[2].blocks[0];
  assert.deepEqual([approved.status, approved.decision.decision], ["completed", "approve"]);
});

test("a turn that waits has its decisions, and none when they are made", () => {
  const events = eventsOf("decisions");
  const lastAsked = events.findLastIndex((event) => ["approval.requested", "question.asked"].includes(event.type));
  const waiting = fold(events.slice(0, lastAsked + 1));
  assert.deepEqual([waiting.status, at(waiting.turns, -1).status], ["waiting", "waiting"]);
  assert.deepEqual(openDecisions(waiting).map((open) => [open.kind, open.callId, open.path, open.question, open.options]).sort(), [
    ["approval", "call_1.1", ["agent-1"], "", []],
    ["question", "call_2", [], "East or west?", ["east", "west"]],
  ]);
  const lastDecided = events.findLastIndex((event) => ["approval.resolved", "question.answered"].includes(event.type));
  assert.equal(at(fold(events.slice(0, lastDecided + 1)).turns, -1).status, "running");
  assert.deepEqual(openDecisions(fold(events)), []);
});

test("a message that is discarded leaves nothing but the error of the model", () => {
  const events = eventsOf("retry");
  const shown = fold(events.slice(0, events.findIndex((event) => event.type === "message.discarded")));
  assert.deepEqual(liveMessages(shown).map(blocks), [["Hel"]]);
  const state = fold(events);
  assert.deepEqual(transcript(state).map(blocks), [["Go."], ["Hello."]]);
  assert.deepEqual(toArray(state.errors).map((error) => [error.kind, error.code, error.retried]), [["model.failed", "stream_cut", true]]);
});

test("a turn that is interrupted or fails says so", () => {
  const stopped = fold(eventsOf("interrupt"));
  assert.deepEqual(toArray(stopped.turns).map((turn) => [turn.status, turn.note, turn.text]), [["interrupted", "enough", "I am count"]]);
  assert.equal(at(stopped.messages, -1).status, "cut");
  const failed = fold(eventsOf("failure"));
  assert.equal(at(failed.turns, -1).error.message.includes("no such model"), true);
  assert.equal(failed.status, "idle");
});

test("an event twice, and a stream twice, change nothing the second time", () => {
  for (const name of NAMES) {
    const events = eventsOf(name);
    const whole = fold(events);
    let state = initialState("s");
    for (const event of events) {
      state = reduce(state, event);
      assert.equal(reduce(state, event), state, `${name}: ${event.type}`);
    }
    assert.deepEqual(fold(events, whole), whole, name);
  }
});

test("live events leave no trace: without them, or with some of them twice or missing, the state is the same", () => {
  for (const name of NAMES) {
    const events = eventsOf(name);
    const whole = fold(events);
    assert.deepEqual(fold(events.filter((event) => event.seq)), whole, name);
    for (let seed = 1; seed <= 20; seed++) {
      const random = (index) => ((seed * 7919 + index * 104729) % 1009) % 3; // 0: missing, 1: once, 2: twice
      const some = events.flatMap((event, index) => (event.seq ? [event] : Array(random(index)).fill(event)));
      assert.deepEqual(fold(some), whole, `${name}, seed ${seed}`);
    }
  }
});

test("the reducer changes no state it was given, and goes on from a state that was JSON", () => {
  for (const name of NAMES) {
    const events = eventsOf(name);
    let frozen = freeze(initialState("s"));
    let copied = initialState("s");
    for (const event of events) {
      frozen = freeze(reduce(frozen, freeze(event)));
      copied = reduce(JSON.parse(JSON.stringify(copied)), event);
    }
    assert.deepEqual(frozen, fold(events), name);
    assert.deepEqual(copied, fold(events), name);
  }
});

test("a reader that comes back after any event has the state of one that never left", () => {
  for (const name of NAMES) {
    const events = eventsOf(name);
    const whole = fold(events);
    for (let seen = 0; seen <= events.length; seen++) {
      const before = fold(events.slice(0, seen));
      for (const happened of new Set([seen, Math.min(seen + 3, events.length), events.length])) {
        const back = fold(resumed(events, before.cursor, happened), before);
        assert.deepEqual(back, whole, `${name}: left after ${seen}, back after ${happened}`);
      }
    }
  }
});

test("a snapshot after its deltas changes nothing, and one in place of them has the same text", () => {
  const snapshot = live("message.snapshot", { message_id: "m1", block: 0, of: "text.delta", text: "A🌺loha" });
  const deltas = fold([live("message.started", { message_id: "m1" }), delta(0, "A🌺"), delta(2, "loha")], begun());
  assert.equal(reduce(deltas, snapshot), deltas);
  assert.deepEqual(reduce(begun(), snapshot).live, deltas.live);
  assert.deepEqual(fold([delta(0, "A🌺"), snapshot, delta(2, "loha")], begun()).live, deltas.live);
  assert.deepEqual(fold([delta(0, "A"), delta(0, "A🌺l"), delta(1, "🌺lo"), delta(2, "loha"), delta(0, "A")], begun()).live, deltas.live);
});

test("deltas after a gap wait for a snapshot, and deltas of an ended message are ignored", () => {
  const gap = fold([delta(0, "Al"), delta(5, "!")], begun());
  assert.deepEqual(liveMessages(gap).map(blocks), [["Al"]]);
  const ended = reduce(gap, durable(5, "message.completed", { message_id: "m1", content: [{ type: "text", text: "Aloha!" }] }));
  assert.equal(reduce(ended, delta(0, "Al")), ended);
  assert.equal(reduce(ended, live("message.started", { message_id: "m1" })), ended);
  const over = reduce(ended, durable(6, "turn.completed", { text: "Aloha!" }));
  const late = live("text.delta", { message_id: "m9", block: 0, offset: 0, text: "late" });
  assert.equal(reduce(over, late), over);
  assert.equal(reduce(over, live("tool.output.delta", { message_id: "c9", block: 0, offset: 0, text: "late" })), over);
});

test("live events of another process may come before the durable events that they follow", () => {
  const over = reduce(begun(), durable(5, "turn.completed", { text: "" }));
  const early = fold([{ ...delta(0, "Al"), turn: "t2" }, live("tool.output.delta", { message_id: "c1", block: 0, offset: 0, text: "one" }, { turn: "t2" })], over);
  const begunNow = fold([durable(6, "turn.started", { agent: "a", inputs: [] }, { turn: "t2" }), { ...delta(2, "oha"), turn: "t2" }], early);
  assert.deepEqual([liveMessages(begunNow).map(blocks), outputOf(begunNow, "c1").stdout], [[["Aloha"]], "one"]);
});

test("a message that was cut off by a crash gives way to the next one of its agent", () => {
  const other = (offset, text) => delta(offset, text, { message_id: "m2" });
  const child = { ...delta(0, "Ka", { message_id: "m3" }), path: ["agent-1"] };
  const crashed = fold([delta(0, "Al"), child, other(0, "Aloha")], begun());
  assert.deepEqual(liveMessages(crashed).map((message) => [message.id, ...blocks(message)]), [["m3", "Ka"], ["m2", "Aloha"]]);
  assert.equal(reduce(crashed, delta(0, "Al")), crashed);
  assert.equal(reduce(crashed, delta(2, "oha")), crashed);
  const resumed = durable(5, "turn.resumed", { agent: "a" });
  const whole = durable(6, "message.completed", { message_id: "m2", content: [{ type: "text", text: "Aloha" }] });
  assert.deepEqual(fold([resumed, whole], crashed), fold([resumed, whole], begun()));
});

test("a running tool shows the end of what it prints, and none after its result", () => {
  const running = fold(
    [
      durable(5, "message.completed", { message_id: "m1", content: [{ type: "call", id: "c1" }] }),
      durable(6, "tool.called", { call: { id: "c1", name: "Bash", arguments: { command: "ls" } }, message_id: "m1" }),
      durable(7, "tool.started", { call: { id: "c1", name: "Bash", arguments: { command: "ls" } }, key: "s/c1", effect: "once" }),
      live("tool.output.delta", { message_id: "c1", block: 0, offset: 0, text: "one\n" }),
      live("tool.output.delta", { message_id: "c1", block: 1, offset: 0, text: "oops\n", stream: "stderr" }),
      live("tool.output.delta", { message_id: "c1", block: 0, offset: 4, text: "two\n" }),
    ],
    begun(),
  );
  assert.deepEqual(outputOf(running, "c1"), { stdout: "one\ntwo\n", stderr: "oops\n" });
  const tail = live("message.snapshot", { message_id: "c1", block: 0, of: "tool.output.delta", text: "end", offset: 5000 });
  const jumped = reduce(running, tail);
  assert.equal(outputOf(jumped, "c1").stdout, "end");
  assert.equal(reduce(jumped, tail), jumped);
  const big = reduce(running, live("tool.output.delta", { message_id: "c1", block: 0, offset: 8, text: "🌺".repeat(OUTPUT_TAIL) }));
  assert.equal(outputOf(big, "c1").stdout, "🌺".repeat(OUTPUT_TAIL / 2));
  const result = { call: "c1", content: [{ type: "text", text: "ok" }] };
  const ended = reduce(big, durable(8, "tool.completed", { result }, { ts: "2026-01-01T00:00:02.500Z" }));
  assert.deepEqual(ended.output, {});
  assert.equal(reduce(ended, tail), ended);
  assert.equal(at(ended.messages, -1).blocks[0].durationMs, 2500);
});

test("inputs wait outside of the conversation until a turn or step takes them, or they are withdrawn", () => {
  const queued = fold(
    [
      durable(5, "input.added", { key: "k2", content: [{ type: "text", text: "And?" }] }, { turn: "" }),
      durable(6, "input.added", { key: "constructor", content: [{ type: "text", text: "No." }] }, { turn: "" }),
      durable(7, "input.withdrawn", { input: "constructor" }, { turn: "" }),
    ],
    begun(),
  );
  assert.deepEqual(transcript(queued).map((message) => [message.status, ...blocks(message)]), [["complete", "Hi"], ["queued", "And?"]]);
  const joined = reduce(queued, durable(8, "step.started", { agent: "a", number: 2, inputs: ["k2"] }));
  assert.deepEqual(toArray(joined.messages).map((message) => message.id), ["k", "k2"]);
  assert.deepEqual(joined.inputs, {});
});

test("inputs that were refused are taken out of the conversation", () => {
  const failed = reduce(begun(), durable(5, "turn.failed", { code: "refused", message: "no", withdrawn: true }));
  assert.deepEqual(transcript(failed), []);
  assert.deepEqual(at(failed.turns, -1).error, { code: "refused", message: "no" });
});

test("what happens between messages is a notice, with the data of its event", () => {
  const state = fold(
    [
      durable(5, "handoff", { source: "a", target: "b" }, { turn: "" }),
      durable(6, "context.compacted", { summary: "So far.", keep_from: 3, before: 900, after: 80 }),
      durable(7, "agent.continued", { number: 1, text: "Go on." }),
      durable(8, "output.rejected", { number: 1, feedback: "A number." }),
      durable(9, "budget.warning", { budget: "cost", used: 8, limit: 10 }),
      durable(10, "session.forked", { origin: "o", cursor: "1.9" }, { turn: "" }),
      durable(11, "checkpoint.saved", { label: "for the model", number: 0 }),
      durable(12, "error", { code: "hook_failed", message: "no" }),
      durable(13, "custom.mine", { name: "mine", value: 1 }),
    ],
    begun(),
  );
  const notices = toArray(state.messages).slice(1).map((message) => [message.role, message.blocks[0].kind, message.blocks[0].text]);
  assert.deepEqual(notices, [
    ["notice", "handoff", "a hands over to b"],
    ["notice", "context.compacted", "So far."],
    ["notice", "agent.continued", "Go on."],
    ["notice", "output.rejected", "A number."],
    ["notice", "budget.warning", "8 of 10 (cost)"],
    ["notice", "session.forked", "forked from o at 1.9"],
  ]);
  assert.deepEqual([state.agent, state.origin, state.checkpoints], ["b", { session: "o", cursor: "1.9" }, []]);
  assert.deepEqual(toArray(state.errors).map((error) => [error.kind, error.code]), [["error", "hook_failed"]]);
});

test("a compaction changes the size of the context, and says what it did", () => {
  const used = fold([durable(5, "usage", { model: "m", usage: { input: 900, output: 10 } })], begun());
  const child = reduce(used, durable(6, "context.compacted", { summary: "", keep_from: 1, before: 900, after: 70 }, { path: ["agent-1"] }));
  const root = reduce(child, durable(7, "context.compacted", { summary: "", keep_from: 1, before: 900, after: 80 }));
  assert.deepEqual([child.context.tokens, root.context.tokens], [900, 80]);
  assert.equal(at(root.messages, -1).blocks[0].text, "long results of earlier calls are shown in part");
});

test("a turn that is asked to stop says so until it has ended, with its open child agents", () => {
  const asked = fold(
    [
      durable(5, "subagent.started", { call: "c1", agent: "scout", child: "agent-1" }),
      durable(6, "interrupt.requested", { key: "i" }, { turn: "" }),
    ],
    begun(),
  );
  assert.equal(at(asked.turns, -1).stopping, true);
  const ended = reduce(asked, durable(7, "turn.cancelled", { note: "left", text: "so far" }));
  assert.deepEqual([at(ended.turns, -1).status, at(ended.turns, -1).text], ["cancelled", "so far"]);
  assert.deepEqual(toArray(ended.subagents).map((child) => [child.path, child.status]), [[["agent-1"], "interrupted"]]);
  assert.deepEqual([ended.openAgents, ended.status], [{}, "idle"]);
});

test("calls that a script makes stand beside the call that made them, and need no message", () => {
  const called = (seq, id, message_id) => durable(seq, "tool.called", { call: { id, name: "look" }, message_id });
  const state = fold([called(5, "call_1", "given"), called(6, "call_1.1", "none"), called(7, "call_2", "given")], begun());
  assert.deepEqual(toArray(state.messages).slice(1).map((message) => [message.id, message.blocks.map((call) => [call.id, call.parent])]), [
    ["given", [["call_1", ""], ["call_1.1", "call_1"], ["call_2", ""]]],
  ]);
});

test("an approval may be remembered for every scope unless its event names some, and only with a rule to remember", () => {
  const scopesOf = (data) => {
    const call = { id: "c1", name: "deploy", arguments: {} };
    return openDecisions(reduce(begun(), durable(5, "approval.requested", { approval: "a1", call, digest: "", spec: "", ...data })))[0].scopes;
  };
  assert.deepEqual(scopesOf({ grant: "deploy" }), ["once", "session", "project", "user"]);
  assert.deepEqual(scopesOf({ grant: "deploy", scopes: ["session", "once"] }), ["once", "session"]);
  assert.deepEqual(scopesOf({}), ["once"]);
});

test("an approval that expires and a question that is answered leave their calls with what was decided", () => {
  const call = { id: "c1", name: "deploy", arguments: { to: "prod" } };
  const asked = fold(
    [
      durable(5, "message.completed", { message_id: "m1", content: [{ type: "call", id: "c1" }, { type: "call", id: "c2" }] }),
      durable(6, "tool.called", { call, message_id: "m1" }),
      durable(7, "tool.called", { call: { id: "c2", name: "ask" }, message_id: "m1" }),
      durable(8, "approval.requested", { approval: "a1", call, digest: "", spec: "", rule: "deploy", scopes: ["session"], grant: "deploy(*)" }),
      durable(9, "tool.started", { call: { id: "c2", name: "ask" }, key: "", effect: "resume" }),
      durable(10, "question.asked", { question: "q1", text: "Where?", call: "c2" }),
    ],
    begun(),
  );
  const calls = (state) => at(state.messages, -1).blocks.map((block) => [block.status, block.decision?.decision ?? ""]);
  assert.deepEqual(calls(asked), [["waiting", ""], ["waiting", ""]]);
  const [approval] = openDecisions(asked);
  assert.deepEqual([approval.rule, approval.grant, approval.scopes, approval.call], ["deploy", "deploy(*)", ["session"], call]);
  const decided = fold(
    [
      durable(11, "approval.expired", { approval: "a1" }, { turn: "" }),
      durable(12, "approval.resolved", { approval: "a1", decision: "approve" }, { turn: "" }),
      durable(13, "question.answered", { question: "q1", answer: "here" }, { turn: "" }),
      durable(14, "question.answered", { question: "q1", answer: "there" }, { turn: "" }),
    ],
    asked,
  );
  assert.deepEqual(calls(decided), [["pending", "expired"], ["running", ""]]);
  const failed = reduce(decided, durable(15, "tool.failed", { result: { call: "c1", failed: true, reason: "expired" } }));
  assert.equal(at(failed.messages, -1).blocks[0].durationMs, null);
  assert.deepEqual([failed.status, decided.decisions], ["running", {}]);
});

test("the text of a large part is its preview, and media are blocks", () => {
  const content = [{ type: "stored", blob: "d", size: 9, preview: "Long" }, { type: "image", url: "https://example.com/a.png" }];
  const state = reduce(begun(), durable(5, "message.completed", { message_id: "m1", content }));
  assert.deepEqual(at(state.messages, -1).blocks, content);
  assert.equal(textOf(at(state.messages, -1).blocks), "Long");
});

test("a model writes the arguments of a call before the call has an id", () => {
  const args = (offset, text) => live("tool.args.delta", { message_id: "m1", block: 1, offset, text, ...(offset ? {} : { name: "look" }) });
  const [message] = liveMessages(fold([delta(0, "See:"), args(0, '{"at":'), args(6, "1}")], begun()));
  assert.deepEqual(message.blocks.map((block) => [block.type, block.name, block.status, block.text ?? block.argumentsText]), [
    ["text", undefined, undefined, "See:"], ["call", "look", "writing", '{"at":1}'],
  ]);
});

test("a rewind may go back to what an earlier rewind has left", () => {
  const said = (seq, text) => durable(seq, "message.completed", { message_id: `m${seq}`, content: [{ type: "text", text }] });
  const back = (seq, to) => durable(seq, "session.reverted", { to }, { turn: "" });
  const texts = (state) => toArray(state.messages).filter((message) => message.role === "assistant").map(textOfMessage);
  const textOfMessage = (message) => textOf(message.blocks);
  const first = fold([said(5, "a"), said(6, "b"), said(7, "c"), back(8, 5), said(9, "d")], begun());
  assert.deepEqual(texts(first), ["a", "d"]);
  const again = fold([back(10, 6), said(11, "e")], first);
  assert.deepEqual(texts(again), ["a", "b", "e"]);
  assert.deepEqual(texts(fold([back(12, 9)], again)), ["a", "d"]);
});

test("a turn that rewinds itself goes on and keeps the inputs that came meanwhile", () => {
  const state = fold(
    [
      durable(5, "message.completed", { message_id: "m1", content: [{ type: "text", text: "x" }] }),
      durable(6, "input.added", { key: "k2", content: [{ type: "text", text: "Also" }] }, { turn: "" }),
      durable(7, "session.reverted", { to: 4, onward: { turn: "t1", step: 3, rewinds: 1, spent: { input: 9 } } }),
    ],
    begun(),
  );
  assert.equal(state.status, "running");
  assert.deepEqual(transcript(state).map((message) => message.id), ["k", "1.7", "k2"]);
  assert.deepEqual([at(state.turns, -1).steps, at(state.turns, -1).usage.input], [3, 9]);
});

test("a reset and a new epoch begin anew", () => {
  const whole = fold(eventsOf("tools"));
  assert.deepEqual(reduce(whole, live("stream.reset", { reason: "no event 9.9 here" })), initialState("s"));
  const restored = { ...durable(1, "session.opened", { agent: "b" }, { turn: "" }), id: "2.1" };
  assert.deepEqual(reduce(whole, restored), reduce(initialState("s"), restored));
});

test("unknown events move the cursor and change nothing else", () => {
  const state = begun();
  const next = reduce(state, { type: "unknown", raw: {}, seq: 5, id: "1.5" });
  assert.deepEqual({ ...next, cursor: state.cursor, seq: state.seq }, state);
  assert.equal(next.cursor, "1.5");
  assert.equal(reduce(state, { type: "unknown", raw: "{" }), state);
});

test("an event makes as many objects after 20,000 messages as after 20", () => {
  const countNew = (before, after) => {
    const known = new Set();
    const walk = (value, visit) => {
      if (typeof value !== "object" || value === null || !visit(value)) return;
      for (const item of Object.values(value)) walk(item, visit);
    };
    walk(before, (value) => !known.has(value) && known.add(value));
    let count = 0;
    walk(after, (value) => !known.has(value) && (count += Array.isArray(value) ? value.length : Object.keys(value).length) && known.add(value));
    return count;
  };
  const costs = [20, 20_000].map((size) => {
    let state = begun();
    for (let seq = 5; seq < 5 + size; seq++) {
      state = reduce(state, durable(seq, "message.completed", { message_id: `m${seq}`, content: [{ type: "text", text: "x" }] }));
    }
    const opened = fold([durable(size + 9, "step.completed", { number: 1 })], state);
    const streamed = reduce(opened, live("text.delta", { message_id: "new", block: 0, offset: 0, text: "Al" }));
    const more = reduce(streamed, live("text.delta", { message_id: "new", block: 0, offset: 2, text: "oha" }));
    const done = reduce(more, durable(size + 10, "message.completed", { message_id: "new", content: [{ type: "text", text: "Aloha" }] }));
    return [countNew(streamed, more), countNew(more, done)];
  });
  const [small, large] = costs;
  assert.equal(large[0], small[0]);
  assert.ok(large[1] <= small[1] + 3 * 33 + 128, `${large[1]} entries were copied, ${small[1]} in a short session`);
});

test("a list keeps its entries through pushes, replacements and cuts", () => {
  let list = emptyList();
  const plain = [];
  for (let number = 0; number < 2100; number++) {
    list = push(list, number);
    plain.push(number);
  }
  assert.deepEqual(toArray(list), plain);
  assert.deepEqual([at(list, 0), at(list, 1055), at(list, -1), at(list, 2100), at(list, -2101)], [0, 1055, 2099, undefined, undefined]);
  assert.equal(pages(list).length, 66);
  const changed = replace(list, 40, "x");
  assert.deepEqual([at(changed, 40), at(list, 40)], ["x", 40]);
  assert.equal(pages(changed)[5], pages(list)[5]);
  for (const size of [0, 1, 31, 32, 33, 1024, 1025, 2099, 2100, 9999]) {
    const cut = truncate(list, size);
    assert.deepEqual(toArray(cut), plain.slice(0, size));
    assert.deepEqual(toArray(push(cut, "y")), [...plain.slice(0, size), "y"]);
  }
});

test("a store calls its listeners for changes alone, until they leave", () => {
  const store = createStore("s");
  let calls = 0;
  const leave = store.subscribe(() => calls++);
  const [first, second] = eventsOf("tools");
  store.apply(first);
  store.apply(first);
  assert.equal(calls, 1);
  leave();
  store.apply(second);
  assert.deepEqual([calls, store.state.seq], [1, 2]);
});

test("an erased session has nothing that was said, and its erased events change nothing", () => {
  const state = reduce(begun(), durable(5, "session.erased", { events: 4 }, { channel: "control" }));
  assert.deepEqual(toArray(state.messages), []);
  assert.deepEqual([state.agent, state.title, state.seq, state.cursor, state.status], ["", "", 5, "1.5", "closed"]);
  const { data: _, ...stub } = durable(1, "input.added", {}, { erased: "0".repeat(64) });
  const event = toEvent(stub);
  assert.deepEqual([event.type, event.seq, event.raw.type], ["unknown", 1, "input.added"]);
  assert.deepEqual([reduce(initialState("s"), event).seq, toEvent({ ...stub, erased: 5 }).seq], [1, undefined]);
});
