// The same small flow through kafkajs.
const { Kafka, logLevel, CompressionTypes } = require('kafkajs')

async function main() {
  const kafka = new Kafka({ brokers: [process.argv[2]], clientId: 'smoke', logLevel: logLevel.NOTHING })
  const topic = 'kafkajs', groupId = 'kafkajs-group'
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 3, replicationFactor: 1 }] })
  const producer = kafka.producer({ idempotent: true })
  await producer.connect()
  for (let number = 0; number < 10; number++) {
    await producer.send({ topic, acks: -1, compression: CompressionTypes.GZIP,
      messages: [{ key: `${number}`, value: 'v', headers: { h: 'v' } }] })
  }
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let count = 0
  await new Promise((resolve) => {
    consumer.run({ autoCommit: false, eachMessage: async ({ topic, partition, message }) => {
      await consumer.commitOffsets([{ topic, partition, offset: (BigInt(message.offset) + 1n).toString() }])
      if (++count === 10) resolve()
    } })
  })
  const described = await admin.describeGroups([groupId])
  console.log('group', described.groups[0].state, described.groups[0].members.length)
  await consumer.disconnect()
  const offsets = await admin.fetchOffsets({ groupId, topics: [topic] })
  console.log('committed', offsets[0].partitions.reduce((sum, p) => sum + Math.max(Number(p.offset), 0), 0))
  console.log('listed', (await admin.listGroups()).groups.some((g) => g.groupId === groupId))
  const ends = await admin.fetchTopicOffsets(topic)
  console.log('ends', ends.reduce((sum, p) => sum + Number(p.high), 0))
  await admin.fetchTopicOffsetsByTimestamp(topic, Date.now())
  await admin.describeCluster()
  await admin.describeConfigs({ resources: [{ type: 2, name: topic }], includeSynonyms: false })
  await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] })
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '-1' }] })
  await admin.resetOffsets({ groupId, topic, earliest: true })
  await admin.deleteGroups([groupId])
  await admin.deleteTopics({ topics: [topic] })
  await admin.disconnect()
  console.log('OK')
}

main().catch((error) => { console.log('FAILED', error); process.exit(1) })
