// The same small flow through kafka-go, which speaks the oldest versions of all.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
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
	topic, group := "segmentio", "segmentio-group"
	address, err := net.ResolveTCPAddr("tcp", os.Args[1])
	must(err, "address")
	client := &kafka.Client{Addr: address}
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 3, ReplicationFactor: 1}}})
	must(err, "create")
	must(created.Errors[topic], "create")
	writer := &kafka.Writer{Addr: address, Topic: topic, RequiredAcks: kafka.RequireAll, Compression: kafka.Gzip, BatchTimeout: 5 * time.Millisecond}
	for number := 0; number < 10; number++ {
		must(writer.WriteMessages(ctx, kafka.Message{Key: []byte(fmt.Sprint(number)), Value: []byte("v")}), "produce")
	}
	must(writer.Close(), "close writer")
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: os.Args[1:2], GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond})
	for count := 0; count < 10; count++ {
		message, err := reader.FetchMessage(ctx)
		must(err, "fetch")
		must(reader.CommitMessages(ctx, message), "commit")
	}
	described, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	must(err, "describe")
	fmt.Println("group", described.Groups[0].GroupState, len(described.Groups[0].Members))
	must(reader.Close(), "close")
	offsets, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {0, 1, 2}}})
	must(err, "offsets")
	sum := int64(0)
	for _, partition := range offsets.Topics[topic] {
		sum += partition.CommittedOffset
	}
	fmt.Println("committed", sum)
	groups, err := client.ListGroups(ctx, &kafka.ListGroupsRequest{})
	must(err, "list")
	fmt.Println("listed", len(groups.Groups) > 0)
	gone, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	must(err, "delete")
	must(gone.Errors[topic], "delete")
	fmt.Println("OK")
}
