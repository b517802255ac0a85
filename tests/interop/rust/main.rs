//! The official Rust client, unmodified, driven by lines: the protocol of ../official_process.py.
//!
//! A command is one JSON object on standard input, {"id": 7, "do": "send", …}; it is answered by
//! one line on standard output, {"id": 7, "ok": …} or {"id": 7, "error": class, …}. This client has
//! producers and simple consumers only. Nothing of LaterMQ is used here.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::prelude::{Engine, BASE64_STANDARD};
use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Map, Value};
use tokio::sync::oneshot;

/// The class of an error, the broker's code by name, and a text.
struct Failure(String, Option<String>, String);

type Answer = Result<Value, Failure>;

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let code = error.context().iter().find(|(key, _)| *key == "code").map(|(_, code)| code.clone());
        Failure(format!("{:?}", error.kind()), code, error.to_string())
    }
}

struct Consumer {
    client: SimpleConsumer,
    topic: String,
    filter: Mutex<Arc<FilterExpression>>, // the client is told it with each receive
}

impl Consumer {
    fn filter(&self) -> Arc<FilterExpression> {
        self.filter.lock().unwrap().clone()
    }
}

/// Tags, or after `sql:` an expression.
fn filter(wanted: &str) -> Arc<FilterExpression> {
    Arc::new(match wanted.strip_prefix("sql:") {
        Some(sql) => FilterExpression::new(FilterType::Sql, sql),
        None => FilterExpression::new(FilterType::Tag, wanted),
    })
}

/// Ends a transaction (true: commit), and where to say how that went.
type Decision = (bool, oneshot::Sender<Result<(), ClientError>>);

#[derive(Default)]
struct Clients {
    producers: Mutex<HashMap<String, Arc<Producer>>>,
    consumers: Mutex<HashMap<String, Arc<Consumer>>>,
    messages: Mutex<HashMap<String, Arc<MessageView>>>,
    /// By ref, with the name of the producer that each belongs to.
    transactions: Mutex<HashMap<String, (String, oneshot::Sender<Decision>)>>,
    refs: AtomicUsize,
}

fn say(line: Value) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).expect("standard output");
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

fn text<'a>(command: &'a Value, field: &str) -> &'a str {
    command[field].as_str().unwrap_or("")
}

fn options(command: &Value, wait_s: u64) -> ClientOption {
    let mut option = ClientOption::default();
    option.set_access_url(text(command, "endpoint"));
    option.set_enable_tls(std::env::var("LATERMQ_CLIENT_TLS").as_deref() == Ok("1"));
    option.set_long_polling_timeout(Duration::from_secs(wait_s));
    if let (Ok(key), Ok(secret)) = (std::env::var("TEST_ACCESS_KEY"), std::env::var("TEST_SECRET_KEY")) {
        option.set_access_key(key);
        option.set_secret_key(secret);
    }
    option
}

/// What this client shows its user of a received message; times are in whole seconds.
fn told(message: &MessageView, reference: &str) -> Value {
    let mut keys = message.keys().to_vec();
    keys.sort();
    json!({
        "ref": reference,
        "topic": message.topic(),
        "body": BASE64_STANDARD.encode(message.body()),
        "message_id": message.message_id(),
        "tag": message.tag().unwrap_or(""),
        "keys": keys,
        "properties": message.properties(),
        "attempt": message.delivery_attempt(),
        "born_ms": message.born_timestamp() * 1000,
        "at_ms": now_ms(),
    })
}

impl Clients {
    fn next_ref(&self) -> String {
        (self.refs.fetch_add(1, Ordering::Relaxed) + 1).to_string()
    }

    fn producer(&self, name: &str) -> Arc<Producer> {
        self.producers.lock().unwrap()[name].clone()
    }

    fn consumer(&self, name: &str) -> Arc<Consumer> {
        self.consumers.lock().unwrap()[name].clone()
    }

    async fn start_producer(&self, command: &Value) -> Answer {
        let topics = command["topics"].as_array().expect("topics").iter();
        let mut option = ProducerOption::default();
        option.set_topics(topics.map(|topic| topic.as_str().unwrap()).collect());
        let name = text(command, "name").to_string();
        let verdicts = command["verdicts"].as_object().cloned().unwrap_or_default();
        let asked = name.clone();
        let checker = move |_: String, message: MessageView| verdict(&asked, &verdicts, &message);
        let mut producer = Producer::new_transaction_producer(option, options(command, 3), Box::new(checker))?;
        producer.start().await?;
        self.producers.lock().unwrap().insert(name, Arc::new(producer));
        Ok(Value::Null)
    }

