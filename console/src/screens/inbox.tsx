import { useQuery, useQueryClient } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Link, useSearchParams } from 'wouter-preact';
import { type Approval, ask, type Bounds, type Json, type JsonObject, of, type Session } from '../api.ts';
import { spanText, Text, Time, valueText, visible } from '../format.tsx';
import { amountText, callName, currencyOfParam, leftText, moneyTaken, moneyText } from '../money.ts';
import { Copies, curlOf, Empty, Fault, Head, useNow } from '../parts.tsx';
import { useWaiting, waitingPath } from '../queries.ts';
import { useCurrent, useMay } from '../session.tsx';
import { useShortcuts } from '../shortcuts.tsx';
import { AlikeChoice, AllowedAhead } from './allowed.tsx';
import { Change, changesIn, type Edits, withEdit } from './change.tsx';
import { Expired, useNotices } from './earlier.tsx';
import { Facts, Params } from './effect.tsx';

type Verdict = 'approve' | 'reject';

/** What became of a vote, to be shown after it. */
interface Voted {
  readonly approval: Approval;
  readonly changes: JsonObject;
  readonly message: string;
  readonly isGood: boolean;
}

export function InboxScreen(): JSX.Element {
  const { workspace, session } = useCurrent();
  const queries = useQueryClient();
  const mayDecide = useMay('approvals.decide');
  const now = useNow();
  const [query, setQuery] = useSearchParams();
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [voted, setVoted] = useState<readonly Voted[]>([]);
  const [fault, setFault] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const found = useWaiting(3_000);
  const waiting = (found.data?.approvals ?? [])
    .filter(({ expires_at: end }) => Date.parse(end) > now)
    .toSorted((one, other) => (one.created_at < other.created_at ? -1 : 1));
  const [shown, setShown] = useState<string | null>(null);
  const asked = query.get('approval');
  const wanted = asked ?? shown;
  const at = wanted === null ? 0 : waiting.findIndex(({ id }) => id === wanted);
  const open = waiting[at];
  const selected = waiting.filter(({ id }) => chosen.has(id));
  const batch = open === undefined ? [] : batchOf(open, selected);
  const show = (approval: Approval | undefined): void => {
    setFault(null);
    setQuery(approval === undefined ? {} : { approval: approval.id }, { replace: true });
  };
  // When others decide it, no other one takes its place under the finger; after the last one, the first that comes.
  const isEmpty = found.data !== undefined && waiting.length === 0;
  useEffect(() => {
    if (isEmpty) show(undefined);
    if (isEmpty || open !== undefined) setShown(open?.id ?? null);
  }, [open?.id, isEmpty]);
  const next = waiting[at + 1];
  useEffect(() => {
    if (next !== undefined) void queries.prefetchQuery(wholeOf(workspace, next));
  }, [queries, workspace, next?.digest]);
  // On a phone the list stands below the question.
  useEffect(() => {
    if (asked !== null) document.getElementById('question')?.scrollIntoView({ block: 'nearest' });
  }, [asked]);
  const choose = (id: string): void => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    setChosen(next);
  };

  const decide = async (verdict: Verdict, comment: string, changes: JsonObject, alike: number): Promise<void> => {
    if (open === undefined || isBusy) return;
    setBusy(true);
    const done = new Set<string>();
    let refused: unknown = null;
    for (const approval of batch) {
      try {
        const { became } = await ask<{ became: { what: string; decision?: string; message: string } }>(
          'POST',
          `${of(workspace)}/approvals/${approval.id}/${verdict}`,
          {
            digest: approval.digest,
            ...(comment === '' ? {} : { comment }),
            ...(verdict === 'approve' && Object.keys(changes).length > 0 ? { changes } : {}),
            ...(verdict === 'approve' && alike > 0 ? { allow_alike: { times: alike } } : {}),
          },
        );
        const isGood = became.decision === 'committed' || became.what === 'rejected' || became.what === 'waiting';
        setVoted((before) => [{ approval, changes, message: became.message, isGood }, ...before].slice(0, 10));
        done.add(approval.id);
      } catch (error) {
        refused = error;
        // The others would be refused alike.
        break;
      }
    }
    setChosen(new Set([...chosen].filter((id) => !done.has(id))));
    setBusy(false);
    // What was refused stays open, with what was written in it.
    if (done.has(open.id)) show(waiting.slice(at + 1).find(({ id }) => !done.has(id)) ?? waiting[at - 1]);
    setFault(refused);
    await queries.invalidateQueries({ queryKey: [workspace, 'approvals'] });
    await queries.invalidateQueries({ queryKey: [workspace, 'allowances'] });
  };

  useShortcuts((key) => {
    if (key === 'j') show(next ?? open);
    else if (key === 'k') show(waiting[at - 1] ?? open);
    else if (key === 'x' && open !== undefined) choose(open.id);
    else if (key === 'a' || key === 'r') document.querySelector<HTMLElement>(`[data-key=${key}]`)?.focus();
    else return false;
    return true;
  });

  return (
    <>
      <Head title="Inbox" does="Calls that wait for a person, the oldest first. Nothing of them has happened yet." />
      <Fault of={found.error} />
      <div role="status" class="said stack">
        {voted.slice(0, 3).map(({ approval, changes, message, isGood }) => (
          <p key={approval.id} class={`banner ${isGood ? 'ok' : ''}`}>
            <span>
              {visible(approval.summary ?? approval.tool)}
              {Object.keys(changes).map((name) => `, ${changeText(approval, name, approval.params, changes)}`)}:{' '}
              {message}
            </span>
            <Link href={`/${workspace}/effects/${approval.effect_id}`}>The effect and its receipt</Link>
          </p>
        ))}
      </div>
      {isEmpty && (
        <Empty title="Nothing waits">
          <p>
            When a rule of policy wants a person to look first, the call waits here. You may leave this page open: it
            looks by itself.
          </p>
        </Empty>
      )}
      {waiting.length > 0 && (
        <div class="cols inbox">
          {open === undefined && <p class="banner">This waits no more: it was decided, or its time is over.</p>}
          {open !== undefined && (
            <Question
              key={`${open.id} ${open.digest}`}
              approval={open}
              batch={batch}
              why={mayDecide ? whyNot(open, session, batch) : 'Your key may look, and not decide.'}
              now={now}
              isBusy={isBusy}
              fault={fault}
              decide={decide}
            />
          )}
          <section class="stack" aria-labelledby="waiting">
            <h2 id="waiting">
              {waiting.length === 1 ? 'One waits' : `${waiting.length} wait`}
              {selected.length > 0 && <span class="faint"> · {selected.length} chosen</span>}
            </h2>
            {batch.length > 0 && batch.length < selected.length && (
              <p class="faint">They are not alike (same agent, tool and rule): they are decided one by one.</p>
            )}
            <ol class="list" aria-label="Requests for approval, oldest first">
              {waiting.map((approval) => (
                <li key={approval.id}>
                  <div class={`cells waits ${approval === open ? 'chosen' : ''}`}>
                    <input
                      type="checkbox"
                      aria-label={`Choose ${approval.summary ?? approval.tool}`}
                      checked={chosen.has(approval.id)}
                      onChange={() => choose(approval.id)}
                    />
                    <Link
                      class="wrap"
                      href={`/${workspace}/inbox?approval=${approval.id}`}
                      replace
                      aria-current={approval === open ? 'true' : undefined}
                    >
                      <Text>{approval.summary ?? approval.tool}</Text>
                    </Link>
                    <span class="faint num">{spanText(now - Date.parse(approval.created_at))}</span>
                  </div>
                </li>
              ))}
            </ol>
            <p class="hint faint small">
              Keys: <kbd>j</kbd> next, <kbd>k</kbd> before, <kbd>x</kbd> choose, <kbd>a</kbd> or <kbd>r</kbd> and then{' '}
              <kbd>Enter</kbd> to decide.
            </p>
          </section>
        </div>
      )}
      <Expired now={now} />
      <AllowedAhead />
      <Copies
        curl={
          open === undefined
            ? curlOf('GET', waitingPath(workspace))
            : curlOf('POST', `${of(workspace)}/approvals/${open.id}/approve`, { digest: open.digest })
        }
        cli={
          open === undefined
            ? `svc approvals list --workspace ${workspace}`
            : `svc approvals approve ${open.id} --digest ${open.digest} --workspace ${workspace}`
        }
      />
    </>
  );
}

