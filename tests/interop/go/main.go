// The official Go client, unmodified, driven by lines: the protocol of ../official_process.py.
//
// A command is one JSON object on standard input, {"id": 7, "do": "send", …}; it is answered by one
// line on standard output, {"id": 7, "ok": …} or {"id": 7, "error": class, …}. What a push consumer
// is handed is told unasked. Nothing of LaterMQ is used here.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	mq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const lineBytesMax = 16 << 20

// command has the fields of every command; each reads its own.
type command struct {
	ID           int               `json:"id"`
	Do           string            `json:"do"`
	Name         string            `json:"name"`
	Endpoint     string            `json:"endpoint"`
	Group        string            `json:"group"`
	WaitS        int               `json:"wait_s"`
	Failures     map[string]int    `json:"failures"`
	Topics       json.RawMessage   `json:"topics"` // a list, for consumers tags by topic
	Topic        string            `json:"topic"`
	Text         string            `json:"text"`
	Tag          string            `json:"tag"`
	Tags         string            `json:"tags"`
	Keys         []string          `json:"keys"`
	Properties   map[string]string `json:"properties"`
	DeliverAtMs  int64             `json:"deliver_at_ms"`
	CountMax     int32             `json:"count_max"`
	InvisibleS   int               `json:"invisible_s"`
	Seconds      int               `json:"seconds"`
	Ref          string            `json:"ref"`
	Verdicts     map[string]string `json:"verdicts"`
	Resolution   string            `json:"resolution"`
	Handle       string            `json:"recall_handle"`
	MessageGroup string            `json:"message_group"`
	Brief        bool              `json:"brief"`
	Priority     *int32            `json:"priority"`
	LiteTopic    string            `json:"lite_topic"`
}

type fields map[string]any

// stopper is what all three kinds of client have.
type stopper interface{ GracefulStop() error }

var (
	lock         sync.Mutex // of everything below, and of standard output
	clients      = map[string]stopper{}
	messages     = map[string]*mq.MessageView{} // by ref
	transactions = map[string]mq.Transaction{}  // by ref
)

var resolutions = map[string]mq.TransactionResolution{
	"commit": mq.COMMIT, "rollback": mq.ROLLBACK, "": mq.UNKNOWN}

func say(line fields) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	lock.Lock()
	defer lock.Unlock()
	fmt.Println(string(text))
}

func told(message *mq.MessageView, ref string) fields {
	tag := ""
	if message.GetTag() != nil {
		tag = *message.GetTag()
	}
	keys := append([]string{}, message.GetKeys()...)
	sort.Strings(keys)
	return fields{
		"ref":        ref,
		"topic":      message.GetTopic(),
		"body":       message.GetBody(), // base64 in JSON
		"message_id": message.GetMessageId(),
		"tag":        tag,
		"keys":       keys,
		"properties": message.GetProperties(),
		"attempt":    message.GetDeliveryAttempt(),
		"handle":     message.GetReceiptHandle(),
		"lite_topic": message.GetLiteTopic(),
		"born_ms":    message.GetBornTimestamp().UnixMilli(),
		"at_ms":      time.Now().UnixMilli(),
	}
}

// took tells in few words, for many messages, and whether this attempt fails: a "nack…" at first.
func took(consumer string, message *mq.MessageView) bool {
	text, attempt := string(message.GetBody()), message.GetDeliveryAttempt()
	say(fields{"event": "took", "consumer": consumer, "text": text, "attempt": attempt,
		"at_ms": time.Now().UnixMilli()})
	return attempt == 1 && strings.HasPrefix(text, "nack")
}

// brief is a listener that tells in few words.
func brief(consumer string) mq.MessageListener {
	return &mq.FuncMessageListener{Consume: func(message *mq.MessageView) mq.ConsumerResult {
		if took(consumer, message) {
			return mq.FAILURE
		}
		return mq.SUCCESS
	}}
}

// listener fails a body as often as failures says (-1: always).
func listener(consumer string, failures map[string]int) mq.MessageListener {
	seen := map[string]int{}
	var seenLock sync.Mutex
	return &mq.FuncMessageListener{Consume: func(message *mq.MessageView) mq.ConsumerResult {
		text := string(message.GetBody())
		seenLock.Lock()
		seen[text]++
		failing := failures[text] < 0 || seen[text] <= failures[text]
		seenLock.Unlock()
		say(fields{"event": "consumed", "consumer": consumer, "failing": failing,
			"message": told(message, "")})
		if failing {
			return mq.FAILURE
		}
		return mq.SUCCESS
	}}
}

