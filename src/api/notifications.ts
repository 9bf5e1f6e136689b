import { Type } from 'typebox';
import { type Delivery, DELIVERY_STATES, NOTIFICATION_EVENTS } from '../effects/model/notification.ts';
import { optionalTimeToWire, timeToWire } from '../effects/wire/time.ts';
import { type ApiApp, guarded } from './app.ts';
import { callerOf } from './caller.ts';
import { type Lists, PAGE_QUERY, pageOf } from './lists.ts';
import type { ApiPorts } from './ports.ts';
import { refuse } from './problem.ts';
import { answers, AnyObject, closed, component, List, Nullable, paged, record, Time } from './schema.ts';

const NOTIFICATIONS = '/v1/beta/notifications';

const NotificationDelivery = record('NotificationDelivery', 'One notification for one receiver.', {
  id: Type.String(),
  webhook_id: Type.String({ description: 'As the receiver gets it; the same at every attempt.' }),
  event: Type.Enum([...NOTIFICATION_EVENTS]),
  receiver: Type.String({ description: 'Name of the webhook in the configuration.' }),
  state: Type.Enum([...DELIVERY_STATES], { description: '`dead`: it is not tried any more.' }),
  attempts: Type.Integer({ minimum: 0 }),
  last_failure: Nullable(Type.String()),
  workspace: Nullable(Type.String(), '`null`: the installation.'),
  effect_id: Nullable(Type.String()),
  data: AnyObject('What is told of the event; the body has the summary of the call as well.'),
  at: Time,
  next_attempt_at: Nullable(Time),
  ended_at: Nullable(Time),
});

const NotificationPage = component('NotificationPage', paged({ notifications: List(NotificationDelivery) }));

/** `/v1/beta/notifications`: what became of what people were to be told. */
export function addNotificationRoutes(
  app: ApiApp,
  { store, receivers }: Pick<ApiPorts, 'store' | 'receivers'>,
  lists: Lists,
): void {
  const listNotifications = guarded('notifications.read', {
    operationId: 'listNotifications',
    summary: 'List notifications and what became of them, newest first',
    description:
      'What was delivered is kept for a day, what could not be for 30 days. A page can have fewer than `limit` although more follow.',
    querystring: closed({ ...PAGE_QUERY, state: Type.Optional(Type.Enum([...DELIVERY_STATES])) }),
    response: answers({ 200: NotificationPage }),
  });
  app.get(NOTIFICATIONS, listNotifications, async (request, reply) => {
    const page = pageOf(request.query);
    return lists.make(callerOf(request), async () => {
      const { items, next } = await store.deliveries(request.query.state ?? null, page);
      return lists.send(reply, NotificationPage, 'notifications', items, deliveryToWire, { next_cursor: next });
    });
  });

  const resendNotification = guarded('notifications.resend', {
    operationId: 'resendNotification',
    summary: 'Have a notification sent again that was delivered or given up',
    description: 'It keeps its `webhook_id`, and is tried for as long as the first time.',
    params: Type.Object({ id: Type.String({ description: 'Id of the delivery.' }) }),
    response: answers({ 200: NotificationDelivery }),
  });
  app.post(`${NOTIFICATIONS}/:id/resend`, resendNotification, async (request) => {
    const known = receivers().map(({ id }) => id);
    const resent = await store.resend(request.params.id, known);
    if (resent === null) throw refuse('not_found', 'There is no such notification, or it ended too long ago.');
    switch (resent.kind) {
      case 'resent':
        return deliveryToWire(resent.delivery);
      case 'waits':
        throw refuse('conflict', 'It waits to be sent already. Nothing was changed.');
      case 'no_receiver':
        throw refuse('conflict', 'The configuration does not name its receiver any more. Nothing was changed.');
    }
  });
}

function deliveryToWire({ id, notification, receiverName, attempts, lastFailure, state }: Delivery) {
  const { id: webhookId, event, workspace, effectId, data, at } = notification;
  return {
    id,
    webhook_id: webhookId,
    event,
    receiver: receiverName,
    state: state.kind,
    attempts,
    last_failure: lastFailure,
    workspace: workspace === '' ? null : workspace,
    effect_id: effectId,
    data,
    at: timeToWire(at),
    next_attempt_at: optionalTimeToWire(state.kind === 'waiting' ? state.dueAt : null),
    ended_at: optionalTimeToWire(state.kind === 'waiting' ? null : state.at),
  };
}