/** A param that was changed: `amount €40.00 in place of €80.00`. */
function changeText(
  approval: Approval,
  name: string,
  before: JsonObject | undefined,
  now: JsonObject | undefined,
): string {
  const currency = currencyOfParam(name, approval.params ?? {}, approval.costs);
  const text = (of: Json = null): string => moneyText(of, currency) ?? visible(valueText(of));
  return `${visible(name)} ${text(now?.[name])} in place of ${text(before?.[name])}`;
}

/** What the call takes from a budget. */
function takenText({ params }: Approval, { amount, unit }: Approval['costs'][number]): string {
  return amount === null ? 'an amount that is not known' : amountText(amount, unit, params?.['currency']);
}

/** A limit that the call would go beyond, with what is left of it. */
function beyondText(approval: Approval, limit: string): string {
  const cost = approval.costs.find(({ budget }) => `budget:${budget}` === limit);
  return cost === undefined
    ? `Beyond a limit: ${limit.replace(':', ' ')} is used up.`
    : `Beyond a limit: budget ${cost.budget} has ${leftText(cost, approval.params?.['currency'])}, and this takes ${takenText(approval, cost)}.`;
}

/** The requests that one answer is for: those that are chosen with this one, where they are alike; none where it is not chosen. */
function batchOf(open: Approval, chosen: readonly Approval[]): readonly Approval[] {
  if (chosen.length > 0 && !chosen.includes(open)) return [];
  return chosen.length > 1 && chosen.every((one) => isAlike(one, open)) ? chosen : [open];
}