func config(c command) *mq.Config {
	return &mq.Config{Endpoint: c.Endpoint, ConsumerGroup: c.Group,
		NameSpace: os.Getenv("TEST_NAMESPACE"),
		Credentials: &credentials.SessionCredentials{
			AccessKey:    os.Getenv("TEST_ACCESS_KEY"),
			AccessSecret: os.Getenv("TEST_SECRET_KEY")}}
}

func filters(c command) map[string]*mq.FilterExpression {
	var tags map[string]string
	if err := json.Unmarshal(c.Topics, &tags); err != nil {
		panic(err)
	}
	filters := map[string]*mq.FilterExpression{}
	for topic, expression := range tags {
		filters[topic] = filter(expression)
	}
	return filters
}

func filter(expression string) *mq.FilterExpression {
	if sql, found := strings.CutPrefix(expression, "sql:"); found {
		return mq.NewFilterExpressionWithType(sql, mq.SQL92)
	}
	return mq.NewFilterExpression(expression)
}

func keep(name string, client stopper) {
	lock.Lock()
	defer lock.Unlock()
	clients[name] = client
}

func client(name string) stopper {
	lock.Lock()
	defer lock.Unlock()
	return clients[name]
}

func message(ref string) *mq.MessageView {
	lock.Lock()
	defer lock.Unlock()
	return messages[ref]
}

// checker says of a body's transaction what verdicts says.
func checker(producer string, verdicts map[string]string) *mq.TransactionChecker {
	return &mq.TransactionChecker{Check: func(message *mq.MessageView) mq.TransactionResolution {
		text := string(message.GetBody())
		say(fields{"event": "checked", "producer": producer, "topic": message.GetTopic(),
			"text": text})
		return resolutions[verdicts[text]]
	}}
}

func startProducer(c command) (any, error) {
	var topics []string
	if err := json.Unmarshal(c.Topics, &topics); err != nil {
		return nil, err
	}
	producer, err := mq.NewProducer(config(c), mq.WithTopics(topics...),
		mq.WithTransactionChecker(checker(c.Name, c.Verdicts)))
	if err != nil {
		return nil, err
	}
	keep(c.Name, producer)
	return nil, producer.Start()
}

func startSimple(c command) (any, error) {
	consumer, err := mq.NewSimpleConsumer(config(c),
		mq.WithSimpleAwaitDuration(time.Duration(c.WaitS)*time.Second),
		mq.WithSimpleSubscriptionExpressions(filters(c)))
	if err != nil {
		return nil, err
	}
	keep(c.Name, consumer)
	return nil, consumer.Start()
}

func startPush(c command) (any, error) {
	heard := listener(c.Name, c.Failures)
	if c.Brief {
		heard = brief(c.Name)
	}
	consumer, err := mq.NewPushConsumer(config(c),
		mq.WithPushSubscriptionExpressions(filters(c)),
		mq.WithPushMessageListener(heard))
	if err != nil {
		return nil, err
	}
	keep(c.Name, consumer)
	return nil, consumer.Start()
}

const liteLease = 30 * time.Second

func startLitePush(c command) (any, error) {
	consumer, err := mq.NewLitePushConsumer(config(c),
		mq.NewLitePushConsumerConfig(c.Topic, liteLease),
		mq.WithPushMessageListener(listener(c.Name, c.Failures)))
	if err != nil {
		return nil, err
	}
	keep(c.Name, consumer)
	return nil, consumer.Start()
}

// subscriber is what both kinds of consumer have.
type subscriber interface {
	Subscribe(topic string, filterExpression *mq.FilterExpression) error
}

// subscribe changes a consumer's filter of a topic.
func subscribe(c command) (any, error) {
	return nil, client(c.Name).(subscriber).Subscribe(c.Topic, filter(c.Tags))
}

func subscribeLite(c command) (any, error) {
	return nil, client(c.Name).(mq.LitePushConsumer).SubscribeLite(c.LiteTopic)
}

func unsubscribeLite(c command) (any, error) {
	return nil, client(c.Name).(mq.LitePushConsumer).UnSubscribeLite(c.LiteTopic)
}

func send(c command) (any, error) {
	message := &mq.Message{Topic: c.Topic, Body: []byte(c.Text)}
	if c.Tag != "" {
		message.SetTag(c.Tag)
	}
	message.SetKeys(c.Keys...)
	for key, value := range c.Properties {
		message.AddProperty(key, value)
	}
	if c.DeliverAtMs != 0 {
		message.SetDelayTimestamp(time.UnixMilli(c.DeliverAtMs))
	}
	if c.MessageGroup != "" {
		message.SetMessageGroup(c.MessageGroup)
	}
	if c.Priority != nil {
		if err := message.SetPriority(*c.Priority); err != nil {
			return nil, err
		}
	}
	if c.LiteTopic != "" {
		message.SetLiteTopic(c.LiteTopic)
	}
	sentMs := time.Now().UnixMilli()
	receipts, err := client(c.Name).(mq.Producer).Send(context.Background(), message)
	if err != nil {
		return nil, err
	}
	return fields{"message_id": receipts[0].MessageID, "offset": receipts[0].Offset,
		"recall_handle": receipts[0].RecallHandle, "sent_ms": sentMs}, nil
}

