// The same small flow through @platformatic/kafka.
import { Admin, Consumer, Producer, MessagesStreamModes, stringSerializers, stringDeserializers } from '@platformatic/kafka'

const bootstrapBrokers = [process.argv[2]]
const topic = 'platformatic', groupId = 'platformatic-group'
const admin = new Admin({ clientId: 'smoke', bootstrapBrokers })
await admin.createTopics({ topics: [topic], partitions: 3, replicas: 1 })
const producer = new Producer({ clientId: 'smoke', bootstrapBrokers, serializers: stringSerializers, idempotent: true })
for (let number = 0; number < 10; number++) {
  await producer.send({ messages: [{ topic, key: `${number}`, value: 'v', headers: { h: 'v' } }] })
}
await producer.close()
const consumer = new Consumer({ clientId: 'smoke', groupId, bootstrapBrokers, deserializers: stringDeserializers })
const stream = await consumer.consume({ topics: [topic], mode: MessagesStreamModes.EARLIEST, autocommit: false, maxWaitTime: 200 })
let count = 0
for await (const message of stream) {
  await message.commit()
  if (++count === 10) break
}
const groups = await admin.describeGroups({ groups: [groupId] })
console.log('group', [...groups.values()].map((g) => g.state).join())
await consumer.close(true)
console.log('listed', (await admin.listGroups()).has(groupId))
await admin.deleteGroups({ groups: [groupId] })
await admin.deleteTopics({ topics: [topic] })
await admin.close()
console.log('OK')
process.exit(0)
