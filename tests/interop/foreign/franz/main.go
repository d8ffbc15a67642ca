// The same small flow through franz-go: create, produce, consume as a group, commit, describe, delete.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func must(err error, what string) {
	if err != nil {
		fmt.Println("FAILED", what, err)
		os.Exit(1)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	seed := kgo.SeedBrokers(os.Args[1])
	topic, group := "franz", "franz-group"
	client, err := kgo.NewClient(seed, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	must(err, "client")
	admin := kadm.NewClient(client)
	value := "60000"
	created, err := admin.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &value}, topic)
	must(err, "create")
	must(created.Err, "create")
	for number := 0; number < 10; number++ {
		record := &kgo.Record{Key: []byte{byte(number)}, Value: []byte(fmt.Sprint(number)), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("v")}}}
		must(client.ProduceSync(ctx, record).FirstErr(), "produce")
	}
	missing := client.ProduceSync(ctx, &kgo.Record{Topic: "not there", Value: []byte("x")}).FirstErr()
	fmt.Println("produce to a bad name:", missing)
	consumer, err := kgo.NewClient(seed, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	must(err, "consumer")
	for count := 0; count < 10; {
		fetches := consumer.PollFetches(ctx)
		for _, failure := range fetches.Errors() {
			must(failure.Err, "fetch")
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if len(record.Headers) != 1 || record.Headers[0].Key != "h" {
				must(fmt.Errorf("%v", record.Headers), "headers")
			}
			count++
		})
	}
	must(consumer.CommitUncommittedOffsets(ctx), "commit")
	described, err := admin.DescribeGroups(ctx, group)
	must(err, "describe group")
	fmt.Println("group", described[group].State, len(described[group].Members))
	lag, err := admin.Lag(ctx, group)
	must(err, "lag")
	own := lag[group]
	must(own.Error(), "lag")
	fmt.Println("lag", lag[group].Lag.Total())
	committed, err := admin.FetchOffsets(ctx, group)
	must(err, "offsets")
	sum := int64(0)
	committed.Each(func(o kadm.OffsetResponse) { sum += o.At })
	fmt.Println("committed", sum)
	listed, err := admin.ListGroups(ctx)
	must(err, "list groups")
	_, found := listed[group]
	fmt.Println("listed", found)
	ends, err := admin.ListEndOffsets(ctx, topic)
	must(err, "ends")
	must(ends.Error(), "ends")
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	must(err, "configs")
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" {
			fmt.Println("retention", *config.Value)
		}
	}
	_, err = admin.BrokerMetadata(ctx)
	must(err, "brokers")
	_, err = admin.DescribeBrokerLogDirs(ctx, 1, nil)
	must(err, "log dirs")
	consumer.LeaveGroup()
	consumer.Close()
	deleted, err := admin.DeleteGroups(ctx, group)
	must(err, "delete group")
	must(deleted[group].Err, "delete group")
	gone, err := admin.DeleteTopics(ctx, topic)
	must(err, "delete topic")
	must(gone.Error(), "delete topic")
	again, err := admin.DeleteTopics(ctx, topic)
	must(err, "delete topic again")
	fmt.Println("delete again", again[topic].Err == kerr.UnknownTopicOrPartition)
	client.Close()
	fmt.Println("OK")
}
