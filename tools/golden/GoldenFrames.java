import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedWriter;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.AbstractCollection;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;

/**
 * Kafka's own message classes as a witness for ours.
 *
 *   record IN OUT   IN has lines "name class first last"; for each version OUT gets an instance with defaults, one with
 *                   pseudo-random values and one where all is null that may be, in the form
 *                   {"message":..,"version":..,"kind":..,"hex":..,"json":..}
 *   echo IN OUT     IN has lines "name class version hex"; OUT gets what Java reads there and writes back, in the same
 *                   form, or {"message":..,"version":..,"error":..}
 *
 *   headers IN OUT  IN has lines "name key first last"; OUT gets the headers before requests and responses of each
 *                   version: {"message":..,"key":..,"version":..,"correlation":..,"client":..,"request":..,"response":..}
 *
 * Which fields a version has is taken from the Schema that each generated class carries; values depend on the name and
 * the version only, so a new recording equals the old one.  Run by tools/golden/record and by the tests, as a single
 * source file, on the class path of one Kafka version.
 */
public final class GoldenFrames {
    /** Whether to fill with null whatever may be null, but for arrays, so that what is in them is seen too. */
    private static boolean nulls = false;
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        try (BufferedWriter out = Files.newBufferedWriter(Path.of(args[2]))) {
            for (String line : Files.readAllLines(Path.of(args[1]))) {
                String[] words = line.split(" ", -1);
                if (args[0].equals("headers")) {
                    for (short v = Short.parseShort(words[2]); v <= Short.parseShort(words[3]); v++) {
                        headers(out, words[0], Short.parseShort(words[1]), v);
                    }
                } else if (args[0].equals("record")) {
                    for (short v = Short.parseShort(words[2]); v <= Short.parseShort(words[3]); v++) {
                        try {
                            emit(out, words[0], v, "default", words[1], fresh(words[1]));
                        } catch (NullPointerException | UnsupportedVersionException cannot) {
                            // Null by default in a version that knows no null: there is no frame of defaults.
                        }
                        Message some = random(words[0], words[1], v, false);
                        Message none = random(words[0], words[1], v, true);
                        emit(out, words[0], v, "random", words[1], some);
                        if (!some.equals(none)) emit(out, words[0], v, "nulls", words[1], none);
                    }
                } else {
                    short v = Short.parseShort(words[2]);
                    try {
                        Message message = fresh(words[1]);
                        ByteBuffer input = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
                        message.read(new ByteBufferAccessor(input), v);
                        if (input.hasRemaining()) throw new RuntimeException(input.remaining() + " bytes are left");
                        emit(out, words[0], v, "echo", words[1], message);
                    } catch (RuntimeException error) {
                        Map<String, Object> row = new LinkedHashMap<>();
                        row.put("message", words[0]);
                        row.put("version", v);
                        row.put("error", error.toString());
                        out.write(JSON.writeValueAsString(row));
                        out.newLine();
                    }
                }
            }
        }
    }

    private static void headers(BufferedWriter out, String name, short key, short version) throws Exception {
        Random random = new Random(name.hashCode() * 31L + version);
        ApiMessageType type = ApiMessageType.fromApiKey(key);
        String client = random.nextInt(4) == 0 ? null : text(random);
        int correlation = random.nextInt();
        RequestHeaderData request = new RequestHeaderData()
            .setRequestApiKey(key).setRequestApiVersion(version).setCorrelationId(correlation).setClientId(client);
        ResponseHeaderData response = new ResponseHeaderData().setCorrelationId(correlation);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("message", name);
        row.put("key", key);
        row.put("version", version);
        row.put("correlation", correlation);
        row.put("client", client);
        row.put("request", hex(request, type.requestHeaderVersion(version)));
        row.put("response", hex(response, type.responseHeaderVersion(version)));
        out.write(JSON.writeValueAsString(row));
        out.newLine();
    }

    private static String hex(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return HexFormat.of().formatHex(buffer.array());
    }

    private static Message fresh(String name) throws Exception {
        return (Message) Class.forName(name).getDeclaredConstructor().newInstance();
    }

    private static Message random(String name, String type, short version, boolean allNulls) throws Exception {
        nulls = allNulls;
        Message message = fresh(type);
        Schema schema = ((Schema[]) message.getClass().getField("SCHEMAS").get(null))[version];
        fill(message, schema, new Random(name.hashCode() * 31L + version));
        return message;
    }

    private static void emit(BufferedWriter out, String name, short version, String kind, String type, Message message)
            throws Exception {
        Method toJson = Class.forName(type + "JsonConverter").getMethod("write", message.getClass(), short.class);
        JsonNode json = (JsonNode) toJson.invoke(null, message, version);
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("message", name);
        row.put("version", version);
        row.put("kind", kind);
        row.put("hex", hex(message, version));
        row.put("json", json);
        out.write(JSON.writeValueAsString(row));
        out.newLine();
    }

    // --- pseudo-random values ---

    private static void fill(Message message, Schema schema, Random random) throws Exception {
        for (BoundField bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields) {
                for (org.apache.kafka.common.protocol.types.Field tagged : tagged((TaggedFields) bound.def.type)) {
                    if (random.nextInt(4) != 0 || nulls) set(message, tagged, random);
                }
                if (random.nextInt(3) == 0) {
                    message.unknownTaggedFields().add(new RawTaggedField(100 + random.nextInt(30000), blob(random)));
                }
            } else {
                set(message, bound.def, random);
            }
        }
    }

    /** Its accessor is newer than 3.9. */
    @SuppressWarnings("unchecked")
    private static Collection<org.apache.kafka.common.protocol.types.Field> tagged(TaggedFields type) throws Exception {
        Field fields = TaggedFields.class.getDeclaredField("fields");
        fields.setAccessible(true);
        return ((Map<Integer, org.apache.kafka.common.protocol.types.Field>) fields.get(type)).values();
    }

    private static void set(Message message, org.apache.kafka.common.protocol.types.Field def, Random random)
            throws Exception {
        Field field = field(message.getClass(), def.name);
        field.setAccessible(true);
        field.set(message, value(field, def.type, random));
    }

    private static Field field(Class<?> type, String snake) {
        String wanted = snake.replace("_", "");
        for (Field field : type.getDeclaredFields()) {
            if (field.getName().equalsIgnoreCase(wanted)) return field;
        }
        throw new IllegalStateException(type + " has no field " + snake);
    }

    private static Object value(Field field, org.apache.kafka.common.protocol.types.Type type, Random random)
            throws Exception {
        Class<?> java = field.getType();
        if (type.isNullable() && (random.nextInt(4) == 0 || (nulls && !Collection.class.isAssignableFrom(java)))) return null;
        if (Collection.class.isAssignableFrom(java)) {
            org.apache.kafka.common.protocol.types.Type element = type.arrayElementType().orElseThrow();
            Collection<Object> made = List.class.isAssignableFrom(java) && java.isInterface()
                ? new ArrayList<>()
                : collection(java);
            Class<?> inner = element(field);
            int count = random.nextInt(5) == 0 ? 0 : 1 + random.nextInt(2);
            for (int i = 0; i < count; i++) made.add(one(inner, element, random));
            return made;
        }
        return one(java, type, random);
    }

    @SuppressWarnings("unchecked")
    private static Collection<Object> collection(Class<?> type) throws Exception {
        return (AbstractCollection<Object>) type.getDeclaredConstructor().newInstance();
    }

    private static Class<?> element(Field field) {
        Type generic = field.getGenericType();
        if (!(generic instanceof ParameterizedType)) generic = field.getType().getGenericSuperclass();
        return (Class<?>) ((ParameterizedType) generic).getActualTypeArguments()[0];
    }

    private static Object one(Class<?> java, org.apache.kafka.common.protocol.types.Type type, Random random)
            throws Exception {
        if (java == boolean.class || java == Boolean.class) return random.nextBoolean();
        if (java == byte.class || java == Byte.class) return (byte) random.nextInt();
        if (java == short.class || java == Short.class) return (short) random.nextInt();
        if (java == int.class || java == Integer.class) {
            if (type.toString().equals("UINT16")) return random.nextInt(65536);
            return random.nextInt() >> random.nextInt(32);
        }
        if (java == long.class || java == Long.class) {
            if (type.toString().startsWith("U")) return random.nextInt() & 0xffffffffL;
            return random.nextLong() >> random.nextInt(64);
        }
        if (java == double.class || java == Double.class) return random.nextInt() / 64.0;
        if (java == String.class) return text(random);
        if (java == Uuid.class) return new Uuid(random.nextLong(), random.nextLong());
        if (java == byte[].class) return blob(random);
        if (java == ByteBuffer.class) return ByteBuffer.wrap(blob(random));
        if (Message.class.isAssignableFrom(java)) {
            Message made = (Message) java.getDeclaredConstructor().newInstance();
            fill(made, (Schema) type, random);
            return made;
        }
        return records(blob(random));
    }

    /** MemoryRecords moved between the versions that this runs with. */
    private static Object records(byte[] bytes) throws Exception {
        Class<?> type;
        try {
            type = Class.forName("org.apache.kafka.common.record.MemoryRecords");
        } catch (ClassNotFoundException moved) {
            type = Class.forName("org.apache.kafka.common.record.internal.MemoryRecords");
        }
        return type.getMethod("readableRecords", ByteBuffer.class).invoke(null, ByteBuffer.wrap(bytes));
    }

    private static String text(Random random) {
        StringBuilder made = new StringBuilder();
        for (int i = random.nextInt(9); i > 0; i--) {
            made.append(random.nextInt(12) == 0 ? "\u00e9\ud83d\ude80" : (char) ('a' + random.nextInt(26)) + "");
        }
        return made.toString();
    }

    private static byte[] blob(Random random) {
        byte[] made = new byte[random.nextInt(7)];
        random.nextBytes(made);
        return made;
    }
}