/** What several calls take together, in words for a button; `null` where their amounts are not all of one currency. */
function sumText(of: readonly Approval[]): string | null {
  const taken = of.map(({ costs, params }) => moneyTaken(costs, params?.['currency']));
  const [only, ...more] = new Set(taken.map((one) => one?.currency));
  const sum = taken.reduce((total, one) => total + (one?.amount ?? 0), 0);
  return more.length > 0 ? null : moneyText(sum, only);
}

/** Whether one answer can be that to both. */
function isAlike(one: Approval, other: Approval): boolean {
  const rules = ({ requirements }: Approval): string => requirements.map(({ rule }) => rule).join();
  return (
    one.tool === other.tool && rules(one) === rules(other) && one.requested_by.agent_id === other.requested_by.agent_id
  );
}

/** Why somebody does not decide on it, as far as that is seen from here; the gateway judges it anyway. */
function whyNot(approval: Approval, { user, roles }: Session, batch: readonly Approval[]): string | null {
  if (batch.length === 0) return 'This one is not among those that you chose. Choose it, too, or open one of them.';
  const { requested_by: by, requirements, votes } = approval;
  if (user === null) return 'Your key belongs to no user, and only people decide.';
  if (by.user === user || by.agent_owner === user)
    return 'It is your own request, or your agent’s. Somebody else decides.';
  if (votes.some((vote) => vote.user === user && vote.verdict === 'approve'))
    return 'You have approved it. It waits for others.';
  return requirements.some((one) => decides(one, user, roles)) ? null : 'The policy names others to decide.';
}

type Requirement = Approval['requirements'][number];

/** Whether a rule names somebody to decide now, by name or by a role. */
function decides({ approvers, escalates }: Requirement, user: string | null, roles: readonly string[]): boolean {
  const named =
    escalates !== undefined && Date.parse(escalates.at) <= Date.now() ? [approvers, escalates.to] : [approvers];
  return named.some(
    (of) => (user !== null && of.users.includes(user)) || of.roles.some((role) => roles.includes(role)),
  );
}

