// The package in Node and its like, where fetch does not read files.
import { readFile } from "node:fs/promises";
import * as web from "./index.js";

export { TurnfastError, textOf } from "./index.js";

export function connect(options = {}) {
  const wasm = options.wasm ?? readFile(new URL("./turnfast_client_bg.wasm", import.meta.url));
  return web.connect({ ...options, wasm });
}
