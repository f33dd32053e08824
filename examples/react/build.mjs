// Bundles pages: `node build.mjs FOLDER ENTRY…`. The wasm goes beside the bundles, where the package looks for it.
import { build } from "esbuild";
import { copyFileSync, mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

const [folder, ...entryPoints] = process.argv.slice(2);
await build({ entryPoints, bundle: true, minify: true, format: "esm", outdir: folder, entryNames: "[name]", logLevel: "warning" });
mkdirSync(folder, { recursive: true });
copyFileSync(fileURLToPath(import.meta.resolve("turnfast-client/turnfast_client_bg.wasm")), `${folder}/turnfast_client_bg.wasm`);
for (const file of ["index.html", "style.css"]) copyFileSync(new URL(file, import.meta.url), `${folder}/${file}`);
