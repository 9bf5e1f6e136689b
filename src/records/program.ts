import type { AskProgram, Ended, Program } from '../stores/open-rows.ts';
import { readOwnJson } from '../json/read.ts';
import type { RequestOf, StepName } from '../effects/steps/table.ts';
import { COUNTED } from './counted.ts';
import { LocalSteps } from './local-steps.ts';
import {
  readAdmission,
  readAdmit,
  readSettle,
  readSettlement,
  writeAdmission,
  writeAdmit,
  writeSettle,
  writeSettlement,
} from './step-messages.ts';
import type { StepRunner } from './runner.ts';
import type { Steps } from './steps.ts';

/** What is asked of the program in the store's thread. */
type Asked =
  | { readonly [Name in StepName]: readonly ['run' | 'preview', Name, string, RequestOf<Name>] }[StepName]
  | readonly ['declare_lost', string, string]
  | readonly ['declare_lost_leases' | 'give_back_over', string, number]
  | readonly ['flush_counted'];

/** What a request for one of the steps of every call begins with; any other is a JSON array. */
const ADMIT = 'a';
const SETTLE = 's';

/** The module that a thread of the store imports {@link program} from. */
export const PROGRAM_MODULE = new URL(import.meta.url);

/** Runs the rules' steps where the store's file is. */
export const program: Program = (ended) => {
  const steps = new LocalSteps(ended);
  return (store, request) => {
    if (request.startsWith(ADMIT)) {
      const admit = readAdmit(request.slice(ADMIT.length));
      return writeAdmission(steps.run(store, 'admit', admit.workspace, admit), admit);
    }
    if (request.startsWith(SETTLE)) {
      const settle = readSettle(request.slice(SETTLE.length));
      return writeSettlement(steps.run(store, 'settle', settle.workspace, settle));
    }
    const asked = readOwnJson<Asked>(request);
    switch (asked[0]) {
      case 'run':
        return JSON.stringify(steps.run(store, asked[1], asked[2], asked[3]));
      case 'preview':
        return JSON.stringify(steps.preview(store, asked[1], asked[2], asked[3]));
      case 'declare_lost':
        return JSON.stringify(steps.declareLost(store, asked[1], asked[2]));
      case 'declare_lost_leases':
        return JSON.stringify(steps.declareLostLeases(store, asked[1], asked[2]));
      case 'give_back_over':
        steps.giveBackOver(store.in(asked[1]), COUNTED, asked[2]);
        return 'null';
      case 'flush_counted':
        steps.flushCounted(store);
        return 'null';
    }
  };
};

/** The steps, as they are run in the store's thread. */
export function remoteSteps(ask: AskProgram, runner: StepRunner, ended: Ended): Steps {
  const send = <T>(asked: readonly unknown[], isCommit = false): Promise<T> =>
    runner.elsewhere(ask, JSON.stringify(asked), readOwnJson<T>, isCommit);
  return {
    admit: (request) =>
      runner.elsewhere(ask, ADMIT + writeAdmit(request), (answer) => readAdmission(answer, request), true),
    settle: (request) => runner.elsewhere(ask, SETTLE + writeSettle(request), readSettlement, true),
    run: (name, workspace, request) => send(['run', name, workspace, request], true),
    preview: (name, workspace, request) => send(['preview', name, workspace, request]),
    declareLost: (workspace, id) => send(['declare_lost', workspace, id]),
    async giveBackOver(workspace, limit) {
      await send(['give_back_over', workspace, limit]);
    },
    async declareLostLeases(workspace, limit) {
      const { lost, allDeclared } = await send<ReturnType<LocalSteps['declareLostLeases']>>([
        'declare_lost_leases',
        workspace,
        limit,
      ]);
      if (allDeclared) ended.none(workspace);
      return lost;
    },
    // They are flushed before each step, where they are counted.
    hasCounted: () => false,
    async flushCounted() {
      await send(['flush_counted']);
    },
  };
}
