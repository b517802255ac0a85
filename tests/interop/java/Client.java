import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionChecker;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.shaded.com.google.gson.Gson;
import org.apache.rocketmq.shaded.com.google.gson.GsonBuilder;
import org.apache.rocketmq.shaded.com.google.gson.JsonElement;
import org.apache.rocketmq.shaded.com.google.gson.JsonObject;

/**
 * The official Java client, unmodified, driven by lines: the protocol of ../official_process.py.
 *
 * <p>A command is one JSON object on standard input, {@code {"id": 7, "do": "send", …}}; it is
 * answered by one line on standard output, {@code {"id": 7, "ok": …}} or {@code {"id": 7, "error":
 * class, …}}. What a push consumer is handed is told unasked. Nothing of LaterMQ is used here.
 */
public final class Client {
    private static final Gson GSON = new GsonBuilder().serializeNulls().create();
    private static final Pattern CODE = Pattern.compile("response-code=(\\d+)");

    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final Map<String, AutoCloseable> clients = new ConcurrentHashMap<>();
    private final Map<String, MessageView> messages = new ConcurrentHashMap<>(); // by ref
    private final Map<String, Transaction> transactions = new ConcurrentHashMap<>(); // by ref
    private final AtomicInteger refs = new AtomicInteger();

    public static void main(String[] words) throws IOException {
        new Client().serve();
    }

