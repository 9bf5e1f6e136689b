/*
 * Node's own `fetch` is loaded before the package `undici`, which the product's sources import: whichever is first in a
 * process sends for both, and `undici` refuses what some libraries give Node's, such as a `Content-Length`. Files share
 * processes, so without this it would depend on their order.
 */
await fetch('data:,');
