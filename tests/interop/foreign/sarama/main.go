// The same small flow through sarama.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
)

func must(err error, what string) {
	if err != nil {
		fmt.Println("FAILED", what, err)
		os.Exit(1)
	}
}

type handler struct{ left chan struct{} }

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			session.MarkMessage(message, "")
			session.Commit()
			h.left <- struct{}{}
		case <-session.Context().Done():
			return nil
		}
	}
}

func main() {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	config.Producer.Compression = sarama.CompressionLZ4
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	brokers := []string{os.Args[1]}
	topic, group := "sarama", "sarama-group"
	admin, err := sarama.NewClusterAdmin(brokers, config)
	must(err, "admin")
	must(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}, false), "create")
	producer, err := sarama.NewSyncProducer(brokers, config)
	must(err, "producer")
	for number := 0; number < 10; number++ {
		_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(fmt.Sprint(number)), Value: sarama.StringEncoder("v")})
		must(err, "produce")
	}
	must(producer.Close(), "close producer")
	consumer, err := sarama.NewConsumerGroup(brokers, group, config)
	must(err, "group")
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	left := make(chan struct{}, 100)
	ended := make(chan error, 1)
	go func() { ended <- consumer.Consume(ctx, []string{topic}, handler{left}) }()
	for count := 0; count < 10; count++ {
		select {
		case <-left:
		case <-ctx.Done():
			must(ctx.Err(), "consume")
		}
	}
	described, err := admin.DescribeConsumerGroups([]string{group})
	must(err, "describe")
	fmt.Println("group", described[0].State, len(described[0].Members))
	must(consumer.Close(), "close")
	<-ended
	offsets, err := admin.ListConsumerGroupOffsets(group, nil)
	must(err, "offsets")
	sum := int64(0)
	for _, block := range offsets.Blocks[topic] {
		sum += block.Offset
	}
	fmt.Println("committed", sum)
	groups, err := admin.ListConsumerGroups()
	must(err, "list")
	fmt.Println("listed", groups[group])
	must(admin.CreatePartitions(topic, 4, nil, false), "partitions")
	_, err = admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic})
	must(err, "configs")
	must(admin.DeleteRecords(topic, map[int32]int64{0: 0}), "delete records")
	must(admin.DeleteConsumerGroup(group), "delete group")
	must(admin.DeleteTopic(topic), "delete topic")
	fmt.Println("delete again", admin.DeleteTopic(topic))
	must(admin.Close(), "close admin")
	fmt.Println("OK")
}
