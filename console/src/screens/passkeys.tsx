import { startRegistration } from '@simplewebauthn/browser';
import { useQuery, useQueryClient } from '@tanstack/preact-query';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { ask, type Passkey, Problem } from '../api.ts';
import { Text, Time } from '../format.tsx';
import { Confirm, Copies, curlOf, Empty, Fault, Head } from '../parts.tsx';
import { useCurrent, useMay } from '../session.tsx';

type CreationOptions = Parameters<typeof startRegistration>[0]['optionsJSON'];

/** A passkey that the browser did not give, in words. */
function faultOf(error: unknown): unknown {
  if (!(error instanceof Error) || error instanceof Problem) return error;
  if (error.name === 'InvalidStateError')
    return new Problem(0, 'passkey_refused', 'This device has a passkey of yours already.');
  return new Problem(0, 'passkey_refused', 'The browser made no passkey: it was cancelled, or this device has none.');
}

/** Passkeys of whoever is signed in. */
export function PasskeysScreen(): JSX.Element {
  const { session } = useCurrent();
  const mayWrite = useMay('passkeys.write') && session.user !== null;
  const queries = useQueryClient();
  const path = `/v1/beta/users/${encodeURIComponent(session.user ?? '')}/passkeys`;
  const found = useQuery({
    queryKey: ['passkeys'],
    queryFn: () => ask<{ passkeys: Passkey[] }>('GET', path),
    enabled: session.user !== null,
  });
  const passkeys = found.data?.passkeys ?? [];
  const changed = (): Promise<void> => queries.invalidateQueries({ queryKey: ['passkeys'] });
  const remove = async (id: string): Promise<void> => {
    await ask('DELETE', `${path}/${id}`);
    await changed();
  };
  return (
    <>
      <Head title="Passkeys" does="Prove who you are with your device, and paste no key." />
      <Fault of={found.error} />
      {mayWrite && <AddPasskey changed={changed} />}
      {(session.user === null || found.data !== undefined) && passkeys.length === 0 && (
        <Empty title={session.user === null ? 'The key of this session has no user' : 'You have no passkey'}>
          <p>
            {session.user === null
              ? 'A passkey is a person’s. Sign in with a key that names its user.'
              : 'Name your device, and your browser asks for your finger, face or PIN.'}
          </p>
        </Empty>
      )}
      <ul class="stack">
        {passkeys.map((passkey) => (
          <PasskeyCard key={passkey.id} of={passkey} remove={mayWrite ? () => remove(passkey.id) : null} />
        ))}
      </ul>
      <Copies curl={curlOf('GET', path)} cli={`svc passkeys list ${session.user ?? 'USER'}`} />
    </>
  );
}

function AddPasskey({ changed }: { readonly changed: () => Promise<void> }): JSX.Element {
  const [name, setName] = useState('');
  const [fault, setFault] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const add = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setFault(null);
    try {
      const begun = await ask<{ ceremony: string; options: CreationOptions }>('POST', '/console/passkeys/options', {});
      const { id, response } = await startRegistration({ optionsJSON: begun.options });
      const { clientDataJSON, attestationObject, transports = [] } = response;
      const credential = { id, response: { clientDataJSON, attestationObject, transports } };
      await ask('POST', '/console/passkeys', { name: name.trim(), ceremony: begun.ceremony, credential });
      setName('');
      await changed();
    } catch (error) {
      setFault(faultOf(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <form class="card" aria-label="Add a passkey" onSubmit={(event) => void add(event)}>
      <Fault of={fault} />
      <label>
        <span>Name of the device, for you</span>
        <input
          name="name"
          required
          maxLength={100}
          placeholder="My phone"
          value={name}
          onInput={({ currentTarget }) => setName(currentTarget.value)}
        />
      </label>
      <div class="row">
        <button class="main" disabled={isBusy}>
          Add a passkey
        </button>
      </div>
    </form>
  );
}

function PasskeyCard({
  of: passkey,
  remove,
}: {
  readonly of: Passkey;
  readonly remove: (() => Promise<void>) | null;
}): JSX.Element {
  const { last_used_at: used } = passkey;
  return (
    <li class="card">
      <header>
        <h2>
          <Text>{passkey.name}</Text>
        </h2>
      </header>
      <p class="faint">
        Since <Time at={passkey.created_at} />,{' '}
        {used === null ? (
          'never used'
        ) : (
          <>
            last used <Time at={used} />
          </>
        )}
        {passkey.synced ? ', on several devices' : ', on one device'}
      </p>
      {remove !== null && <Confirm label="Remove" sure="Yes, remove it" act={remove} />}
    </li>
  );
}
