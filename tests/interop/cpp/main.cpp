// The official C++ client, unmodified, driven by lines: the protocol of ../official_process.py.
//
// A command is one JSON object on standard input, {"id": 7, "do": "send", …}; it is answered by one
// line on standard output, {"id": 7, "ok": …} or {"id": 7, "error": class, …}. What a push consumer
// is handed is told unasked. Nothing of LaterMQ is used here.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <unistd.h>

#include <absl/strings/escaping.h>
#include <nlohmann/json.hpp>

#include "rocketmq/ErrorCode.h"
#include "rocketmq/Logger.h"
#include "rocketmq/Producer.h"
#include "rocketmq/PushConsumer.h"
#include "rocketmq/SimpleConsumer.h"

namespace mq = ROCKETMQ_NAMESPACE;
using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::system_clock;

namespace {

// A received message, and the handle that its last change of the invisible duration gave.
struct Received {
  mq::MessageConstSharedPtr message;
  std::string handle;
};

std::FILE* answers = nullptr;  // where standard output was; the client logs to it
std::mutex lock;               // of that, and of everything below
std::map<std::string, std::shared_ptr<mq::Producer>> producers;
std::map<std::string, std::shared_ptr<mq::SimpleConsumer>> simple_consumers;
std::map<std::string, std::shared_ptr<mq::PushConsumer>> push_consumers;
std::vector<Received> messages;                              // by ref
std::vector<std::shared_ptr<mq::Transaction>> transactions;  // by ref

class RefusedError : public std::runtime_error {
 public:
  explicit RefusedError(const std::error_code& error)
      : std::runtime_error(error.message()), error_(error) {
  }

  // The broker's code, where the client keeps it; it has numbers of its own.
  json code() const {
    for (const auto& each : names_) {
      if (error_ == each.first) {
        return each.second;
      }
    }
    return nullptr;
  }

 private:
  static const std::vector<std::pair<mq::ErrorCode, std::string>> names_;
  std::error_code error_;
};

const std::vector<std::pair<mq::ErrorCode, std::string>> RefusedError::names_ = {
    {mq::ErrorCode::Forbidden, "FORBIDDEN"},
    {mq::ErrorCode::IllegalConsumerGroup, "ILLEGAL_CONSUMER_GROUP"},
    {mq::ErrorCode::IllegalMessageProperty, "ILLEGAL_MESSAGE_PROPERTY_KEY"},
    {mq::ErrorCode::IllegalTopic, "ILLEGAL_TOPIC"},
    {mq::ErrorCode::InvalidReceiptHandle, "INVALID_RECEIPT_HANDLE"},
    {mq::ErrorCode::MessageBodyTooLarge, "MESSAGE_BODY_TOO_LARGE"},
    {mq::ErrorCode::MessagePropertyConflictWithType, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"},
    {mq::ErrorCode::TopicNotFound, "TOPIC_NOT_FOUND"},
    {mq::ErrorCode::Unauthorized, "UNAUTHORIZED"},
};

void check(const std::error_code& error) {
  if (error) {
    throw RefusedError(error);
  }
}

std::int64_t to_ms(system_clock::time_point time) {
  return std::chrono::duration_cast<milliseconds>(time.time_since_epoch()).count();
}

void say(const json& line) {
  std::lock_guard<std::mutex> guard(lock);
  std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), answers);
  std::fflush(answers);
}

template <typename T>
std::shared_ptr<T> named(std::map<std::string, std::shared_ptr<T>>& clients, const json& command) {
  std::lock_guard<std::mutex> guard(lock);
  return clients.at(command.at("name"));
}

json told(const mq::Message& message, const std::string& ref) {
  std::vector<std::string> keys = message.keys();
  std::sort(keys.begin(), keys.end());
  return {{"ref", ref},
          {"topic", message.topic()},
          {"body", absl::Base64Escape(message.body())},
          {"message_id", message.id()},
          {"tag", message.tag()},
          {"keys", keys},
          {"properties", message.properties()},
          {"attempt", message.extension().delivery_attempt},
          {"handle", message.extension().receipt_handle},
          {"born_ms", to_ms(message.bornTime())},
          {"at_ms", to_ms(system_clock::now())}};
}