    async fn start_simple(&self, command: &Value) -> Answer {
        let (topic, wanted) = command["topics"].as_object().expect("topics").iter().next().expect("a topic");
        let filter = Mutex::new(filter(wanted.as_str().unwrap()));
        let mut option = SimpleConsumerOption::default();
        option.set_consumer_group(text(command, "group"));
        option.set_topics(vec![topic]);
        let wait_s = command["wait_s"].as_u64().unwrap_or(10);
        let mut client = SimpleConsumer::new(option, options(command, wait_s))?;
        client.start().await?;
        let consumer = Consumer { client, topic: topic.clone(), filter };
        self.consumers.lock().unwrap().insert(text(command, "name").to_string(), Arc::new(consumer));
        Ok(Value::Null)
    }

    /// Change a consumer's filter.
    async fn subscribe(&self, command: &Value) -> Answer {
        let consumer = self.consumer(text(command, "name"));
        *consumer.filter.lock().unwrap() = filter(text(command, "tags"));
        Ok(Value::Null)
    }

    async fn send(&self, command: &Value) -> Answer {
        let mut message = MessageBuilder::builder()
            .set_topic(text(command, "topic"))
            .set_body(text(command, "text").as_bytes().to_vec());
        if !text(command, "tag").is_empty() {
            message = message.set_tag(text(command, "tag"));
        }
        if let Some(keys) = command["keys"].as_array() {
            message = message.set_keys(keys.iter().map(|key| key.as_str().unwrap()).collect());
        }
        if let Some(properties) = command["properties"].as_object() {
            let pairs = properties.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap().to_string()));
            message = message.set_properties(pairs.collect::<HashMap<String, String>>());
        }
        if let Some(at_ms) = command["deliver_at_ms"].as_i64() {
            message = message.set_delivery_timestamp((at_ms + 999) / 1000); // it knows seconds only
        }
        if !text(command, "message_group").is_empty() {
            message = message.set_message_group(text(command, "message_group"));
        }
        let sent_ms = now_ms();
        let receipt = self.producer(text(command, "name")).send(message.build()?).await?;
        Ok(json!({"message_id": receipt.message_id(), "sent_ms": sent_ms}))
    }

    /// Several with one call.
    async fn send_batch(&self, command: &Value) -> Answer {
        let mut messages = Vec::new();
        for body in command["texts"].as_array().expect("texts") {
            let message = MessageBuilder::builder()
                .set_topic(text(command, "topic"))
                .set_body(body.as_str().unwrap().as_bytes().to_vec());
            messages.push(message.build()?);
        }
        let receipts = self.producer(text(command, "name")).batch_send(messages).await?;
        Ok(receipts.iter().map(|receipt| receipt.message_id()).collect())
    }

    /// A half message. A task holds its transaction until it is ended or its producer shut down.
    async fn begin(&self, command: &Value) -> Answer {
        let name = text(command, "name").to_string();
        let producer = self.producer(&name);
        let body = text(command, "text").as_bytes().to_vec();
        let message = MessageBuilder::transaction_message_builder(text(command, "topic"), body).build()?;
        let (begun_tx, begun) = oneshot::channel();
        let (decide, decided) = oneshot::channel::<Decision>();
        tokio::spawn(async move {
            match producer.send_transaction_message(message).await {
                Err(error) => _ = begun_tx.send(Err(error)),
                Ok(transaction) => {
                    _ = begun_tx.send(Ok(transaction.message_id().to_string()));
                    if let Ok((commit, answer)) = decided.await {
                        let ended = if commit { transaction.commit().await } else { transaction.rollback().await };
                        _ = answer.send(ended);
                    }
                }
            }
        });
        let message_id = begun.await.expect("the task answers")?;
        let reference = self.next_ref();
        self.transactions.lock().unwrap().insert(reference.clone(), (name, decide));
        Ok(json!({"ref": reference, "message_id": message_id}))
    }

    async fn end(&self, command: &Value) -> Answer {
        let (_, decide) = self.transactions.lock().unwrap().remove(text(command, "ref")).expect("a transaction");
        let (answer, answered) = oneshot::channel();
        _ = decide.send((text(command, "resolution") == "commit", answer));
        answered.await.expect("the task answers")?;
        Ok(Value::Null)
    }

    async fn receive(&self, command: &Value) -> Answer {
        let consumer = self.consumer(text(command, "name"));
        let count_max = command["count_max"].as_i64().unwrap_or(32) as i32;
        let invisible = Duration::from_secs(command["invisible_s"].as_u64().unwrap_or(30));
        let filter = consumer.filter();
        let received = consumer.client.receive_with(&consumer.topic, &filter, count_max, invisible).await?;
        let mut lines = Vec::new();
        for message in received {
            let reference = self.next_ref();
            lines.push(told(&message, &reference));
            self.messages.lock().unwrap().insert(reference, Arc::new(message));
        }
        Ok(Value::Array(lines))
    }

    async fn ack(&self, command: &Value) -> Answer {
        let message = self.messages.lock().unwrap()[text(command, "ref")].clone();
        self.consumer(text(command, "name")).client.ack(&*message).await?;
        Ok(Value::Null)
    }

    /// Receive, tell and acknowledge until the process ends; a body in "nack…" not at first.
    async fn drain(&self, command: &Value) -> Answer {
        let name = text(command, "name").to_string();
        let consumer = self.consumer(&name);
        let invisible = Duration::from_secs(command["invisible_s"].as_u64().unwrap_or(30));
        tokio::spawn(async move {
            loop {
                let filter = consumer.filter();
                let Ok(received) = consumer.client.receive_with(&consumer.topic, &filter, 32, invisible).await
                else {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    continue;
                };
                for message in received {
                    let body = String::from_utf8_lossy(message.body());
                    let attempt = message.delivery_attempt();
                    say(json!({"event": "took", "consumer": name, "text": body, "attempt": attempt,
                        "at_ms": now_ms()}));
                    if !(attempt == 1 && body.starts_with("nack")) {
                        _ = consumer.client.ack(&message).await; // else its lease ends
                    }
                }
            }
        });
        Ok(Value::Null)
    }

    async fn shutdown(&self, command: &Value) -> Answer {
        let name = text(command, "name");
        let removed = self.producers.lock().unwrap().remove(name);
        if let Some(producer) = removed {
            self.transactions.lock().unwrap().retain(|_, (owner, _)| owner != name);
            tokio::time::sleep(Duration::from_millis(50)).await; // their tasks let go of it
            Arc::try_unwrap(producer).map_err(|_| busy(name))?.shutdown().await?;
            return Ok(Value::Null);
        }
        let consumer = self.consumers.lock().unwrap().remove(name).expect("a client");
        Arc::try_unwrap(consumer).map_err(|_| busy(name))?.client.shutdown().await?;
        Ok(Value::Null)
    }

    async fn carry_out(&self, command: &Value) -> Answer {
        match text(command, "do") {
            "producer" => self.start_producer(command).await,
            "simple" => self.start_simple(command).await,
            "subscribe" => self.subscribe(command).await,
            "send" => self.send(command).await,
            "send_batch" => self.send_batch(command).await,
            "begin" => self.begin(command).await,
            "end" => self.end(command).await,
            "receive" => self.receive(command).await,
            "ack" => self.ack(command).await,
            "drain" => self.drain(command).await,
            "shutdown" => self.shutdown(command).await,
            other => Err(Failure("NotInClient".into(), None, format!("this client has no {other}"))),
        }
    }
}

