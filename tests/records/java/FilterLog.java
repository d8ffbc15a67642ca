// Kafka's own filter over batches, for comparison: which records to keep is told, how they are written is Kafka's.
// Input: number of cases; for each: log, now, delete retention, verdict of each batch, offsets to keep. Output: logs.

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.nio.ByteBuffer;
import java.util.HashSet;
import java.util.Set;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetention;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;

public class FilterLog {
    static final int DISCARD = 1;
    static final int EMPTY_TRANSACTION = 2;
    static final int RETAIN_EMPTY = 4;

    public static void main(String[] args) throws Exception {
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(args[0])));
             DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(args[1])))) {
            int cases = in.readInt();
            for (int i = 0; i < cases; i++) {
                byte[] filtered = filter(in);
                out.writeInt(filtered.length);
                out.write(filtered);
            }
        }
    }

    static byte[] bytes(DataInputStream in) throws Exception {
        byte[] data = new byte[in.readInt()];
        in.readFully(data);
        return data;
    }

    static byte[] filter(DataInputStream in) throws Exception {
        byte[] log = bytes(in);
        long now = in.readLong();
        long retention = in.readLong();
        byte[] verdicts = bytes(in);
        Set<Long> kept = new HashSet<>();
        for (int left = in.readInt(); left > 0; left--)
            kept.add(in.readLong());
        RecordFilter filter = new RecordFilter(now, retention) {
            private int next = 0;

            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                int verdict = verdicts[next++];
                BatchRetention what = BatchRetention.DELETE_EMPTY;
                if ((verdict & RETAIN_EMPTY) != 0)
                    what = BatchRetention.RETAIN_EMPTY;
                else if ((verdict & DISCARD) != 0)
                    what = BatchRetention.DELETE;
                return new BatchRetentionResult(what, (verdict & EMPTY_TRANSACTION) != 0);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return kept.contains(record.offset());
            }
        };
        ByteBuffer target = ByteBuffer.allocate(4 * log.length + 1024);
        MemoryRecords.FilterResult result = MemoryRecords.readableRecords(ByteBuffer.wrap(log))
            .filterTo(filter, target, BufferSupplier.NO_CACHING);
        ByteBuffer written = result.outputBuffer();
        written.flip();
        byte[] filtered = new byte[written.remaining()];
        written.get(filtered);
        return filtered;
    }
}
