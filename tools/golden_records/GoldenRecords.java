// Writes batches with Apache Kafka's own builders, and describes batches with Kafka's own readers.
//
//   java -cp 'libs/*' GoldenRecords.java write DIR     the golden files: NAME.bin and NAME.json
//   java -cp 'libs/*' GoldenRecords.java read DIR      one line of JSON for each DIR/*.bin
//
// Runs as a single source file; `record.py` beside it finds Java and the jars.

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.CRC32;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.ByteBufferOutputStream;

public class GoldenRecords {
    static final long BASE_TIME = 1_700_000_000_000L;
    static final Header[] NO_HEADERS = new Header[0];

    public static void main(String[] args) throws IOException {
        Path directory = Path.of(args[1]);
        if (args[0].equals("write")) {
            Files.createDirectories(directory);
            write(directory);
        } else {
            List<Path> files;
            try (Stream<Path> all = Files.list(directory)) {
                files = all.filter(path -> path.toString().endsWith(".bin")).sorted().collect(Collectors.toList());
            }
            for (Path file : files) {
                System.out.println("{\"name\": \"" + name(file) + "\", \"batches\": " + describe(Files.readAllBytes(file)) + "}");
            }
        }
    }

    static String name(Path file) {
        return file.getFileName().toString().replace(".bin", "");
    }

    // --- writing -----------------------------------------------------------------------------------------------
    static void write(Path directory) throws IOException {
        for (byte magic = 0; magic <= 2; magic++) {
            for (CompressionType type : CompressionType.values()) {
                if (type == CompressionType.ZSTD && magic < 2) continue;
                String name = "v" + magic + "-" + type.name;
                Compression codec = Compression.of(type).build();
                save(directory, name, plain(magic, codec, TimestampType.CREATE_TIME));
                if (magic > 0) save(directory, name + "-log-append-time", plain(magic, codec, TimestampType.LOG_APPEND_TIME));
                save(directory, name + "-large", large(magic, codec));
            }
        }
        save(directory, "v2-gzip-level-9", plain((byte) 2, Compression.gzip().level(9).build(), TimestampType.CREATE_TIME));
        save(directory, "v2-lz4-level-17", large((byte) 2, Compression.lz4().level(17).build()));
        save(directory, "v2-zstd-level-22", large((byte) 2, Compression.zstd().level(22).build()));
        save(directory, "v2-transactional", special(RecordBatch.NO_TIMESTAMP, true, 9_000L, (short) 3, 17));
        save(directory, "v2-sequence-wrap", special(RecordBatch.NO_TIMESTAMP, false, 9_001L, (short) 32767, Integer.MAX_VALUE - 1));
        save(directory, "v2-delete-horizon", special(BASE_TIME + 86_400_000L, false, -1L, (short) -1, -1));
        save(directory, "v2-commit", MemoryRecords.withEndTransactionMarker(
            77L, BASE_TIME, 5, 9_000L, (short) 3, new EndTransactionMarker(ControlRecordType.COMMIT, 12)).buffer());
        save(directory, "v2-abort", MemoryRecords.withEndTransactionMarker(
            78L, BASE_TIME, 5, 9_000L, (short) 3, new EndTransactionMarker(ControlRecordType.ABORT, 13)).buffer());
        save(directory, "v2-leader-change", MemoryRecords.withLeaderChangeMessage(
            5L, BASE_TIME, 8, ByteBuffer.allocate(512),
            new LeaderChangeMessage().setVersion((short) 0).setLeaderId(1).setVoters(List.of()).setGrantingVoters(List.of())).buffer());
        ByteBuffer empty = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(empty, (byte) 2, 9_000L, (short) 3, 40, 100L, 109L, 6,
            TimestampType.CREATE_TIME, BASE_TIME, true, false);
        empty.flip();
        save(directory, "v2-empty", empty);
    }

    static List<SimpleRecord> records(byte magic) {
        List<SimpleRecord> list = new ArrayList<>();
        Header[] some = magic < 2 ? NO_HEADERS : new Header[] {
            new RecordHeader("trace", "abc".getBytes(StandardCharsets.UTF_8)),
            new RecordHeader("", new byte[0]),
            new RecordHeader("nothing", null),
            new RecordHeader("gr\u00fc\u00df", new byte[] {0, (byte) 0xff})};
        list.add(new SimpleRecord(BASE_TIME, bytes("key-0"), bytes("value-0"), NO_HEADERS));
        list.add(new SimpleRecord(BASE_TIME + 5, null, bytes("no key"), some));
        list.add(new SimpleRecord(BASE_TIME - 70_000, bytes("tombstone"), null, NO_HEADERS));
        list.add(new SimpleRecord(BASE_TIME + 3_000_000_000L, new byte[0], new byte[0], NO_HEADERS));
        list.add(new SimpleRecord(BASE_TIME + 1, (byte[]) null, (byte[]) null, some));
        list.add(new SimpleRecord(BASE_TIME + 2, bytes("key-5"), pattern(300), NO_HEADERS));
        return list;
    }

