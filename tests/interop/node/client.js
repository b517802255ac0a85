'use strict';
/**
 * The official Node.js client, unmodified, driven by lines: the protocol of ../official_process.py.
 *
 * A command is one JSON object on standard input, `{"id": 7, "do": "send", …}`; it is answered by
 * one line on standard output, `{"id": 7, "ok": …}` or `{"id": 7, "error": class, …}`. What a push
 * consumer is handed is told unasked. Nothing of LaterMQ is used here.
 */

const readline = require('node:readline');
const {
  ConsumeResult, FilterExpression, LitePushConsumerImpl, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');
const { version } = require('rocketmq-client-nodejs/package.json');

const logger = { // the default one writes into the home directory
  debug() {},
  info() {},
  warn: (...words) => console.error('warn', ...words),
  error: (...words) => console.error('error', ...words),
};
const SQL = 2; // FilterType's number
const TLS = process.env.LATERMQ_CLIENT_TLS === '1';
const RESOLUTIONS = { unknown: null, commit: 1, rollback: 2 }; // TransactionResolution's numbers
const clients = new Map();
const transactions = new Map(); // by ref
const messages = new Map(); // by ref

function say(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

/** What this client shows its user of a received message. */
function told(message, ref) {
  return {
    ref,
    topic: message.topic,
    body: message.body.toString('base64'),
    message_id: message.messageId,
    tag: message.tag ?? '',
    keys: [...message.keys].sort(),
    properties: Object.fromEntries(message.properties),
    attempt: message.deliveryAttempt,
    handle: message.receiptHandle,
    born_ms: message.bornTimestamp.getTime(),
    priority: message.priority,
    lite_topic: message.liteTopic,
    corrupted: Boolean(message.corrupted),
    at_ms: Date.now(),
  };
}

/** In few words, for many messages. Returns whether this attempt fails: a "nack…" at first. */
function took(consumer, message) {
  const text = message.body.toString();
  const attempt = message.deliveryAttempt;
  say({ event: 'took', consumer, text, attempt, at_ms: Date.now() });
  return attempt === 1 && text.startsWith('nack');
}

/** Fails a body as often as `failures` says (-1: always), by raising every other time. */
function listener(consumer, failures, brief) {
  const seen = new Map();
  return {
    async consume(message) {
      if (brief) {
        return took(consumer, message) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
      }
      const text = message.body.toString();
      const count = (seen.get(text) ?? 0) + 1;
      seen.set(text, count);
      const limit = failures[text] ?? 0;
      const failing = limit < 0 || count <= limit;
      say({ event: 'consumed', consumer, failing, message: told(message, '') });
      if (failing && count % 2) {
        throw new Error(`no luck with ${text}`);
      }
      return failing ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  };
}

/** Says of a body's transaction what `verdicts` says. */
function checker(producer, verdicts) {
  return {
    async check(message) {
      const text = message.body.toString();
      say({ event: 'checked', producer, topic: message.topic, text });
      return RESOLUTIONS[verdicts[text] ?? 'unknown'];
    },
  };
}

async function start(name, client) {
  await client.startup();
  clients.set(name, client);
}

/** Tags by topic, or after `sql:` an expression. */
function subscriptions(topics) {
  return new Map(Object.entries(topics).map(([topic, wanted]) => [topic, filter(wanted)]));
}

function filter(wanted) {
  return wanted.startsWith('sql:')
    ? new FilterExpression(wanted.slice(4), SQL)
    : new FilterExpression(wanted);
}

const { TEST_ACCESS_KEY: accessKey, TEST_SECRET_KEY: accessSecret } = process.env;
const credentials = accessKey ? { sessionCredentials: { accessKey, accessSecret } } : {};

const commands = {
  producer: ({ name, endpoint, topics, verdicts }) =>
    start(name, new Producer({
      endpoints: endpoint,
      sslEnabled: TLS,
      topics,
      logger,
      namespace: process.env.TEST_NAMESPACE ?? '',
      ...credentials,
      checker: checker(name, verdicts ?? {}),
    })),

  simple: ({ name, endpoint, group, topics, wait_s: waitS }) =>
    start(name, new SimpleConsumer({
      endpoints: endpoint,
      sslEnabled: TLS,
      consumerGroup: group,
      subscriptions: subscriptions(topics),
      awaitDuration: waitS * 1000,
      logger,
      namespace: process.env.TEST_NAMESPACE ?? '',
      ...credentials,
    })),

  push: ({ name, endpoint, group, topics, failures, brief }) =>
    start(name, new PushConsumer({
      endpoints: endpoint,
      sslEnabled: TLS,
      consumerGroup: group,
      subscriptions: subscriptions(topics),
      messageListener: listener(name, failures, brief),
      logger,
      namespace: process.env.TEST_NAMESPACE ?? '',
      ...credentials,
    })),

  lite_push: ({ name, endpoint, group, topic, failures }) =>
    start(name, new LitePushConsumerImpl({
      endpoints: endpoint,
      sslEnabled: TLS,
      consumerGroup: group,
      bindTopic: topic,
      messageListener: listener(name, failures),
      logger,
      namespace: process.env.TEST_NAMESPACE ?? '',
      ...credentials,
    })),

  /** Change a consumer's filter of a topic. */
  subscribe: ({ name, topic, tags }) => clients.get(name).subscribe(topic, filter(tags)),

  subscribe_lite: ({ name, lite_topic: liteTopic }) => clients.get(name).subscribeLite(liteTopic),

  unsubscribe_lite: ({ name, lite_topic: liteTopic }) =>
    clients.get(name).unsubscribeLite(liteTopic),

  async shutdown({ name }) {
    const client = clients.get(name);
    clients.delete(name);
    await client.shutdown();
  },

  async send({
    name, topic, text, tag, keys, properties, deliver_at_ms: deliverAtMs,
    message_group: messageGroup, priority, lite_topic: liteTopic,
  }) {
    const sentMs = Date.now();
    const receipt = await clients.get(name).send({
      topic,
      body: Buffer.from(text),
      tag: tag || undefined,
      keys: keys ?? [],
      properties: new Map(Object.entries(properties ?? {})),
      deliveryTimestamp: deliverAtMs ? new Date(deliverAtMs) : undefined,
      messageGroup: messageGroup || undefined,
      priority,
      liteTopic,
    });
    return {
      message_id: receipt.messageId,
      transaction_id: receipt.transactionId,
      offset: receipt.offset,
      recall_handle: receipt.recallHandle,
      sent_ms: sentMs,
    };
  },

  /** A half message; `ref` names its transaction. */
  async begin({ name, topic, text }) {
    const transaction = clients.get(name).beginTransaction();
    const receipt = await clients.get(name).send({ topic, body: Buffer.from(text) }, transaction);
    const ref = String(transactions.size + 1);
    transactions.set(ref, transaction);
    return { ref, message_id: receipt.messageId, transaction_id: receipt.transactionId };
  },

  async end({ ref, resolution }) {
    const transaction = transactions.get(ref);
    await (resolution === 'commit' ? transaction.commit() : transaction.rollback());
  },

  async recall({ name, topic, recall_handle: recallHandle }) {
    const receipt = await clients.get(name).recallMessage(topic, recallHandle);
    return receipt.messageId;
  },

  async receive({ name, count_max: countMax = 32, invisible_s: invisibleS = 30 }) {
    const received = await clients.get(name).receive(countMax, invisibleS * 1000);
    return received.map(message => {
      const ref = String(messages.size + 1);
      messages.set(ref, message);
      return told(message, ref);
    });
  },

  /** Receive, tell and acknowledge until the process ends; a "nack…" not at first. */
  drain({ name, invisible_s: invisibleS = 30 }) {
    const consumer = clients.get(name);
    const settle = message => (took(name, message)
      ? consumer.changeInvisibleDuration(message, 1000)
      : consumer.ack(message));
    const turn = async () => {
      try {
        const received = await consumer.receive(32, invisibleS * 1000);
        await Promise.allSettled(received.map(settle));
      } catch {
        await new Promise(resolve => setTimeout(resolve, 200));
      }
      setImmediate(turn);
    };
    void turn();
  },

  /** `handle`: one that this message had before. */
  async ack({ name, ref, handle }) {
    const message = messages.get(ref);
    message.receiptHandle = handle || message.receiptHandle;
    await clients.get(name).ack(message);
  },

  async change_invisible({ name, ref, seconds }) {
    const message = messages.get(ref);
    await clients.get(name).changeInvisibleDuration(message, seconds * 1000);
    return message.receiptHandle;
  },
};

async function run({ id, do: what, ...fields }) {
  try {
    say({ id, ok: (await commands[what](fields)) ?? null });
  } catch (error) {
    const code = Number.isInteger(error.code) ? error.code : null;
    say({ id, error: error.name, code, message: String(error.message) });
  }
}

const input = readline.createInterface({ input: process.stdin });
input.on('line', line => void run(JSON.parse(line)));
input.on('close', () => process.exit(0)); // a consumer may still wait in a long poll
say({ event: 'started', version });
