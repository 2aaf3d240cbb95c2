// Build the console into the Python package: hashed assets, index.html and manifest.json.
// `node build.mjs` writes them; `node build.mjs --check` builds in memory and fails when what is committed differs.
import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const output = join(here, "../../src/vaka/server/console_assets");
const JS_LIMIT = 120 * 1024;
const CSS_LIMIT = 15 * 1024;

async function bundle() {
  const result = await build({
    absWorkingDir: here,
    entryPoints: { console: "src/main.tsx" },
    outdir: "assets",
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: ["es2022"],
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    charset: "utf8",
    metafile: true,
  });
  const files = new Map();
  const names = {};
  for (const file of result.outputFiles) {
    const extension = file.path.endsWith(".css") ? "css" : "js";
    const name = `assets/console-${digest(file.contents).slice(0, 12)}.${extension}`;
    names[extension] = name;
    files.set(name, Buffer.from(file.contents));
  }
  const template = await readFile(join(here, "index.html"), "utf8");
  files.set("index.html", Buffer.from(template.replace("{{js}}", names.js).replace("{{css}}", names.css)));
  files.set("licenses.txt", Buffer.from(await licensesOf(Object.keys(result.metafile.inputs))));
  const manifest = Object.fromEntries([...files].map(([name, body]) => [name, digest(body)]).sort());
  files.set("manifest.json", Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`));
  return files;
}

/** The licences of the packages whose code is in the bundle, which require that their text goes with it. */
async function licensesOf(inputs) {
  const packages = new Set(inputs.map((path) => /(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]).filter(Boolean));
  const texts = [];
  for (const folder of [...packages].map((path) => join(here, path)).sort()) {
    const { name, version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
    const file = (await readdir(folder)).find((each) => /^licen[cs]e/i.test(each));
    if (!file) throw new Error(`${name} has no text of its licence (${license})`);
    texts.push(`${name} ${version} (${license})\n\n${(await readFile(join(folder, file), "utf8")).trim()}\n`);
  }
  return `The console contains code of these packages.\n\n${texts.join(`\n${"-".repeat(80)}\n\n`)}`;
}

function digest(body) {
  return createHash("sha256").update(body).digest("hex");
}

function checkSizes(files) {
  for (const [name, body] of files) {
    const limit = name.endsWith(".js") ? JS_LIMIT : name.endsWith(".css") ? CSS_LIMIT : Infinity;
    const size = gzipSync(body, { level: 9 }).length;
    if (limit !== Infinity) console.log(`${name}: ${(size / 1024).toFixed(1)} KB gzip of ${limit / 1024}`);
    if (size > limit) throw new Error(`${name} has ${size} bytes gzipped; the budget is ${limit}`);
  }
}

async function write(files) {
  await rm(output, { recursive: true, force: true });
  await mkdir(join(output, "assets"), { recursive: true });
  for (const [name, body] of files) await writeFile(join(output, name), body);
}

async function check(files) {
  const committed = [...(await readdir(output)), ...(await readdir(join(output, "assets"))).map((name) => `assets/${name}`)];
  const unexpected = committed.filter((name) => name !== "assets" && !files.has(name));
  const different = [];
  for (const [name, body] of files) {
    const stored = await readFile(join(output, name)).catch(() => Buffer.alloc(0));
    if (!stored.equals(body)) different.push(name);
  }
  if (unexpected.length || different.length) {
    const names = [...new Set([...unexpected, ...different])].join(", ");
    throw new Error(`console_assets is not what ts/console builds (${names}): run 'npm run build' in ts/console`);
  }
}

const files = await bundle();
checkSizes(files);
await (process.argv.includes("--check") ? check(files) : write(files));
