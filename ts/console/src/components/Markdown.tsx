import DOMPurify from "dompurify";
import { Marked, type Token, type Tokens } from "marked";
import { memo } from "preact/compat";
import { useRef } from "preact/hooks";
import { highlight } from "../highlight.ts";

const escape = (text: string): string => text.replace(/[&<>"']/g, (each) => `&#${each.charCodeAt(0)};`);

/** Nothing of a model's output is trusted: HTML is shown as text, pictures become links, and the result is sanitised. */
const marked = new Marked({
  gfm: true,
  breaks: false,
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => escape(text),
    image: ({ href, text }: Tokens.Image) => `<a class="blocked-image" href="${escape(href)}">image: ${escape(text || href)} (${escape(href)})</a>`,
    code: ({ text, lang }: Tokens.Code) => `<pre tabindex="0"><code>${highlight(text, lang ?? "")}</code></pre>`,
    checkbox: ({ checked }: Tokens.Checkbox) => (checked ? "☑ " : "☐ "),
  },
});

const TAGS = "a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i li ol p pre s span strong sub sup table tbody td th thead tr ul".split(" ");

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer");
});

export function toHtml(tokens: Token[]): string {
  return DOMPurify.sanitize(marked.parser(tokens), {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ["href", "class", "start", "align", "tabindex", "title"],
    ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
    ADD_URI_SAFE_ATTR: ["start", "align", "tabindex", "title"],
    ALLOW_DATA_ATTR: false,
  });
}

interface Block {
  raw: string;
  html: string;
}

/** Cut markdown into blocks. Only what follows the last finished block is parsed again when text is appended. */
export class BlockParser {
  private finished: Block[] = [];
  private done = 0;
  private source = "";

  parse(text: string): Block[] {
    if (!text.startsWith(this.source.slice(0, this.done))) {
      this.finished = [];
      this.done = 0;
    }
    this.source = text;
    const tokens = marked.lexer(text.slice(this.done));
    let open = tokens.length - 1;
    while (open > 0 && tokens[open]!.type === "space") open--;
    for (const token of tokens.slice(0, Math.max(0, open))) {
      this.done += token.raw.length;
      this.finished.push({ raw: token.raw, html: toHtml([token]) });
    }
    const rest = tokens.slice(Math.max(0, open));
    return rest.length ? [...this.finished, { raw: rest.map((each) => each.raw).join(""), html: toHtml(rest) }] : this.finished;
  }
}

const BlockView = memo(({ html }: { html: string }) => <div dangerouslySetInnerHTML={{ __html: html }} />);

/** `live` shows where the text grows. */
export const Markdown = memo(({ text, live }: { text: string; live?: boolean }) => {
  const parser = useRef<BlockParser | null>(null);
  parser.current ??= new BlockParser();
  return <div class={live ? "markdown live" : "markdown"}>{parser.current.parse(text).map((block, index) => <BlockView key={index} html={block.html} />)}</div>;
});
