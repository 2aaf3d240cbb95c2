// Server-sent events, from bytes in pieces of any size.

export interface SseFrame {
  event: string;
  data: string;
  /** The last id of the stream, also that of an earlier frame. */
  id: string;
}

export class SseParser {
  /** The delay in milliseconds that the stream asked for with `retry:`. */
  retryMs: number | undefined;
  readonly #decoder = new TextDecoder(); // drops a byte order mark, and keeps the bytes of a cut character
  #line: string[] = [];
  #endedWithCr = false;
  #event = "";
  #data: string[] = [];
  #id = "";

  /** Return the frames that these bytes complete. */
  push(bytes: Uint8Array): SseFrame[] {
    const frames: SseFrame[] = [];
    let text = this.#decoder.decode(bytes, { stream: true });
    if (!text) return frames;
    if (this.#endedWithCr && text[0] === "\n") text = text.slice(1); // the second half of CRLF
    this.#endedWithCr = false;
    const ends = /\r\n|\r|\n/g;
    let start = 0;
    for (let end = ends.exec(text); end; end = ends.exec(text)) {
      this.#line.push(text.slice(start, end.index));
      start = ends.lastIndex;
      const frame = this.#endLine(this.#line.length === 1 ? this.#line[0]! : this.#line.join(""));
      this.#line = [];
      if (frame) frames.push(frame);
      this.#endedWithCr = end[0] === "\r" && start === text.length;
    }
    if (start < text.length) this.#line.push(text.slice(start));
    return frames;
  }

  #endLine(line: string): SseFrame | undefined {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return undefined; // a comment
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    else if (field === "retry" && /^\d+$/.test(value)) this.retryMs = Number(value);
    return undefined;
  }

  #dispatch(): SseFrame | undefined {
    const data = this.#data;
    const event = this.#event || "message";
    this.#data = [];
    this.#event = "";
    return data.length ? { event, data: data.join("\n"), id: this.#id } : undefined;
  }
}
