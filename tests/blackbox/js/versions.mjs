// Prints, for each client, whether its package can be imported, and the version of Node.js.
const packages = process.argv.slice(2);
const found = await Promise.all(packages.map(async (name) => [name, Object.keys(await import(name)).length > 0]));
console.log(JSON.stringify({ node: process.versions.node.split(".")[0], ...Object.fromEntries(found) }));
