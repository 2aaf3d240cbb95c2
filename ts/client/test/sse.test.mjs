import assert from "node:assert/strict";
import { test } from "node:test";
import { parseEvent, toEvent } from "../dist/events.js";
import { SseParser } from "../dist/sse.js";
import { bytesOf, eventsOf, NAMES } from "./streams.mjs";

const encoder = new TextEncoder();
const parse = (...parts) => {
  const parser = new SseParser();
  return parts.flatMap((part) => parser.push(typeof part === "string" ? encoder.encode(part) : part));
};

test("a stream gives the same frames however it is divided into two", () => {
  const bytes = encoder.encode("\uFEFFid: 1.1\r\nevent: a\rdata: {\"x\":\"🌺\"}\n: hi\ndata:second\r\n\r\n\rretry: 40\ndata\n\nid\ndata: é\n\n");
  const whole = [
    { event: "a", data: '{"x":"🌺"}\nsecond', id: "1.1" },
    { event: "message", data: "", id: "1.1" },
    { event: "message", data: "é", id: "" },
  ];
  assert.deepEqual(parse(bytes), whole);
  for (let cut = 0; cut <= bytes.length; cut++) {
    assert.deepEqual(parse(bytes.slice(0, cut), bytes.slice(cut)), whole, `cut at ${cut}`);
  }
});

test("a recorded stream byte by byte gives the same frames", () => {
  for (const name of NAMES) {
    const bytes = bytesOf(name);
    const parser = new SseParser();
    const frames = [...bytes].flatMap((byte) => parser.push(new Uint8Array([byte])));
    assert.deepEqual(frames, parse(bytes), name);
  }
});

test("comments give no frame, retry is a number, and a frame needs data", () => {
  const parser = new SseParser();
  assert.deepEqual(parser.push(encoder.encode(": open\nretry: 1000\n\nevent: x\n\nretry: soon\nid: a\0b\n: ping\n\n")), []);
  assert.equal(parser.retryMs, 1000);
  assert.deepEqual(parser.push(encoder.encode("data: y\n\n")), [{ event: "message", data: "y", id: "" }]);
});

test("a frame that is cut off by the end of the stream is not given", () => {
  assert.deepEqual(parse("data: a\n\ndata: b\n"), [{ event: "message", data: "a", id: "" }]);
});

test("each event of a recorded stream is known", () => {
  for (const name of NAMES) assert.deepEqual(eventsOf(name).filter((event) => event.type === "unknown"), [], name);
});

test("what is not a known event comes as unknown and never throws", () => {
  const envelope = { v: 1, seq: 7, id: "1.7", ts: "t", session: "s", turn: "", step: 0, path: [], channel: "monitor", prev: "" };
  const future = { ...envelope, type: "future.event", data: { x: 1 } };
  assert.deepEqual(toEvent(future), { ...future, type: "unknown", raw: future });
  assert.equal(toEvent({ ...future, type: "custom.mine" }).type, "custom.mine");
  for (const text of ["", "null", "[1]", "3", '"x"', "{", '{"type":"text.delta"}', '{"type":"text.delta","data":[],"path":[]}']) {
    assert.equal(parseEvent(text).type, "unknown", text);
  }
  assert.deepEqual(parseEvent("{"), { type: "unknown", raw: "{" });
});
