// Apache Kafka's own produce validator over a directory of cases: what it answers, one line of JSON for each.
//
//   java -cp 'libs/*' ValidatorPeer.java DIR
//
// DIR/cases.txt has a line for each case: NAME CODEC TIMESTAMP_TYPE BEFORE_MAX AFTER_MAX COMPACTED BASE_OFFSET EPOCH NOW, and
// DIR/NAME.bin is the produced payload.  What it accepts is written to DIR/NAME.out.

import java.io.IOException;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class ValidatorPeer {
    static final LogValidator.MetricsRecorder NO_METRICS = (LogValidator.MetricsRecorder) Proxy.newProxyInstance(
        ValidatorPeer.class.getClassLoader(), new Class<?>[] {LogValidator.MetricsRecorder.class}, (self, method, args) -> null);

    public static void main(String[] args) throws IOException {
        Path directory = Path.of(args[0]);
        StringBuilder all = new StringBuilder();
        for (String line : Files.readAllLines(directory.resolve("cases.txt"))) all.append(run(directory, line.split(" ")));
        System.out.print(all);
    }

    static String run(Path directory, String[] words) throws IOException {
        byte[] data = Files.readAllBytes(directory.resolve(words[0] + ".bin"));
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(data));
        String start = "{\"name\": \"" + words[0] + "\", ";
        long now = Long.parseLong(words[8]);
        try {
            CompressionType source = CompressionType.NONE;
            for (RecordBatch batch : records.batches()) {
                batch.ensureValid();
                if (batch.compressionType() != CompressionType.NONE) source = batch.compressionType();
            }
            CompressionType target = words[1].equals("producer") ? source : CompressionType.forName(words[1]);
            LogValidator validator = new LogValidator(
                records, new TopicPartition("t", 0), clock(now), source, Compression.of(target).build(), words[5].equals("1"),
                (byte) 2, words[2].equals("1") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
                Long.parseLong(words[3]), Long.parseLong(words[4]), Integer.parseInt(words[7]), AppendOrigin.CLIENT);
            LogValidator.ValidationResult result = validator.validateMessagesAndAssignOffsets(
                PrimitiveRef.ofLong(Long.parseLong(words[6])), NO_METRICS, BufferSupplier.NO_CACHING);
            ByteBuffer out = result.validatedRecords().buffer().duplicate();
            byte[] bytes = new byte[out.remaining()];
            out.get(bytes);
            Files.write(directory.resolve(words[0] + ".out"), bytes);
            return start + "\"max_timestamp\": " + result.maxTimestampMs() + "}\n";
        } catch (RecordValidationException error) {
            String rows = error.recordErrors().stream().map(row -> Integer.toString(row.batchIndex)).collect(Collectors.joining(", "));
            return start + "\"error\": \"" + Errors.forException(error.invalidException()) + "\", \"rows\": [" + rows + "]}\n";
        } catch (RuntimeException error) {
            return start + "\"error\": \"" + Errors.forException(error) + "\"}\n";
        }
    }

    static Time clock(long now) {
        return (Time) Proxy.newProxyInstance(ValidatorPeer.class.getClassLoader(), new Class<?>[] {Time.class},
            (self, method, args) -> method.getName().equals("milliseconds") ? (Object) now : (Object) 0L);
    }
}
