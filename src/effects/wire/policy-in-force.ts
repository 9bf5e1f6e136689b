import type { PolicyInForce } from '../policy-store.ts';
import { timeToWire } from './time.ts';

/** When a version was put in force, by whom, and why. */
export function activationToWire({ version, at, by, how, why, files, confirmedBy }: PolicyInForce) {
  const details = {
    ...(why === undefined ? {} : { why }),
    ...(files === undefined ? {} : { files }),
    ...(confirmedBy === undefined ? {} : { confirmed_by: confirmedBy }),
  };
  return { version, at: timeToWire(at), by: { type: by.type, id: by.id }, how, ...details };
}