    static ByteBuffer plain(byte magic, Compression codec, TimestampType type) {
        TimestampType kind = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : type;
        long stamp = type == TimestampType.LOG_APPEND_TIME ? BASE_TIME + 999 : RecordBatch.NO_TIMESTAMP;
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(8192), magic, codec, kind, 40L, stamp,
            magic < 2 ? -1 : 4);
        for (SimpleRecord record : records(magic)) {
            if (magic == 0) builder.append(-1L, record.key(), record.value());
            else builder.append(record);
        }
        return builder.build().buffer();
    }

    /** More than one block of any codec, with a gap in the offsets. */
    static ByteBuffer large(byte magic, Compression codec) {
        TimestampType kind = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME;
        int size = codec.type() == CompressionType.NONE ? 40 : 3000;
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 18), magic, codec, kind, 1_000_000_000_000L,
            RecordBatch.NO_TIMESTAMP, -1);
        for (int i = 0; i < 60; i++) {
            long time = magic == 0 ? -1L : BASE_TIME + i;
            builder.appendWithOffset(1_000_000_000_000L + i * 3L, time, bytes("key-" + i), pattern(size + i));
        }
        return builder.build().buffer();
    }

    static ByteBuffer special(long horizon, boolean transactional, long producer, short epoch, int sequence) {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(8192), (byte) 2, Compression.NONE,
            TimestampType.CREATE_TIME, 70L, RecordBatch.NO_TIMESTAMP, producer, epoch, sequence, transactional, false, 5, 8192, horizon);
        for (SimpleRecord record : records((byte) 2)) builder.append(record);
        return builder.build().buffer();
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static byte[] pattern(int size) {
        byte[] out = new byte[size];
        int state = size;
        for (int i = 0; i < size; i++) {
            if (i % 7 == 0) state = state * 1103515245 + 12345;
            out[i] = (byte) ("stratalog".charAt(i % 9) ^ (i % 700 == 0 ? state >>> 16 : 0));
        }
        return out;
    }

    static void save(Path directory, String name, ByteBuffer buffer) throws IOException {
        byte[] data = new byte[buffer.remaining()];
        buffer.duplicate().get(data);
        Files.write(directory.resolve(name + ".bin"), data);
        Files.writeString(directory.resolve(name + ".json"), describe(data) + "\n");
    }

    // --- reading -----------------------------------------------------------------------------------------------
    static String describe(byte[] data) {
        StringBuilder out = new StringBuilder("[");
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            batch.ensureValid();
            if (out.length() > 1) out.append(",\n ");
            out.append("{\"magic\": ").append(batch.magic());
            out.append(", \"size\": ").append(batch.sizeInBytes());
            out.append(", \"codec\": \"").append(batch.compressionType().name).append('"');
            out.append(", \"first_offset\": ").append(batch.baseOffset());
            out.append(", \"last_offset\": ").append(batch.lastOffset());
            out.append(", \"timestamp_type\": ").append(batch.timestampType().id);
            out.append(", \"max_timestamp\": ").append(batch.maxTimestamp());
            out.append(", \"leader_epoch\": ").append(batch.partitionLeaderEpoch());
            out.append(", \"producer_id\": ").append(batch.producerId());
            out.append(", \"producer_epoch\": ").append(batch.producerEpoch());
            out.append(", \"base_sequence\": ").append(batch.baseSequence());
            out.append(", \"last_sequence\": ").append(batch.lastSequence());
            out.append(", \"transactional\": ").append(batch.isTransactional());
            out.append(", \"control\": ").append(batch.isControlBatch());
            out.append(", \"delete_horizon_ms\": ").append(
                batch.deleteHorizonMs().isPresent() ? Long.toString(batch.deleteHorizonMs().getAsLong()) : "null");
            out.append(", \"records\": [");
            boolean first = true;
            for (Record record : batch) {
                record.ensureValid();
                if (!first) out.append(",");
                first = false;
                out.append("\n  [").append(record.offset()).append(", ").append(record.timestamp()).append(", ");
                out.append(record.sequence()).append(", ").append(hex(copy(record.key()))).append(", ");
                out.append(hex(copy(record.value()))).append(", [");
                boolean firstHeader = true;
                for (Header header : record.headers()) {
                    if (!firstHeader) out.append(", ");
                    firstHeader = false;
                    out.append("[").append(hex(bytes(header.key()))).append(", ").append(hex(header.value())).append("]");
                }
                out.append("]]");
            }
            out.append("]}");
        }
        return out.append("]").toString();
    }

    static byte[] copy(ByteBuffer buffer) {
        if (buffer == null) return null;
        byte[] out = new byte[buffer.remaining()];
        buffer.duplicate().get(out);
        return out;
    }

    /** Long values by length and CRC32, so that the files stay small. */
    static String hex(byte[] data) {
        if (data == null) return "null";
        if (data.length > 64) {
            CRC32 crc = new CRC32();
            crc.update(data);
            return "\"" + data.length + " bytes, crc32 " + crc.getValue() + "\"";
        }
        StringBuilder out = new StringBuilder("\"");
        for (byte one : data) out.append(String.format("%02x", one & 0xff));
        return out.append("\"").toString();
    }
}
