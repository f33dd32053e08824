// Serves `dist` and passes everything else on to a Turnfast server, so that page and server have one origin, as they do behind a
// proxy: `node serve.mjs [--port 8081] [--server http://127.0.0.1:8080] [--folder dist]`.
import { createReadStream, existsSync } from "node:fs";
import { createServer, request } from "node:http";
import { extname, join, normalize } from "node:path";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: {
    port: { type: "string", default: "8081" },
    server: { type: "string", default: "http://127.0.0.1:8080" },
    folder: { type: "string", default: "dist" },
  },
});

const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm" };

const server = createServer((incoming, outgoing) => {
  const path = normalize(new URL(incoming.url, options.server).pathname);
  const file = join(options.folder, path === "/" ? "index.html" : path);
  if (incoming.method === "GET" && extname(file) in types && existsSync(file)) {
    outgoing.writeHead(200, { "content-type": types[extname(file)] });
    createReadStream(file).pipe(outgoing);
    return;
  }
  const passedOn = request(new URL(incoming.url, options.server), { method: incoming.method, headers: incoming.headers });
  passedOn.on("response", (answer) => {
    outgoing.writeHead(answer.statusCode, answer.headers);
    answer.pipe(outgoing);
    answer.on("error", () => outgoing.destroy());
  });
  passedOn.on("error", () => outgoing.destroy());
  // A reader that leaves is not kept waiting for at the server.
  outgoing.on("close", () => passedOn.destroy());
  incoming.pipe(passedOn);
});

server.listen(Number(options.port), "127.0.0.1", () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