// Tells in few words, for many messages, and whether this attempt fails: a "nack…" at first.
bool took(const std::string& consumer, const mq::Message& message) {
  auto attempt = message.extension().delivery_attempt;
  say({{"event", "took"},
       {"consumer", consumer},
       {"text", message.body()},
       {"attempt", attempt},
       {"at_ms", to_ms(system_clock::now())}});
  return attempt == 1 && message.body().rfind("nack", 0) == 0;
}

mq::MessageListener brief(std::string consumer) {
  return [consumer](const mq::Message& message) {
    return took(consumer, message) ? mq::ConsumeResult::FAILURE : mq::ConsumeResult::SUCCESS;
  };
}

// Fails a body as often as failures says (-1: always).
mq::MessageListener listener(std::string consumer, std::map<std::string, int> failures) {
  auto seen = std::make_shared<std::map<std::string, int>>();
  auto seen_lock = std::make_shared<std::mutex>();
  return [=](const mq::Message& message) {
    auto wanted = failures.find(message.body());
    bool failing;
    {
      std::lock_guard<std::mutex> guard(*seen_lock);
      int times = ++(*seen)[message.body()];
      failing = wanted != failures.end() && (wanted->second < 0 || times <= wanted->second);
    }
    say({{"event", "consumed"},
         {"consumer", consumer},
         {"failing", failing},
         {"message", told(message, "")}});
    return failing ? mq::ConsumeResult::FAILURE : mq::ConsumeResult::SUCCESS;
  };
}

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

mq::Configuration configuration(const json& command) {
  auto builder = mq::Configuration::newBuilder();
  builder.withEndpoints(command.at("endpoint"))
      .withSsl(setting("LATERMQ_CLIENT_TLS") == "1")
      .withRequestTimeout(seconds(30))  // a busy machine
      .withCallbackThreads(8);          // two checks at once would wait for themselves in two
  if (!setting("TEST_ACCESS_KEY").empty()) {
    builder.withCredentialsProvider(std::make_shared<mq::StaticCredentialsProvider>(
        setting("TEST_ACCESS_KEY"), setting("TEST_SECRET_KEY")));
  }
  return builder.build();
}

mq::FilterExpression filter(const std::string& expression) {
  if (expression.rfind("sql:", 0) == 0) {
    return mq::FilterExpression(expression.substr(4), mq::ExpressionType::SQL92);
  }
  return mq::FilterExpression(expression);
}

std::map<std::string, mq::FilterExpression> filters(const json& command) {
  std::map<std::string, mq::FilterExpression> wanted;
  for (const auto& topic : command.at("topics").items()) {
    wanted.emplace(topic.key(), filter(topic.value()));
  }
  return wanted;
}

json start_producer(const json& command) {
  std::string name = command.at("name");
  auto verdicts = command.value("verdicts", std::map<std::string, std::string>());
  auto checker = [name, verdicts](const mq::Message& message) {
    say({{"event", "checked"},
         {"producer", name},
         {"topic", message.topic()},
         {"text", message.body()}});
    auto verdict = verdicts.find(message.body());
    bool paid = verdict != verdicts.end() && verdict->second == "commit";
    return paid ? mq::TransactionState::COMMIT : mq::TransactionState::ROLLBACK;  // it has no third
  };
  auto producer = std::make_shared<mq::Producer>(mq::Producer::newBuilder()
                                                     .withConfiguration(configuration(command))
                                                     .withTopics(command.at("topics"))
                                                     .withTransactionChecker(checker)
                                                     .build());
  std::lock_guard<std::mutex> guard(lock);
  producers[name] = producer;
  return nullptr;
}

json start_simple(const json& command) {
  auto builder = mq::SimpleConsumer::newBuilder();
  builder.withConfiguration(configuration(command))
      .withGroup(command.at("group"))
      .withAwaitDuration(seconds(command.at("wait_s").get<int>()));
  for (auto& wanted : filters(command)) {
    builder.subscribe(wanted.first, wanted.second);
  }
  auto consumer = std::make_shared<mq::SimpleConsumer>(builder.build());
  std::lock_guard<std::mutex> guard(lock);
  simple_consumers[command.at("name")] = consumer;
  return nullptr;
}