func begin(c command) (any, error) {
	producer := client(c.Name).(mq.Producer)
	transaction := producer.BeginTransaction()
	message := &mq.Message{Topic: c.Topic, Body: []byte(c.Text)}
	receipts, err := producer.SendWithTransaction(context.Background(), message, transaction)
	if err != nil {
		return nil, err
	}
	lock.Lock()
	defer lock.Unlock()
	ref := strconv.Itoa(len(transactions) + 1)
	transactions[ref] = transaction
	return fields{"ref": ref, "message_id": receipts[0].MessageID}, nil
}

func end(c command) (any, error) {
	lock.Lock()
	transaction := transactions[c.Ref]
	lock.Unlock()
	if c.Resolution == "commit" {
		return nil, transaction.Commit()
	}
	return nil, transaction.RollBack()
}

func recall(c command) (any, error) {
	return client(c.Name).(mq.Producer).Recall(context.Background(), c.Topic, c.Handle)
}

func receive(c command) (any, error) {
	countMax, invisibleS := c.CountMax, c.InvisibleS
	if countMax == 0 {
		countMax = 32
	}
	if invisibleS == 0 {
		invisibleS = 30
	}
	received, err := client(c.Name).(mq.SimpleConsumer).Receive(
		context.Background(), countMax, time.Duration(invisibleS)*time.Second)
	if err != nil {
		return nil, err
	}
	lines := []fields{}
	for _, one := range received {
		lock.Lock()
		ref := strconv.Itoa(len(messages) + 1)
		messages[ref] = one
		lock.Unlock()
		lines = append(lines, told(one, ref))
	}
	return lines, nil
}

func ack(c command) (any, error) {
	return nil, client(c.Name).(mq.SimpleConsumer).Ack(context.Background(), message(c.Ref))
}

// drain receives, tells and acknowledges until the process ends; a "nack…" not at first.
func drain(c command) (any, error) {
	consumer := client(c.Name).(mq.SimpleConsumer)
	invisible := time.Duration(c.InvisibleS) * time.Second
	go func() {
		for {
			received, err := consumer.Receive(context.Background(), 32, invisible)
			if err != nil {
				time.Sleep(200 * time.Millisecond)
			}
			for _, one := range received {
				if took(c.Name, one) {
					_ = consumer.ChangeInvisibleDuration(one, time.Second)
				} else {
					_ = consumer.Ack(context.Background(), one)
				}
			}
		}
	}()
	return nil, nil
}

func changeInvisible(c command) (any, error) {
	one := message(c.Ref)
	err := client(c.Name).(mq.SimpleConsumer).ChangeInvisibleDuration(
		one, time.Duration(c.Seconds)*time.Second)
	return one.GetReceiptHandle(), err
}

func shutdown(c command) (any, error) {
	return nil, client(c.Name).GracefulStop()
}

var commands = map[string]func(command) (any, error){
	"producer":         startProducer,
	"simple":           startSimple,
	"push":             startPush,
	"send":             send,
	"begin":            begin,
	"end":              end,
	"recall":           recall,
	"receive":          receive,
	"ack":              ack,
	"drain":            drain,
	"change_invisible": changeInvisible,
	"lite_push":        startLitePush,
	"subscribe":        subscribe,
	"subscribe_lite":   subscribeLite,
	"unsubscribe_lite": unsubscribeLite,
	"shutdown":         shutdown,
}

func run(c command) {
	ok, err := commands[c.Do](c)
	if err == nil {
		say(fields{"id": c.ID, "ok": ok})
		return
	}
	line := fields{"id": c.ID, "error": fmt.Sprintf("%T", err), "code": nil, "message": err.Error()}
	if status, known := mq.AsErrRpcStatus(err); known {
		line["code"] = status.GetCode()
	}
	say(line)
}

func main() {
	mq.EnableSsl = os.Getenv("LATERMQ_CLIENT_TLS") == "1"
	say(fields{"event": "started"})
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(make([]byte, 0, 1<<16), lineBytesMax)
	for input.Scan() {
		var c command
		if err := json.Unmarshal(input.Bytes(), &c); err != nil {
			panic(err)
		}
		go run(c)
	}
}