/** Who is asked by a rule, and who will be. */
function AskedBy({ quorum, approvals, approvers, escalates }: Requirement): JSX.Element {
  return (
    <>
      {approvals} of {quorum} from {[...approvers.roles, ...approvers.users].join(', ')}
      {escalates !== undefined && (
        <>
          ; from <Time at={escalates.at} short /> on also {[...escalates.to.roles, ...escalates.to.users].join(', ')}
        </>
      )}
    </>
  );
}

/** The params that somebody may change of a request, with their bounds. */
function editableBy(
  approval: Approval,
  user: string | null,
  roles: readonly string[],
): Readonly<Record<string, Bounds>> {
  const own = approval.requirements.filter((one) => decides(one, user, roles));
  const all = own.flatMap(({ editable }) => Object.entries(editable ?? {}));
  // An amount that stands in a currency would be another once the currency is changed.
  const isMoney = all.some(([name]) => currencyOfParam(name, approval.params ?? {}, approval.costs) !== null);
  return Object.fromEntries(all.filter(([name]) => !isMoney || name !== 'currency'));
}

/** What the button approves: the amount as it was changed, the sum of several, or the tool where no amount is known. */
function approveText(approval: Approval, many: number, sum: string | null, changes: JsonObject | null): string {
  if (many > 1) return `Approve ${many}${sum === null ? '' : `: ${sum}`}`;
  const { tool, costs, params = {} } = approval;
  const money = Object.entries(changes ?? {}).map(([name, to]) => moneyText(to, currencyOfParam(name, params, costs)));
  if (money.length > 0 && money.every((one) => one === null)) return 'Approve as changed';
  return `Approve ${callName(tool, money.find((one) => one !== null) ?? moneyTaken(costs, params['currency'])?.text ?? null)}`;
}

/** Of one request also what is left of budgets, what is known before a vote, and longer texts than the list has. */
function wholeOf(workspace: string, { id, digest }: Approval) {
  const queryFn = () => ask<Approval>('GET', `${of(workspace)}/approvals/${id}`);
  return { queryKey: [workspace, 'approvals', id, digest], queryFn };
}