json start_push(const json& command) {
  std::string name = command.at("name");
  auto failures = command.value("failures", std::map<std::string, int>());
  auto builder = mq::PushConsumer::newBuilder();
  builder.withConfiguration(configuration(command))
      .withGroup(command.at("group"))
      .withListener(command.value("brief", false) ? brief(name) : listener(name, failures));
  for (auto& wanted : filters(command)) {
    builder.subscribe(wanted.first, wanted.second);
  }
  auto consumer = std::make_shared<mq::PushConsumer>(builder.build());
  std::lock_guard<std::mutex> guard(lock);
  push_consumers[name] = consumer;
  return nullptr;
}

// Changes a consumer's filter of a topic.
json subscribe(const json& command) {
  std::string name = command.at("name");
  std::unique_lock<std::mutex> guard(lock);
  auto simple = simple_consumers.find(name);
  auto push = push_consumers.find(name);
  if (simple != simple_consumers.end()) {
    auto consumer = simple->second;
    guard.unlock();
    consumer->subscribe(command.at("topic"), filter(command.at("tags")));
  } else {
    auto consumer = push->second;
    guard.unlock();
    consumer->subscribe(command.at("topic"), filter(command.at("tags")));
  }
  return nullptr;
}

mq::MessageConstPtr outgoing(const json& command) {
  auto builder = mq::Message::newBuilder();
  builder.withTopic(command.at("topic")).withBody(command.at("text"));
  if (!command.value("tag", "").empty()) {
    builder.withTag(command.at("tag"));
  }
  if (command.contains("keys")) {
    builder.withKeys(command.at("keys"));
  }
  if (command.contains("properties")) {
    builder.withProperties(command.at("properties"));
  }
  if (command.contains("deliver_at_ms")) {
    milliseconds at(command.at("deliver_at_ms").get<std::int64_t>());
    builder.availableAfter(system_clock::time_point(at));
  }
  if (command.contains("message_group")) {
    builder.withGroup(command.at("message_group"));
  }
  if (command.contains("priority")) {
    builder.withPriority(command.at("priority"));
  }
  return builder.build();
}

json send(const json& command) {
  auto message = outgoing(command);
  std::error_code error;
  auto sent_ms = to_ms(system_clock::now());
  auto receipt = named(producers, command)->send(std::move(message), error);
  check(error);
  return {{"message_id", receipt.message_id},
          {"recall_handle", receipt.recall_handle},
          {"sent_ms", sent_ms}};
}

json begin(const json& command) {
  auto producer = named(producers, command);
  std::shared_ptr<mq::Transaction> transaction = producer->beginTransaction();
  std::error_code error;
  auto receipt = producer->send(outgoing(command), error, *transaction);
  check(error);
  std::lock_guard<std::mutex> guard(lock);
  transactions.push_back(transaction);
  return {{"ref", std::to_string(transactions.size() - 1)}, {"message_id", receipt.message_id}};
}

std::size_t ref_of(const json& command) {
  return std::stoul(command.at("ref").get<std::string>());
}

json end(const json& command) {
  std::shared_ptr<mq::Transaction> transaction;
  {
    std::lock_guard<std::mutex> guard(lock);
    transaction = transactions.at(ref_of(command));
  }
  bool done = command.at("resolution") == "commit" ? transaction->commit() : transaction->rollback();
  if (!done) {
    throw std::runtime_error("not ended");  // the client does not say why
  }
  return nullptr;
}

json recall(const json& command) {
  std::string topic = command.at("topic"), handle = command.at("recall_handle");
  std::error_code error;
  auto receipt = named(producers, command)->recall(topic, handle, error);
  check(error);
  return receipt.message_id;
}

std::vector<mq::MessageConstSharedPtr> receive_some(mq::SimpleConsumer& consumer, int count_max,
                                                    int invisible_s) {
  std::vector<mq::MessageConstSharedPtr> received;
  std::error_code error;
  consumer.receive(count_max, seconds(invisible_s), error, received);
  if (error != mq::ErrorCode::NoContent) {
    check(error);
  }
  return received;
}

