/** A small, language-blind highlighter: comments, strings, numbers and the keywords that most languages share. */
const KEYWORDS = new Set(
  ("and as async await bool break case catch class const continue def default defer del do elif else end enum except export extends false False finally fn for from func function go if impl import in int interface " +
    "is lambda let local match mod module mut new nil None not null or package pass pub raise return select self static str struct super switch then this throw trait true True try type typeof undefined unless until use " +
    "var void where while with yield").split(" "),
);
const HASH_COMMENTS = /^(py|python|sh|bash|shell|zsh|toml|yaml|yml|ruby|rb|makefile|dockerfile|ini|conf|)$/i;
const DASH_COMMENTS = /^(lua|luau|sql|haskell)$/i;
const PLAIN = /^(text|txt|plain|markdown|md|diff|console|output)$/i;
const MAX = 60_000;

const escape = (text: string): string => text.replace(/[&<>"']/g, (each) => `&#${each.charCodeAt(0)};`);

export function highlight(code: string, language: string): string {
  const name = language.split(/\s/)[0] ?? "";
  if (code.length > MAX || PLAIN.test(name)) return escape(code);
  const comment = HASH_COMMENTS.test(name) ? "#[^\\n]*" : DASH_COMMENTS.test(name) ? "--[^\\n]*" : "//[^\\n]*|/\\*[^]*?(?:\\*/|$)";
  const pattern = new RegExp(`(${comment})|("(?:[^"\\\\\\n]|\\\\.)*"?|'(?:[^'\\\\\\n]|\\\\.)*'?|\`(?:[^\`\\\\]|\\\\.)*\`?)|(\\b\\d[\\w.]*)|([A-Za-z_]\\w*)`, "g");
  let html = "";
  let last = 0;
  for (const match of code.matchAll(pattern)) {
    const kind = match[1] ? "c" : match[2] ? "s" : match[3] ? "n" : KEYWORDS.has(match[4] ?? "") ? "k" : "";
    html += escape(code.slice(last, match.index));
    html += kind ? `<span class="${kind}">${escape(match[0])}</span>` : escape(match[0]);
    last = match.index + match[0].length;
  }
  return html + escape(code.slice(last));
}
