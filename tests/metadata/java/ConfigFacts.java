// Prints what Kafka knows of its configuration keys, one row a line: table, name, type, importance, default, validator,
// and for brokers how the key may be changed.  Fields are separated by a tab; ~ stands for null.

import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

public class ConfigFacts {
    public static void main(String[] args) {
        print("topic", LogConfig.configDefCopy(), Map.of());
        print("broker", kafka.server.KafkaConfig.configDef(), DynamicBrokerConfig.dynamicConfigUpdateModes());
        print("group", GroupConfig.CONFIG_DEF, Map.of());
        for (var entry : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.entrySet()) {
            StringBuilder names = new StringBuilder();
            for (var synonym : entry.getValue()) {
                names.append('\t').append(synonym.name()).append('=').append(synonym.converter().apply("1"));
            }
            System.out.println("synonyms\t" + entry.getKey() + names);
        }
    }

    private static void print(String table, ConfigDef keys, Map<String, String> modes) {
        for (var entry : new TreeMap<>(keys.configKeys()).entrySet()) {
            ConfigDef.ConfigKey key = entry.getValue();
            String value = "~";
            if (key.hasDefault() && key.defaultValue != null) {
                value = ConfigDef.convertToString(key.defaultValue, key.type);
            }
            String rule = key.validator == null ? "~" : key.validator.toString();
            String mode = modes.getOrDefault(entry.getKey(), "read-only");
            System.out.println(String.join("\t", table, entry.getKey(), key.type.toString(),
                    key.importance.toString(), value, rule, mode));
        }
    }
}