json receive(const json& command) {
  auto consumer = named(simple_consumers, command);
  auto received = receive_some(*consumer, command.value("count_max", 32),
                               command.value("invisible_s", 30));
  json lines = json::array();
  for (auto& message : received) {
    std::string ref;
    {
      std::lock_guard<std::mutex> guard(lock);
      ref = std::to_string(messages.size());
      messages.push_back({message, message->extension().receipt_handle});
    }
    lines.push_back(told(*message, ref));
  }
  return lines;
}

Received message_of(const json& command) {
  std::lock_guard<std::mutex> guard(lock);
  return messages.at(ref_of(command));
}

json ack(const json& command) {
  std::error_code error;
  named(simple_consumers, command)->ack(*message_of(command).message, error);
  check(error);
  return nullptr;
}

json change_invisible(const json& command) {
  auto received = message_of(command);
  std::error_code error;
  named(simple_consumers, command)
      ->changeInvisibleDuration(*received.message, received.handle,
                                seconds(command.at("seconds").get<int>()), error);
  check(error);
  std::lock_guard<std::mutex> guard(lock);
  messages.at(ref_of(command)).handle = received.handle;
  return received.handle;
}

// Receives, tells and acknowledges until the process ends; a "nack…" not at first.
json drain(const json& command) {
  std::string name = command.at("name");
  int invisible_s = command.value("invisible_s", 30);
  auto consumer = named(simple_consumers, command);
  std::thread([=] {
    for (;;) {
      try {
        for (auto& message : receive_some(*consumer, 32, invisible_s)) {
          std::error_code ignored;
          std::string handle = message->extension().receipt_handle;
          if (took(name, *message)) {
            consumer->changeInvisibleDuration(*message, handle, seconds(1), ignored);
          } else {
            consumer->ack(*message, ignored);
          }
        }
      } catch (const RefusedError&) {
        std::this_thread::sleep_for(milliseconds(200));
      }
    }
  }).detach();
  return nullptr;
}

// Forgets a client: its destructor shuts it down.
template <typename T>
void forget(std::map<std::string, std::shared_ptr<T>>& clients, const std::string& name) {
  std::shared_ptr<T> last;  // goes after the lock
  std::lock_guard<std::mutex> guard(lock);
  auto found = clients.find(name);
  if (found != clients.end()) {
    last = std::move(found->second);
    clients.erase(found);
  }
}

json shutdown(const json& command) {
  forget(producers, command.at("name"));
  forget(simple_consumers, command.at("name"));
  forget(push_consumers, command.at("name"));
  return nullptr;
}

const std::unordered_map<std::string, std::function<json(const json&)>> commands = {
    {"producer", start_producer},
    {"simple", start_simple},
    {"push", start_push},
    {"subscribe", subscribe},
    {"send", send},
    {"begin", begin},
    {"end", end},
    {"recall", recall},
    {"receive", receive},
    {"ack", ack},
    {"drain", drain},
    {"change_invisible", change_invisible},
    {"shutdown", shutdown},
};

void run(const json& command) {
  json line = {{"id", command.at("id")}};
  try {
    line["ok"] = commands.at(command.at("do"))(command);
  } catch (const RefusedError& error) {
    line.update({{"error", "error_code"}, {"code", error.code()}, {"message", error.what()}});
  } catch (const std::exception& error) {
    line.update({{"error", "exception"}, {"code", nullptr}, {"message", error.what()}});
  }
  say(line);
}

}  // namespace

int main() {
  answers = fdopen(dup(STDOUT_FILENO), "w");
  dup2(STDERR_FILENO, STDOUT_FILENO);
  auto& logger = mq::getLogger();
  logger.setLevel(mq::Level::Info);
  logger.init();
  say({{"event", "started"}});
  for (std::string text; std::getline(std::cin, text);) {
    std::thread(run, json::parse(text)).detach();
  }
  std::_Exit(0);  // as a process that is killed: receives of its threads are under way
}
