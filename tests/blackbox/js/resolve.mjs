// Looks for packages in the folder named by VAKA_JS_CLIENTS, since the scripts lie outside of it.
import { registerHooks } from "node:module";
import { pathToFileURL } from "node:url";

const parentURL = pathToFileURL(`${process.env.VAKA_JS_CLIENTS}/package.json`).href;

registerHooks({
  resolve(specifier, context, next) {
    const bare = !/^(\.{0,2}\/|[a-z]+:)/.test(specifier);
    const ours = !context.parentURL?.includes("/node_modules/");
    return bare && ours ? next(specifier, { ...context, parentURL }) : next(specifier, context);
  },
});
