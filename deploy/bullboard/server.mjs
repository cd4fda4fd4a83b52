// Bull Board on Archiver's queues: what waits, runs and failed, with data, progress and logs; failed jobs can be retried.
//
// REDIS_URL, REDIS_PASSWORD   the server of the queues, and its password if the address has none
// BULL_BOARD_PASSWORD   for the user "archiver"; without it, the server does not start
// BULL_BOARD_PORT, BULL_BOARD_HOST   default 3000 and 127.0.0.1

import { createHash, timingSafeEqual } from "node:crypto";
import { createBullBoard } from "@bull-board/api";
import { BullMQAdapter } from "@bull-board/api/bullMQAdapter";
import { ExpressAdapter } from "@bull-board/express";
import { Queue } from "bullmq";
import express from "express";

const { REDIS_URL, BULL_BOARD_PASSWORD, BULL_BOARD_PORT = "3000", BULL_BOARD_HOST = "127.0.0.1" } = process.env;
if (!REDIS_URL || !BULL_BOARD_PASSWORD) {
  console.error("set REDIS_URL and BULL_BOARD_PASSWORD");
  process.exit(2);
}

const digest = (text) => createHash("sha256").update(text).digest();
const expected = digest("Basic " + Buffer.from("archiver:" + BULL_BOARD_PASSWORD).toString("base64"));

const connection = redisOptions(REDIS_URL, process.env.REDIS_PASSWORD);
const queues = ["ingestion", "indexing"].map((name) => new Queue(name, { connection }));
const board = new ExpressAdapter();
createBullBoard({ queues: queues.map((queue) => new BullMQAdapter(queue)), serverAdapter: board });

const app = express();
app.disable("x-powered-by");
app.get("/healthz", (_, response) => response.send("ok\n"));
app.use((request, response, next) => {
  if (timingSafeEqual(digest(request.headers.authorization ?? ""), expected)) return next();
  response.set("WWW-Authenticate", 'Basic realm="Bull Board"').status(401).send("Sign in as archiver\n");
});
app.use("/", board.getRouter());
const server = app.listen(Number(BULL_BOARD_PORT), BULL_BOARD_HOST, () =>
  console.log(`Bull Board at http://${BULL_BOARD_HOST}:${server.address().port}`));

function redisOptions(address, given) {
  // unix://:password@/path, as the embedded server has it, which `URL` does not accept; or redis:// and rediss://
  const socket = address.match(/^unix:\/\/(?:[^:@/]*:([^@]*)@)?(\/[^?]*)/);
  if (socket) return { password: decodeURIComponent(socket[1] ?? "") || given || undefined, path: decodeURIComponent(socket[2]) };
  const url = new URL(address);
  return {
    host: url.hostname,
    port: Number(url.port || 6379),
    username: decodeURIComponent(url.username) || undefined,
    password: decodeURIComponent(url.password) || given || undefined,
    db: Number(url.pathname.slice(1) || 0),
    tls: url.protocol === "rediss:" ? {} : undefined,
  };
}

for (const signal of ["SIGTERM", "SIGINT"])
  process.on(signal, async () => {
    server.close();
    await Promise.all(queues.map((queue) => queue.close()));
    process.exit(0);
  });
