// Kafka's own cleaner on partition directories, for comparison with ours.
// Arguments: any number of  DIR NOW MAP_BYTES DELETE_RETENTION_MS SEGMENT_BYTES PASSES FIRST_DIRTY ; PASSES 0 means: until
// all is clean.  Prints for each: the end offset, milliseconds and processor milliseconds of the cleaning.

import java.io.File;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Timer;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class CleanLog {
    record Still(long now) implements Time {
        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return System.nanoTime();
        }

        public void sleep(long ms) {
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        }
    }

    public static void main(String[] args) throws Exception {
        for (int i = 0; i < args.length; i += 7) {
            clean(new File(args[i]), Long.parseLong(args[i + 1]), Integer.parseInt(args[i + 2]), args[i + 3], args[i + 4],
                Integer.parseInt(args[i + 5]), Long.parseLong(args[i + 6]));
        }
        System.exit(0);
    }

    static void clean(File dir, long now, int mapBytes, String retention, String segment, int passes, long first)
            throws Exception {
        Time time = new Still(now);
        Map<String, String> config = new HashMap<>();
        config.put("cleanup.policy", "compact");
        config.put("delete.retention.ms", retention);
        config.put("internal.segment.bytes", segment);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        UnifiedLog log = UnifiedLog.create(dir, new LogConfig(config), 0, 0, scheduler, new BrokerTopicStats(), time,
            900000, new ProducerStateManagerConfig(86400000, false), 600000, new LogDirFailureChannel(1), true,
            Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(mapBytes), 262144, 1 << 30, 0.9,
            new Throttler(Double.MAX_VALUE, 300, "cleaner", "bytes", Time.SYSTEM), time, partition -> { });
        long uncleanable = log.activeSegment().baseOffset();
        long begin = System.nanoTime();
        long cpu = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        int done = 0;
        while (first < uncleanable && (passes == 0 || done < passes)) {
            first = cleaner.doClean(new LogToClean(log, first, uncleanable, true), now).getKey();
            done++;
        }
        System.out.println(first + " " + (System.nanoTime() - begin) / 1000000 + " "
            + (ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - cpu) / 1000000);
        log.close();
    }
}