function Question({
  approval: listed,
  batch,
  why,
  now,
  isBusy,
  fault,
  decide,
}: {
  readonly approval: Approval;
  readonly batch: readonly Approval[];
  readonly why: string | null;
  readonly now: number;
  readonly isBusy: boolean;
  /** Why a vote on it was refused. */
  readonly fault: unknown;
  readonly decide: (verdict: Verdict, comment: string, changes: JsonObject, alike: number) => Promise<void>;
}): JSX.Element {
  const { workspace } = useCurrent();
  const { roles, user } = useCurrent().session;
  const whole = useQuery({ ...wholeOf(workspace, listed), refetchInterval: 10_000 });
  const approval = { ...(whole.data ?? listed), votes: listed.votes };
  const notices = useNotices(whole.isPending, [approval.foreseen, batch.length > 1 ? undefined : approval.repeat]);
  const [comment, setComment] = useState('');
  const [edits, setEdits] = useState<Edits>({});
  const [alike, setAlike] = useState(0);
  const [isRefused, setRefused] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const many = batch.length;
  const { requested_by: by } = approval;
  const editable = many > 1 ? {} : editableBy(approval, user, roles);
  const isOfAll = approval.requirements.every((one) => decides(one, user, roles));
  const may = many > 1 || !isOfAll || Object.keys(edits).length > 0 ? undefined : approval.allow_alike;
  const changes = changesIn(edits);
  const wantsReason = approval.requirements.some(({ require_reason: wanted }) => wanted === true);
  const isMute = wantsReason && comment.trim() === '';
  const money = moneyTaken(approval.costs, approval.params?.['currency'])?.text ?? null;
  const sum = sumText(batch);
  return (
    <section class="card" aria-labelledby="question">
      <header>
        <h2 id="question" class="ask">
          <Text>{approval.summary ?? `${approval.tool} on ${approval.target}`}</Text>
        </h2>
        {money !== null && <span class="amount">{money}</span>}
      </header>
      <p>
        <Text>{`${by.agent_id}${by.agent_owner === null ? '' : ` (of ${by.agent_owner})`}`}</Text> asks. Without a
        decision it ends by itself in <strong class="num">{spanText(Date.parse(approval.expires_at) - now)}</strong>, at{' '}
        <Time at={approval.expires_at} short />, and nothing is sent.
      </p>
      {approval.requirements.map(
        ({ rule, beyond }) =>
          beyond !== undefined && (
            <p key={`${rule} ${beyond}`} class="banner">
              {beyondText(approval, beyond)}
            </p>
          ),
      )}
      {approval.changed !== undefined && (
        <p class="banner">
          {visible(approval.changed.by)} changed {approval.changed.params.map(visible).join(', ')} of what the agent
          asked:{' '}
          {approval.changed.params
            .map((name) => changeText(approval, name, approval.asked_params, approval.params))
            .join(', ')}
          .
        </p>
      )}
      {why !== null && <p class="banner">{why}</p>}
      {why === null && !whole.isPending && (
        <>
          {Object.entries(editable).map(([name, bounds]) => (
            <Change
              key={name}
              name={name}
              bounds={bounds}
              approval={approval}
              set={(edit) => setEdits((before) => withEdit(before, name, edit))}
            />
          ))}
          <label>
            <span>
              {wantsReason
                ? 'Why you reject: needed for that, and told to the agent'
                : 'Comment, if you like: it is kept with the vote'}
            </span>
            <input
              ref={field}
              name="comment"
              maxLength={1000}
              value={comment}
              data-key={isMute ? 'r' : undefined}
              aria-invalid={isMute && isRefused}
              onInput={({ currentTarget }) => setComment(currentTarget.value)}
            />
            {isMute && isRefused && (
              <span class="fault" role="alert">
                Say here why: without it nobody can reject.
              </span>
            )}
          </label>
          {notices.first}
          {many > 1 && sum === null && (
            <p class="banner">There is no sum: their amounts are not known, or not all of one currency.</p>
          )}
          <div class="row decide">
            <button
              class="yes"
              data-key="a"
              disabled={isBusy || changes === null}
              onClick={() => void decide('approve', comment.trim(), changes ?? {}, may === undefined ? 0 : alike)}
            >
              {approveText(approval, many, sum, changes)} <kbd>a</kbd>
            </button>
            <button
              class="no"
              data-key="r"
              disabled={isBusy}
              onClick={() => {
                if (!isMute) return void decide('reject', comment.trim(), {}, 0);
                setRefused(true);
                field.current?.focus();
              }}
            >
              {many > 1 ? `Reject ${many}` : 'Reject'} <kbd>r</kbd>
            </button>
          </div>
          <div role="status" class="stack">
            {notices.later}
          </div>
          <Fault of={fault} />
          {may !== undefined && <AlikeChoice approval={approval} may={may} set={setAlike} />}
        </>
      )}
      <Facts
        of={[
          ['Tool', <Text mono>{approval.tool}</Text>],
          ['Acts on', <Text mono>{approval.target}</Text>],
          ...approval.costs.map(
            (cost) =>
              [
                `Takes from ${cost.budget}`,
                [takenText(approval, cost), leftText(cost, approval.params?.['currency'])].filter(Boolean).join('; '),
              ] as const,
          ),
          ...approval.requirements.map((one) => [`Asked by rule ${one.rule}`, <AskedBy {...one} />] as const),
        ]}
      />
      <h2>Params</h2>
      <Params effect={approval} costs={approval.costs} />
      {approval.votes.map(({ user, verdict, at, comment: note }) => (
        <p key={`${user} ${at}`} class="faint">
          {visible(user)} {verdict === 'approve' ? 'approved' : 'rejected'} at <Time at={at} />
          {note === null ? '' : `: ${visible(note)}`}
        </p>
      ))}
      <Link href={`/${workspace}/effects/${approval.effect_id}`}>Everything about this call</Link>
    </section>
  );
}
