// The recorded streams, and what the tests do with them.
import { readdirSync, readFileSync } from "node:fs";
import { parseEvent } from "../dist/events.js";
import { SseParser } from "../dist/sse.js";
import { initialState, reduce } from "../dist/store.js";

const FOLDER = new URL("./streams/", import.meta.url);

export const NAMES = readdirSync(FOLDER).map((file) => file.replace(/\.sse$/, "")).sort();

export const bytesOf = (name) => new Uint8Array(readFileSync(new URL(`${name}.sse`, FOLDER)));

export const parseAll = (bytes) => new SseParser().push(bytes).map((frame) => parseEvent(frame.data));

export const eventsOf = (name) => parseAll(bytesOf(name));

export const fold = (events, state = initialState("s")) => events.reduce(reduce, state);
