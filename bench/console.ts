import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { openBrowser } from '../test/browser/browser.ts';
import { median } from './cpu.ts';
import { count, load, newWrite } from './load.ts';
import type { BenchOptions, BenchResult } from './result.ts';
import { type Gateway, openStage } from './stage.ts';

const MOST_EFFECTS = 100_000;
const OPENINGS = 5;
const RATE = 500;
const LIVE_MS = 10_000;
/** Calls of the stream go out in so many groups a second. */
const GROUPS = 50;

/** What the console's list of effects takes where there are 100,000, and while 500 a second are decided, in a real browser. */
export async function run(options: BenchOptions): Promise<BenchResult[]> {
  const effects = Math.min(options.effects, MOST_EFFECTS);
  // Before the stage, which keeps this process and what it starts on one core.
  const browser = await openBrowser();
  const stage = await openStage();
  try {
    const gateway = await stage.gateway({ name: 'gateway', rules: 'two' });
    await writes(gateway, effects, 64);
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
    const page = await context.newPage();
    await page.goto(await consoleLink(gateway));
    await page.waitForSelector('.shell');
    const openings: number[] = [];
    for (let n = 0; n < OPENINGS; n += 1) {
      await page.goto('about:blank');
      openings.push(await opening(page, `${gateway.url}/console/bench/effects`));
    }
    const idle = await frames(page, LIVE_MS / 2);
    const live = decide(gateway);
    const busy = await frames(page, LIVE_MS);
    const decided = await live;
    return [
      figure(`console: ${effects} effects, from the address to the first rows`, median(openings), 'ms', '<= 1000'),
      {
        ...figure(`console: frames while ${decided} calls a second are decided`, busy.rate, 'frames/s', '>= 50'),
        peer: `longest ${Math.round(busy.longest)} ms; without calls ${Math.round(idle.rate)} frames/s, longest ${Math.round(idle.longest)} ms`,
      },
    ];
  } finally {
    await browser.close();
    await stage.stop();
  }
}

function figure(name: string, value: number, unit: string, target: string): BenchResult {
  return { name, value: Math.round(value), unit, peer: null, ratio: null, target };
}

function writes({ url, key }: Gateway, calls: number, connections: number): Promise<unknown> {
  return load({ url, connections, next: count(calls, () => newWrite(key)), expected: [201] });
}

/** Calls for a while, {@link RATE} a second. @returns how many a second were answered */
async function decide(gateway: Gateway): Promise<number> {
  const begun = performance.now();
  const running: Promise<unknown>[] = [];
  for (let group = 0; group * (1_000 / GROUPS) < LIVE_MS; group += 1) {
    await pause(Math.max(0, begun + group * (1_000 / GROUPS) - performance.now()));
    running.push(writes(gateway, RATE / GROUPS, RATE / GROUPS));
  }
  await Promise.all(running);
  return Math.round((running.length * (RATE / GROUPS) * 1_000) / (performance.now() - begun));
}

/** A link that signs an account in, as `svc console` prints one. */
async function consoleLink({ url, folder }: Gateway): Promise<string> {
  const ask = async (path: string, key: string, body: object, member: 'key' | 'url'): Promise<string> => {
    const headers = { 'x-api-key': key, 'content-type': 'application/json' };
    const response = await fetch(`${url}${path}`, { method: 'POST', headers, body: JSON.stringify(body) });
    const answer: unknown = await response.json();
    const value: unknown = typeof answer === 'object' && answer !== null ? Reflect.get(answer, member) : null;
    if (typeof value === 'string') return value;
    throw new Error(`${path}: ${JSON.stringify(answer)}`);
  };
  const administrative = readFileSync(join(folder, 'admin.key'), 'utf8').trim();
  const account = { name: 'console', kind: 'account', workspace: 'bench' };
  const key = await ask('/v1/beta/users/bench/keys', administrative, account, 'key');
  return ask('/v1/beta/console/links', key, {}, 'url');
}

async function opening(page: Page, url: string): Promise<number> {
  const begun = performance.now();
  await page.goto(url, { waitUntil: 'commit' });
  await page.waitForSelector('a.cells');
  return performance.now() - begun;
}

/** Frames that the page draws, a second, and the longest time between two of them, ms. */
function frames(page: Page, ms: number): Promise<{ readonly rate: number; readonly longest: number }> {
  return page.evaluate(`new Promise((resolve) => {
    const begun = performance.now();
    let [count, last, longest] = [0, begun, 0];
    const frame = (now) => {
      count += 1;
      longest = Math.max(longest, now - last);
      last = now;
      if (now - begun < ${ms}) requestAnimationFrame(frame);
      else resolve({ rate: (count * 1000) / (now - begun), longest });
    };
    requestAnimationFrame(frame);
  })`);
}