    private void serve() throws IOException {
        ExecutorService threads = Executors.newCachedThreadPool();
        say(Map.of("event", "started"));
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonObject command = GSON.fromJson(line, JsonObject.class);
            threads.execute(() -> run(command));
        }
        Runtime.getRuntime().halt(0); // a consumer's threads may still wait in a long poll
    }

    private void run(JsonObject command) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", command.get("id").getAsInt());
        try {
            answer.put("ok", carryOut(command));
        } catch (Throwable error) {
            answer.put("error", error.getClass().getSimpleName());
            Matcher code = CODE.matcher(String.valueOf(error.getMessage()));
            answer.put("code", code.find() ? Integer.valueOf(code.group(1)) : null);
            answer.put("message", String.valueOf(error.getMessage()));
        }
        say(answer);
    }

    private Object carryOut(JsonObject command) throws Exception {
        String name = command.get("name").getAsString();
        switch (command.get("do").getAsString()) {
            case "producer":
                List<String> topics = new ArrayList<>();
                command.getAsJsonArray("topics").forEach(topic -> topics.add(topic.getAsString()));
                clients.put(
                        name,
                        provider.newProducerBuilder()
                                .setClientConfiguration(configuration(command))
                                .setTopics(topics.toArray(new String[0]))
                                .setTransactionChecker(checker(name, command))
                                .build());
                return null;
            case "simple":
                clients.put(
                        name,
                        provider.newSimpleConsumerBuilder()
                                .setClientConfiguration(configuration(command))
                                .setConsumerGroup(command.get("group").getAsString())
                                .setSubscriptionExpressions(filters(command))
                                .setAwaitDuration(seconds(command, "wait_s", 0))
                                .build());
                return null;
            case "push":
                clients.put(
                        name,
                        provider.newPushConsumerBuilder()
                                .setClientConfiguration(configuration(command))
                                .setConsumerGroup(command.get("group").getAsString())
                                .setSubscriptionExpressions(filters(command))
                                .setMessageListener(listener(name, command))
                                .build());
                return null;
            case "lite_push":
                clients.put(
                        name,
                        provider.newLitePushConsumerBuilder()
                                .setClientConfiguration(configuration(command))
                                .setConsumerGroup(command.get("group").getAsString())
                                .bindTopic(command.get("topic").getAsString())
                                .setMessageListener(listener(name, command))
                                .build());
                return null;
            case "subscribe":
                subscribe(clients.get(name), command);
                return null;
            case "subscribe_lite":
                ((LitePushConsumer) clients.get(name))
                        .subscribeLite(command.get("lite_topic").getAsString());
                return null;
            case "unsubscribe_lite":
                ((LitePushConsumer) clients.get(name))
                        .unsubscribeLite(command.get("lite_topic").getAsString());
                return null;
            case "send":
                return send((Producer) clients.get(name), command);
            case "begin":
                return begin((Producer) clients.get(name), command);
            case "end":
                Transaction transaction = transactions.get(command.get("ref").getAsString());
                if (command.get("resolution").getAsString().equals("commit")) {
                    transaction.commit();
                } else {
                    transaction.rollback();
                }
                return null;
            case "recall":
                return ((Producer) clients.get(name))
                        .recallMessage(
                                command.get("topic").getAsString(),
                                command.get("recall_handle").getAsString())
                        .getMessageId()
                        .toString();
            case "receive":
                return receive((SimpleConsumer) clients.get(name), command);
            case "ack":
                ((SimpleConsumer) clients.get(name)).ack(message(command));
                return null;
            case "drain":
                Thread drain = new Thread(() -> drain(name, command));
                drain.setDaemon(true);
                drain.start();
                return null;
            case "change_invisible":
                ((SimpleConsumer) clients.get(name))
                        .changeInvisibleDuration(message(command), seconds(command, "seconds", 0));
                return null;
            case "shutdown":
                clients.remove(name).close();
                return null;
            default:
                throw new IllegalArgumentException(command.get("do").getAsString());
        }
    }

    private static ClientConfiguration configuration(JsonObject command) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
                .setEndpoints(command.get("endpoint").getAsString())
                .enableSsl("1".equals(System.getenv("LATERMQ_CLIENT_TLS")));
        String accessKey = System.getenv("TEST_ACCESS_KEY");
        if (accessKey != null) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(
                    accessKey, System.getenv("TEST_SECRET_KEY")));
        }
        String namespace = System.getenv("TEST_NAMESPACE");
        if (namespace != null) {
            builder.setNamespace(namespace);
        }
        return builder.build();
    }

    private static Map<String, FilterExpression> filters(JsonObject command) {
        Map<String, FilterExpression> filters = new HashMap<>();
        for (Map.Entry<String, JsonElement> topic : command.getAsJsonObject("topics").entrySet()) {
            filters.put(topic.getKey(), filter(topic.getValue().getAsString()));
        }
        return filters;
    }

    private static FilterExpression filter(String tags) {
        return tags.startsWith("sql:")
                ? new FilterExpression(tags.substring(4), FilterExpressionType.SQL92)
                : new FilterExpression(tags, FilterExpressionType.TAG);
    }

    /** Changes a consumer's filter of a topic. */
    private void subscribe(AutoCloseable consumer, JsonObject command) throws ClientException {
        String topic = command.get("topic").getAsString();
        FilterExpression filter = filter(command.get("tags").getAsString());
        if (consumer instanceof PushConsumer) {
            ((PushConsumer) consumer).subscribe(topic, filter);
        } else {
            ((SimpleConsumer) consumer).subscribe(topic, filter);
        }
    }

    /** Tells in few words, for many; whether this attempt fails: a "nack…" at first. */
    private boolean took(String consumer, MessageView message) {
        String text = StandardCharsets.UTF_8.decode(message.getBody()).toString();
        say(
                Map.of(
                        "event", "took",
                        "consumer", consumer,
                        "text", text,
                        "attempt", message.getDeliveryAttempt(),
                        "at_ms", System.currentTimeMillis()));
        return message.getDeliveryAttempt() == 1 && text.startsWith("nack");
    }

    /** Receive, tell and acknowledge until the process ends; a "nack…" not at first. */
    private void drain(String name, JsonObject command) {
        SimpleConsumer consumer = (SimpleConsumer) clients.get(name);
        while (true) {
            try {
                for (MessageView message : consumer.receive(32, seconds(command, "invisible_s", 30))) {
                    if (took(name, message)) {
                        consumer.changeInvisibleDurationAsync(message, Duration.ofSeconds(1));
                    } else {
                        consumer.ackAsync(message);
                    }
                }
            } catch (Exception error) {
                pause();
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(200);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    /** Fails a body as often as `failures` says (-1: always), by throwing every other time. */
    private MessageListener listener(String consumer, JsonObject command) {
        if (command.has("brief")) {
            return message -> took(consumer, message) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        }
        JsonObject failures = command.getAsJsonObject("failures");
        Map<String, Integer> seen = new ConcurrentHashMap<>();
        return message -> {
            String text = StandardCharsets.UTF_8.decode(message.getBody()).toString();
            int count = seen.merge(text, 1, Integer::sum);
            int limit = failures.has(text) ? failures.get(text).getAsInt() : 0;
            boolean failing = limit < 0 || count <= limit;
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("event", "consumed");
            line.put("consumer", consumer);
            line.put("failing", failing);
            line.put("message", told(message, ""));
            say(line);
            if (failing && count % 2 == 1) {
                throw new IllegalStateException("no luck with " + text);
            }
            return failing ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        };
    }

    private Object send(Producer producer, JsonObject command) throws ClientException {
        MessageBuilder message =
                provider.newMessageBuilder()
                        .setTopic(command.get("topic").getAsString())
                        .setBody(command.get("text").getAsString().getBytes(StandardCharsets.UTF_8));
        if (command.has("tag") && !command.get("tag").getAsString().isEmpty()) {
            message.setTag(command.get("tag").getAsString());
        }
        if (command.has("keys")) {
            List<String> keys = new ArrayList<>();
            command.getAsJsonArray("keys").forEach(key -> keys.add(key.getAsString()));
            message.setKeys(keys.toArray(new String[0]));
        }
        if (command.has("properties")) {
            for (Map.Entry<String, JsonElement> property :
                    command.getAsJsonObject("properties").entrySet()) {
                message.addProperty(property.getKey(), property.getValue().getAsString());
            }
        }
        if (command.has("message_group")) {
            message.setMessageGroup(command.get("message_group").getAsString());
        }
        if (command.has("deliver_at_ms")) {
            message.setDeliveryTimestamp(command.get("deliver_at_ms").getAsLong());
        }
        if (command.has("priority")) {
            message.setPriority(command.get("priority").getAsInt());
        }
        if (command.has("lite_topic")) {
            message.setLiteTopic(command.get("lite_topic").getAsString());
        }
        long sentMs = System.currentTimeMillis();
        SendReceipt receipt = producer.send(message.build());
        return Map.of(
                "message_id", receipt.getMessageId().toString(),
                "recall_handle", receipt.getRecallHandle(),
                "sent_ms", sentMs);
    }

    /** Says of a body's transaction what `verdicts` says. */
    private TransactionChecker checker(String producer, JsonObject command) {
        JsonObject verdicts =
                command.has("verdicts") ? command.getAsJsonObject("verdicts") : new JsonObject();
        return message -> {
            String text = StandardCharsets.UTF_8.decode(message.getBody()).toString();
            say(
                    Map.of(
                            "event", "checked",
                            "producer", producer,
                            "topic", message.getTopic(),
                            "text", text));
            String verdict = verdicts.has(text) ? verdicts.get(text).getAsString() : "unknown";
            return TransactionResolution.valueOf(verdict.toUpperCase());
        };
    }

    private Object begin(Producer producer, JsonObject command) throws ClientException {
        Transaction transaction = producer.beginTransaction();
        Message message =
                provider.newMessageBuilder()
                        .setTopic(command.get("topic").getAsString())
                        .setBody(command.get("text").getAsString().getBytes(StandardCharsets.UTF_8))
                        .build();
        SendReceipt receipt = producer.send(message, transaction);
        String ref = String.valueOf(refs.incrementAndGet());
        transactions.put(ref, transaction);
        return Map.of("ref", ref, "message_id", receipt.getMessageId().toString());
    }

    private Object receive(SimpleConsumer consumer, JsonObject command) throws ClientException {
        int countMax = command.has("count_max") ? command.get("count_max").getAsInt() : 32;
        List<Object> lines = new ArrayList<>();
        for (MessageView message : consumer.receive(countMax, seconds(command, "invisible_s", 30))) {
            String ref = String.valueOf(refs.incrementAndGet());
            messages.put(ref, message);
            lines.add(told(message, ref));
        }
        return lines;
    }

    private MessageView message(JsonObject command) {
        return messages.get(command.get("ref").getAsString());
    }

    private static Duration seconds(JsonObject command, String field, int otherwise) {
        return Duration.ofSeconds(command.has(field) ? command.get(field).getAsInt() : otherwise);
    }

    /** What this client shows its user of a received message; the receipt handle is not among it. */
    private static Map<String, Object> told(MessageView message, String ref) {
        ByteBuffer body = message.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        List<String> keys = new ArrayList<>(message.getKeys());
        Collections.sort(keys);
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("ref", ref);
        line.put("topic", message.getTopic());
        line.put("body", Base64.getEncoder().encodeToString(bytes));
        line.put("message_id", message.getMessageId().toString());
        line.put("tag", message.getTag().orElse(""));
        line.put("keys", keys);
        line.put("properties", message.getProperties());
        line.put("attempt", message.getDeliveryAttempt());
        line.put("priority", message.getPriority().orElse(null));
        line.put("lite_topic", message.getLiteTopic().orElse(null));
        line.put("born_ms", message.getBornTimestamp());
        line.put("at_ms", System.currentTimeMillis());
        return line;
    }

    private synchronized void say(Map<String, Object> line) {
        output.println(GSON.toJson(line));
    }
}