fn busy(name: &str) -> Failure {
    Failure("Busy".into(), None, format!("{name} is in use"))
}

/// What `verdicts` says of a body's transaction.
fn verdict(producer: &str, verdicts: &Map<String, Value>, message: &MessageView) -> TransactionResolution {
    let body = String::from_utf8_lossy(message.body()).to_string();
    say(json!({"event": "checked", "producer": producer, "topic": message.topic(), "text": body}));
    match verdicts.get(&body).and_then(Value::as_str) {
        Some("commit") => TransactionResolution::COMMIT,
        Some("rollback") => TransactionResolution::ROLLBACK,
        _ => TransactionResolution::UNKNOWN,
    }
}

async fn run(clients: Arc<Clients>, command: Value) {
    let id = command["id"].clone();
    let done = tokio::spawn(async move { clients.carry_out(&command).await }).await;
    say(match done {
        Ok(Ok(value)) => json!({"id": id, "ok": value}),
        Ok(Err(Failure(class, code, message))) => json!({"id": id, "error": class, "code": code, "message": message}),
        Err(panic) => json!({"id": id, "error": "Panic", "code": null, "message": panic.to_string()}),
    });
}

#[tokio::main]
async fn main() {
    let clients = Arc::new(Clients::default());
    let runtime = tokio::runtime::Handle::current();
    say(json!({"event": "started"}));
    let reader = std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let command = serde_json::from_str(&line.expect("standard input")).expect("a command");
            runtime.spawn(run(clients.clone(), command));
        }
        std::process::exit(0); // a consumer may still wait in a long poll
    });
    tokio::task::spawn_blocking(move || reader.join()).await.unwrap().unwrap();
}
