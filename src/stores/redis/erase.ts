import type { EffectRecord } from '../../effects/model/effect.ts';
import type { EraseRequest, Erasure } from '../../effects/store.ts';
import { keptOf } from '../../effects/steps/erase.ts';
import { StoreUnavailable } from '../../effects/store.ts';
import type { StepReply } from './frame.ts';
import { plainText } from './names.ts';

/** How often what the effect came to may change between reading it and erasing. */
const MAX_TRIES = 5;

/**
 * Erases what is known of an effect: its outcome is one document with the kept answer, so it is read, and written again
 * without, if it is still the same.
 */
export async function eraseOnRedis(
  request: EraseRequest,
  read: () => Promise<EffectRecord | null>,
  step: (args: readonly string[]) => Promise<StepReply>,
): Promise<Erasure> {
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    const effect = await read();
    if (effect === null) return { kind: 'absent' };
    const { tag } = await step(eraseArguments(request, effect));
    switch (tag) {
      case 'erased':
      case 'unchanged':
      case 'needed':
      case 'absent':
        return { kind: tag };
      case 'moved':
        break;
      default:
        throw new TypeError(`the script that erases answered ${tag}`);
    }
  }
  throw new StoreUnavailable('the effect changed faster than it could be erased');
}

function eraseArguments({ effectId, actor }: EraseRequest, { life }: EffectRecord): readonly string[] {
  return [
    JSON.stringify({
      effect: plainText(effectId),
      st: life.state,
      at: 'at' in life ? String(life.at) : '',
      kept: keptOf(life) === null ? '' : '1',
      atype: actor.type,
      actor: plainText(actor.id),
    }),
    outcomeWithoutAnswer(life),
  ];
}

/** As settlement writes it, without what was kept. */
function outcomeWithoutAnswer(life: EffectRecord['life']): string {
  if (life.state === 'committed') {
    const { settledBy, evidence, accepted, responseTruncated } = life;
    return JSON.stringify({ settledBy, evidence, result: null, accepted, responseTruncated });
  }
  return life.state === 'failed'
    ? JSON.stringify({ settledBy: life.settledBy, evidence: life.evidence, result: null })
    : '';
}
